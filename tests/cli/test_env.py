"""What the verbs of ``fleetctl env`` say at the end, and when ^C ends them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.cli.app import whole
from fleetctl.cli.env_clone import _print_made
from fleetctl.cli.output import Output
from fleetctl.environment.derived import ClonePlan
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory import loader

REPOSITORY = Path(__file__).parents[2]
PLAN = ClonePlan("/root/venv", "twin", "0" * 12, "/e/twin", False, "hardlink", 1, 1, 0, 9, None)


def test_a_clone_that_another_made_is_said_to_be_there(capsys: pytest.CaptureFixture[str]) -> None:
    made = {"path": "/e/twin", "built": False, "method": None, "seconds": {}}
    _print_made(Output(), "ct200", PLAN, made)
    _print_made(Output(), "ct200", PLAN, {**made, "built": True, "method": "copy", "seconds": {"clone": 2}})
    assert capsys.readouterr().out.splitlines() == [
        "ct200: /e/twin is there, made by another meanwhile: nothing to do",
        "ct200: cloned /root/venv to /e/twin (copy) in 2.0 s",
    ]


def test_a_clone_is_not_named_like_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = loader.load_fleet(REPOSITORY, "inventories")
    monkeypatch.setattr(loader, "load_fleet", lambda: fleet)
    with pytest.raises(FleetError, match="ct129 is a host") as caught:
        whole()(["env", "clone", "ct200:/root/venv", "ct129"])
    assert caught.value.exit == Exit.INPUT
    assert caught.value.fix == "did you mean ct129:NAME?"


@pytest.mark.parametrize("words", [["env", "prune", "ct200"], ["patch", "status", "ct200"]])
def test_an_interrupt_says_that_nothing_unfinished_was_named(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loader, "load_fleet", interrupted)
    with pytest.raises(FleetError, match="interrupted; nothing unfinished was named") as caught:
        whole()(words)
    assert caught.value.exit == Exit.INTERRUPTED
