"""Which rollout is meant: by host, slot, id, a part of it, or the only one that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet, load_fleet
from fleetctl.inventory.models import Host
from fleetctl.rollout import attach

LAB = Path(__file__).parents[2]


def entry(rollout: str, slot: str = "native", outcome: str = "done") -> dict[str, Any]:
    """A rollout as history has it."""
    return {
        "id": rollout,
        "slot": slot,
        "kind": "swap",
        "operator": "me",
        "new": {"service": "s"},
        "outcome": outcome,
    }


@pytest.fixture
def fleet() -> Fleet:
    """The lab's two hosts."""
    return load_fleet(LAB, "inventories/lab")


def answer(monkeypatch: pytest.MonkeyPatch, **said: list[dict[str, Any]] | FleetError) -> None:
    """Have hosts answer so."""

    def ask(host: Host) -> list[dict[str, Any]]:
        found = said[host.name]
        if isinstance(found, FleetError):
            raise found
        return found

    monkeypatch.setattr(attach, "ask", ask)


def test_the_last_of_each_slot_and_all_without_a_result() -> None:
    entries = [
        entry("5", "a", "running"),
        entry("4", "b"),
        entry("3", "a", "crashed"),
        entry("2", "a"),
        entry("1", "b", "rolled-back"),
    ]
    assert [one["id"] for one in attach.latest(entries)] == ["5", "4", "3"]


def test_the_one_that_runs_is_found_on_any_host(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, ct129=[entry("r1")], ct200=[entry("r2", "wrapper", "running"), entry("r3")])
    found = attach.find_rollout(fleet, None, None, None)
    assert (found.host.name, found.entry["id"]) == ("ct200", "r2")
    with pytest.raises(FleetError, match="no rollout is under way"):
        attach.find_rollout(fleet, None, None, "native")


def test_several_that_run_are_listed(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, ct129=[entry("r1", outcome="running")], ct200=[entry("r2", outcome="running")])
    with pytest.raises(FleetError, match="2 are under way") as said:
        attach.find_rollout(fleet, None, None, None)
    assert [line.split()[:2] for line in said.value.evidence] == [["ct129", "r1"], ["ct200", "r2"]]
    assert attach.find_rollout(fleet, "ct129", None, None).entry["id"] == "r1"


def test_by_id_or_a_part_of_it(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, ct129=[entry("20261129T1-a-11"), entry("20261129T2-a-12")], ct200=[])
    assert attach.find_rollout(fleet, None, "a-12", None).entry["id"] == "20261129T2-a-12"
    assert attach.find_rollout(fleet, "20261129T1", None, None).entry["id"] == "20261129T1-a-11"
    with pytest.raises(FleetError, match="2 have 2026"):
        attach.find_rollout(fleet, "ct129", "2026", None)
    with pytest.raises(FleetError, match="there is no rollout x9"):
        attach.find_rollout(fleet, None, "x9", None)
    with pytest.raises(FleetError, match="no host ct2OO"):
        attach.find_rollout(fleet, "ct2OO", "a-12", None)
    with pytest.raises(FleetError, match="one host") as said:
        attach.find_rollout(fleet, "gpus>=4", None, None)
    assert said.value.exit == Exit.INPUT


def test_a_host_that_does_not_answer_hides_no_other(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = FleetError("gone", where="ct129", exit=Exit.UNREACHABLE)
    answer(monkeypatch, ct129=gone, ct200=[entry("r2", outcome="running")])
    assert attach.find_rollout(fleet, None, None, None).entry["id"] == "r2"
    answer(monkeypatch, ct129=gone, ct200=[])
    for rollout, what in ((None, "no rollout is under way on the hosts"), ("r9", "have no rollout r9")):
        with pytest.raises(
            FleetError, match=f"{what}.*; it may be on ct129, which could not be asked"
        ) as said:
            attach.find_rollout(fleet, None, rollout, None)
        assert said.value.exit == Exit.PARTIAL
        assert said.value.evidence == ["not asked: ct129: gone"]
    with pytest.raises(FleetError, match="gone"):
        attach.find_rollout(fleet, "ct129", None, None)
