"""What a plan would change, from a host's facts: each kind of slot, and always the one where nothing is to be done."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.cli.output import Output
from fleetctl.cli.rollouts import _print_outcome
from fleetctl.errors import Exit, FleetError
from fleetctl.rollout.current import current_target
from fleetctl.rollout.follow import follow_bound
from fleetctl.rollout.outcome import Outcome
from fleetctl.rollout.plan import Difference, Plan, difference
from fleetctl.services.target import recorded_target, vacant_target
from tests.rollout.test_status import DAMAGED, HOST, LOCK, OWNER, RUNNING, STATE, UNIT, facts

TEXT = "[Service]\nExecStart=/venv/bin/python\n"
NEW = replace(recorded_target(HOST, "native", {"unit": UNIT}, adopted=False), unit_text=TEXT)
THERE: dict[str, Any] = {**RUNNING, "text": TEXT}


def planned(new: Any = NEW, **parts: Any) -> Difference:
    found = facts(**parts)
    return difference(HOST, "native", new, current_target(HOST, "native", found), found)


def test_nothing_is_to_be_done() -> None:
    found = planned(state=STATE, unit=THERE, owner=OWNER, status=200)
    assert found == Difference()


@pytest.mark.parametrize(
    ("parts", "changes"),
    [
        ({}, ["write", "start", "enable"]),
        ({"state": STATE, "unit": {**THERE, "ActiveState": "failed"}}, ["start"]),
        (
            {"state": STATE, "unit": {**THERE, "text": "[Unit]\n"}, "owner": OWNER},
            ["change", "stop", "start"],
        ),
        (
            {"state": STATE, "unit": {**THERE, "UnitFileState": "disabled"}, "owner": OWNER},
            ["stop", "start", "enable"],
        ),
        ({"unit": THERE, "owner": OWNER}, []),
        ({"unit": {**THERE, "UnitFileState": "static"}, "owner": OWNER}, []),
    ],
    ids=["empty", "failed", "changed", "not-enabled", "as-found", "without-install"],
)
def test_all_that_a_rollout_does_is_said(parts: dict[str, Any], changes: list[str]) -> None:
    assert [change.split()[0] for change in planned(**parts).changes] == changes


VACANT = {**STATE, "service": "vacant", "unit": "fleetctl-vacant-native.service", "previous": STATE}


@pytest.mark.parametrize(
    ("parts", "changes"),
    [
        ({}, []),
        ({"state": VACANT}, []),
        ({"state": STATE, "unit": THERE, "owner": OWNER}, ["stop", "no"]),
        ({"state": STATE, "unit": {**THERE, "ActiveState": "failed"}}, ["take", "no"]),
        ({"state": VACANT, "unit": THERE, "owner": OWNER}, ["stop", "no"]),
        ({"unit": {**THERE, "UnitFileState": "static"}, "owner": OWNER}, ["stop"]),
    ],
    ids=["empty", "emptied", "serves", "failed", "started-since", "not-enabled"],
)
def test_all_that_emptying_does_is_said(parts: dict[str, Any], changes: list[str]) -> None:
    found = planned(vacant_target("native"), **parts)
    assert [change.split()[0] for change in found.changes] == changes
    assert found.diff == []


@pytest.mark.parametrize(
    ("state", "origin"),
    [
        (None, "not deployed by fleetctl, adopted"),
        ({**STATE, "adopted": True}, "adopted, put back by fleetctl"),
        (STATE, STATE["service"]),
    ],
    ids=["found", "put-back", "deployed"],
)
@pytest.mark.parametrize("new", [vacant_target("native"), replace(NEW, unit="other.service")])
def test_whose_the_leaving_unit_is(state: Any, origin: str, new: Any) -> None:
    found = planned(new, state=state, unit=THERE, owner=OWNER)
    assert any(change == f"stop {UNIT} ({origin})" for change in found.changes)


def test_the_head_of_a_plan_that_empties_a_slot(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome("ct200", "native", "llm-one", "", "planned", ["stop llm-one.service"], emptied=True)
    _print_outcome(Output(), outcome)
    assert capsys.readouterr().out.splitlines()[0] == "ct200 native would be empty, planned:"


def test_an_emptied_slot_is_empty_for_all_else() -> None:
    assert current_target(HOST, "native", facts(state=VACANT)) is None
    assert planned(state=VACANT).changes == planned().changes
    assert recorded_target(HOST, "native", VACANT, adopted=False) == vacant_target("native")


DEPLOYED = {**STATE, "unit_sha256": hashlib.sha256(TEXT.encode()).hexdigest()}
DISABLED = {**THERE, "UnitFileState": "disabled"}


def test_a_healthy_service_is_enabled_without_a_restart() -> None:
    found = planned(state=DEPLOYED, unit=DISABLED, owner=OWNER, status=200)
    assert found == Difference([f"enable {UNIT} at boot, without a restart"], restart=False)


def test_a_healthy_service_that_was_found_there_is_enabled_without_a_restart() -> None:
    kept = replace(NEW, unit_text=None)
    found = planned(kept, unit=DISABLED, owner=OWNER, status=200)
    assert found == Difference([f"enable {UNIT} at boot, without a restart"], restart=False)
    assert planned(kept, unit=DISABLED, owner=OWNER, status=503).restart


@pytest.mark.parametrize(
    "parts",
    [
        {"state": STATE},
        {"state": {**DEPLOYED, "service": "other"}},
        {"status": 503},
        {"unit": {**DISABLED, "NeedDaemonReload": "yes"}},
        {"unit": {**DISABLED, "text": "[Unit]\n"}},
    ],
    ids=["started-by-another-text", "another-service", "not-ready", "not-read", "changed"],
)
def test_what_may_run_by_another_text_is_restarted(parts: dict[str, Any]) -> None:
    found = planned(**{"state": DEPLOYED, "unit": DISABLED, "owner": OWNER, "status": 200, **parts})
    assert found.restart
    assert any(change.startswith("start") for change in found.changes)


def test_a_unit_whose_text_is_kept_has_no_diff() -> None:
    found = planned(replace(NEW, unit_text=None), state=STATE, unit=THERE, owner=OWNER, status=200)
    assert found == Difference()


def test_a_crash_loop_is_said() -> None:
    looping = {**THERE, "ActiveState": "activating", "NRestarts": 4}
    (warning,) = planned(state=STATE, unit=looping).warnings
    assert "does not answer" in warning
    assert "restarted it 4 times" in warning


def test_a_damaged_state_is_refused_with_the_way_on() -> None:
    with pytest.raises(FleetError) as said:
        planned(unit=THERE, owner=OWNER, errors={"slots.native": DAMAGED})
    assert "rm /var/lib/fleetctl/slots/native.json" in said.value.fix


def test_a_service_that_runs_without_a_record_is_adopted() -> None:
    looping = {**THERE, "ActiveState": "activating", "SubState": "auto-restart"}
    old = current_target(HOST, "native", facts(unit=looping))
    assert old is not None
    assert (old.service, old.unit, old.adopted) == ("ddtree", UNIT, True)


def test_following_waits_for_what_is_settled_first() -> None:
    plan = Plan.for_slot("deploy", HOST, "native", NEW, None, HOST.services["ddtree"].deadlines)
    assert follow_bound(plan, {"crashed": 700.0}) == follow_bound(plan, {}) + 700.0


def test_a_slot_at_work_is_locked() -> None:
    with pytest.raises(
        FleetError, match=r"locked by rollout 20261129-x \(swap of dflash\) of me since"
    ) as said:
        planned(state=STATE, unit=THERE, owner=OWNER, locked_by=LOCK)
    assert said.value.exit == Exit.LOCKED


def test_a_state_that_cannot_be_read_is_not_an_empty_slot() -> None:
    with pytest.raises(FleetError) as said:
        planned(unit=THERE, owner=OWNER, errors={"slots.native": "JSONDecodeError: torn"})
    assert said.value.exit == Exit.PREFLIGHT
    assert said.value.evidence == ["slots.native: JSONDecodeError: torn"]
