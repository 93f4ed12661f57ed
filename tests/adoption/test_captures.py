"""The captures beside an adopted host's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from fleetctl.adoption import captures
from fleetctl.errors import Exit, FleetError
from fleetctl.transport.agent import Agent


def test_an_interrupt_says_what_is_written_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(agent: Agent, path: str, on_event: Any) -> dict[str, Any]:
        if path == "/second":
            raise KeyboardInterrupt
        return {}

    monkeypatch.setattr(captures, "capture", capture)
    paths = {"first": "/first", "second": "/second", "third": "/third"}
    with pytest.raises(FleetError) as caught:
        captures.captures(cast("Agent", None), "box", paths, tmp_path / "box.yaml", lambda event: None)
    assert caught.value.exit == Exit.INTERRUPTED
    assert caught.value.what == "interrupted; box.yaml is written, captures that are missing: second, third"
    assert "run it again" in caught.value.fix
    assert [path.name for path in (tmp_path / "captures").iterdir()] == ["box-first.json"]
