"""``-o`` is refused before a host is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.cli.app import whole
from fleetctl.errors import Exit, FleetError
from fleetctl.transport import agent

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("words", [["adopt", "box"], ["env", "capture", "ct200:/root/venv"]])
@pytest.mark.parametrize(
    ("file", "says"), [("no/such/x", "there is no folder"), ("there", "is a folder, and a file")]
)
def test_a_file_that_cannot_be_written(
    words: list[str], file: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(host: object) -> None:
        raise AssertionError(host)

    monkeypatch.setenv("FLEETCTL_FLEET", str(REPOSITORY))
    monkeypatch.setenv("FLEETCTL_INVENTORY", "inventories")
    monkeypatch.setattr(agent, "open_agent", asked)
    (tmp_path / "there").mkdir()
    with pytest.raises(FleetError, match=says) as caught:
        whole()([*words, "-o", str(tmp_path / file)])
    assert caught.value.exit == Exit.INPUT
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
