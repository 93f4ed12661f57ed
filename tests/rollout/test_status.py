"""A host's facts as the state of its slots: each health, each owner of a port, each note."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

import pytest

from fleetctl.inventory.models import Host
from fleetctl.rollout.status import SlotStatus, facts_arguments, slot_statuses

SERVICE = {"engine": "standalone", "environment": "venv", "model": "smol"}
HOST = Host.model_validate(
    {
        "host": "box",
        "gpus": {"count": 2},
        "slots": {"native": {"gpus": [1], "port": 30001}},
        "environments": {"venv": {"path": "/venv"}},
        "models": {"smol": {"path": "/model"}},
        "services": {
            "dflash": {**SERVICE, "slot": "native", "mode": "linear"},
            "ddtree": {**SERVICE, "slot": "native", "mode": "tree"},
        },
    }
)
UNIT = HOST.services["ddtree"].unit
STATE = {
    "service": "ddtree",
    "mode": "tree",
    "unit": UNIT,
    "environment": "/var/lib/fleetctl/envs/standalone-0123456789ab",
    "environment_digest": "0123456789ab",
    "since": 1700000000.5,
}
RUNNING = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "UnitFileState": "enabled",
    "NRestarts": 0,
    "ActiveEnterTimestamp": "Sun 2026-11-29 16:44:52 UTC",
}
STRANGER = {"pid": 7, "command": "nc -l 30001", "unit": None}


def facts(
    state: dict[str, Any] | None = None,
    unit: dict[str, Any] | None = None,
    owner: dict[str, Any] | None = None,
    status: int | None = None,
    locked_by: dict[str, Any] | None = None,
    environment_there: bool = True,
    **more: Any,
) -> dict[str, Any]:
    health = {"status": status, "models": ["smol"] if status else [], "running": None, "queued": None}
    slot = {"state": state, "locked_by": locked_by, "health": {**health, "error": None}}
    slot["environment_there"] = environment_there
    units = {UNIT: unit} if unit else {}
    return {"slots": {"native": slot}, "ports": {"30001": owner}, "units": units, "errors": {}, **more}


def status(**parts: Any) -> SlotStatus:
    (found,) = slot_statuses(HOST, facts(**parts))
    return found


def test_a_healthy_slot() -> None:
    found = status(state=STATE, unit=RUNNING, owner={"pid": 5, "command": "python", "unit": UNIT}, status=200)
    assert (found.service, found.mode, found.health, found.unit_state) == (
        "ddtree",
        "tree",
        "ready",
        "active (running)",
    )
    assert found.since == "2023-11-14T22:13:20+00:00"
    assert found.environment_digest == "0123456789ab"
    assert found.managed
    assert found.enabled
    assert found.notes == []
    assert found.to_dict()["models"] == ["smol"]


def test_an_empty_slot() -> None:
    found = status()
    assert (found.service, found.unit, found.unit_state, found.health) == (None, None, None, "empty")
    assert not found.managed
    assert found.notes == []


OWNER = {"pid": 5, "command": "python", "unit": UNIT}


@pytest.mark.parametrize(
    ("parts", "health"),
    [
        ({"unit": RUNNING, "owner": OWNER, "status": 503}, "not ready"),
        ({"unit": RUNNING, "owner": OWNER, "status": 500}, "HTTP 500"),
        ({"unit": RUNNING, "owner": OWNER}, "no answer"),
        ({"unit": RUNNING}, "starting"),
        ({"unit": {**RUNNING, "ActiveState": "activating", "SubState": "auto-restart"}}, "starting"),
        ({"unit": {**RUNNING, "ActiveState": "failed", "SubState": "failed"}}, "down"),
    ],
)
def test_health_of_a_filled_slot(parts: dict[str, Any], health: str) -> None:
    assert status(state=STATE, **parts).health == health


def test_a_unit_that_holds_the_port_of_a_slot_fleetctl_never_filled() -> None:
    unit = "sglang-dflash-smoke.service"
    found = status(owner={"pid": 5, "command": "python", "unit": unit}, status=200, units={unit: RUNNING})
    assert not found.managed
    assert found.unit == unit
    assert found.since == "2026-11-29T16:44:52+00:00"
    assert found.notes == [f"not managed by fleetctl: port 30001 is held by {unit}"]


def test_a_process_without_a_unit_holds_the_port() -> None:
    assert status(owner=STRANGER).notes == [
        "not managed by fleetctl: port 30001 is held by nc -l 30001 (pid 7)"
    ]
    found = status(state=STATE, unit={**RUNNING, "ActiveState": "failed"}, owner=STRANGER)
    assert found.notes == ["port 30001 is held by a stranger: nc -l 30001 (pid 7, no unit)"]
    assert found.health == "no answer"


def test_a_rollout_at_work() -> None:
    found = status(state=STATE, unit=RUNNING, locked_by={"pid": 9, "rollout": "20261129-x", "operator": "me"})
    assert found.rollout == "20261129-x"
    assert found.notes == ["rollout 20261129-x of me is at work"]


LOCK = {"pid": 9, "rollout": "20261129-x", "kind": "swap", "service": "dflash", "operator": "me"}
LOCK = {**LOCK, "unit": HOST.services["dflash"].unit, "since": 1700000000.5}
AT_WORK = f"rollout 20261129-x (swap of dflash) of me since {datetime.fromtimestamp(1700000000):%H:%M:%S} is at work"


@pytest.mark.parametrize("state", [STATE, None])
def test_what_a_rollout_started_is_no_stranger(state: dict[str, Any] | None) -> None:
    own = {"pid": 8, "command": "python", "unit": LOCK["unit"]}
    assert status(state=state, unit=RUNNING, owner=own, locked_by=LOCK).notes == [AT_WORK]
    found = status(state=state, unit=RUNNING, owner=STRANGER, locked_by=LOCK).notes
    assert [note for note in found if "nc -l" in note]


def test_what_a_reboot_would_not_start_and_what_restarts() -> None:
    found = status(
        state=STATE, unit={**RUNNING, "UnitFileState": "disabled", "NRestarts": 3}, owner=OWNER, status=200
    )
    assert found.restarts == 3
    assert found.notes == [f"{UNIT} is disabled: not started at boot"]


def test_a_unit_that_is_gone() -> None:
    gone = {"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead", "UnitFileState": ""}
    found = status(state=STATE, unit=gone)
    assert (found.unit_state, found.health) == ("not found", "down")


def test_parts_of_the_facts_that_failed_are_shown() -> None:
    found = status(
        errors={"units": "no answer from systemctl", "slots.native": "torn", "slots.other": "else"}
    )
    assert found.notes == ["torn", "no answer from systemctl"]


DAMAGED = "/var/lib/fleetctl/slots/native.json is damaged: Expecting value"


def test_a_damaged_state_says_the_way_on_and_hides_no_health() -> None:
    found = status(unit=RUNNING, owner=OWNER, status=200, errors={"slots.native": DAMAGED})
    assert (found.health, found.unit) == ("ready", UNIT)
    way_on = "(`rm /var/lib/fleetctl/slots/native.json` there; the next deploy adopts the unit that serves)"
    assert found.notes == [f"{DAMAGED} {way_on}"]


def test_a_service_that_runs_without_a_record_is_not_an_empty_slot() -> None:
    found = status(unit={**RUNNING, "ActiveState": "activating", "SubState": "auto-restart"})
    assert (found.unit, found.health) == (UNIT, "starting")
    assert found.notes == [f"not managed by fleetctl: {UNIT} runs, and no record names it"]


def test_what_was_changed_by_hand_since_the_deploy() -> None:
    text = "[Service]\n"
    state = {**STATE, "unit_sha256": hashlib.sha256(text.encode()).hexdigest()}
    parts: dict[str, Any] = {"state": state, "owner": OWNER, "status": 200}
    assert status(**parts, unit={**RUNNING, "text": text}).notes == []
    found = status(**parts, unit={**RUNNING, "text": text + "Nice=1\n"})
    assert found.notes == [
        f"the file of {UNIT} was changed since it was deployed: `fleetctl deploy --plan` shows it"
    ]
    found = status(**parts, unit={**RUNNING, "text": text}, environment_there=False)
    assert found.notes == [f"{STATE['environment']} is not there: {UNIT} could not be started again"]


def test_what_is_asked_for() -> None:
    assert facts_arguments(HOST) == {
        "slots": {"native": {"port": 30001, "gpus": [1]}},
        "units": [HOST.services["dflash"].unit, UNIT],
        "gpus": False,
    }
