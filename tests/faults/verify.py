"""What must hold after every fault: one of old and new serves, status and record say so, the next deploy works."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from fleetctl.rollout.current import current_target
from fleetctl.rollout.settle import settled_facts
from fleetctl.transport.agent import Agent
from tests.faults.site import Site, Slot

Json = dict[str, Any]

LATE = ("no answer", "starting")
STEADY_S = 60.0


def verify(site: Site) -> None:
    """Judge every slot; what is wrong becomes the slot's problem."""
    with site.agent() as agent:
        status, facts = steady(site, agent)
        history = {entry["id"]: entry for entry in agent.call("history", limit=10_000)}
        answers = generations(site, site.slots)
        left = leftovers(site)
        for slot in site.slots:
            slot.problems += judge(slot, status[slot.name], facts, history.get(slot.rollout), answers)
            slot.problems += [f"left behind: {name}" for name in left if _is_of(name, slot)]


def steady(site: Site, agent: Agent) -> tuple[dict[str, Any], Json]:
    """Status and facts; asked again where a service is starting, or took longer than status waits for it."""
    end = time.monotonic() + STEADY_S
    while True:
        status, facts = site.statuses(agent)
        if time.monotonic() > end or not any(one.health in LATE for one in status.values()):
            return status, facts
        time.sleep(0.5)


def _is_of(name: str, slot: Slot) -> bool:
    return name.startswith(f"{slot.name}-") or f"-{slot.name}-" in name


def generations(site: Site, slots: Sequence[Slot]) -> dict[int, bool]:
    """Whether a completion is answered on each slot's port."""
    ports = " ".join(str(slot.port) for slot in slots)
    body = json.dumps({"prompt": "x", "max_tokens": 2})
    ask = f"curl -s -m 20 -d '{body}' 127.0.0.1:$p/v1/completions"
    lines = site.run(f"for p in {ports}; do echo $p $({ask}); done", check=False).splitlines()
    return {int(line.split()[0]): '"completion_tokens": 2' in line for line in lines}


def leftovers(site: Site) -> list[str]:
    """Units on trial and boot units that are still there."""
    places = "ls /run/systemd/system.control /run/systemd/system | grep service; ls /etc/systemd/system | grep settle"
    return site.run(places, check=False).split()


def serving(slot: Slot, facts: Json) -> str | None:
    """Which of the slot's services holds its port: ``good``, ``new`` or ``after``."""
    owner = facts["ports"][str(slot.port)]
    if owner is None:
        return None
    knobs = json.loads(owner["command"][owner["command"].index("{") :])
    return str(knobs["tag"])


def judge(slot: Slot, status: Any, facts: Json, entry: Json | None, answers: dict[int, bool]) -> list[str]:
    """What is wrong with one slot."""
    if entry is None:
        return ["history does not have its rollout"]
    slot.outcome = entry["outcome"]
    expected = _expected(slot, entry["outcome"])
    found = serving(slot, facts)
    problems = []
    if found != expected:
        problems.append(
            f"outcome {entry['outcome']}, but {found} serves: {(entry['result'] or {}).get('reason')}"
        )
    if bool(found) != answers.get(slot.port, False):
        problems.append(f"{found} serves, a generation is answered: {answers.get(slot.port)}")
    active = sorted(
        unit
        for unit in {slot.unit(name) for name in ("good", "new", "after")}
        if facts["units"].get(unit, {}).get("ActiveState") in ("active", "activating", "reloading")
    )
    wanted = [slot.unit(found)] if found else []
    if active != wanted:
        problems.append(f"active units: {active}, the port is {found}'s")
    enabled = sorted(
        unit
        for unit in {slot.unit(name) for name in ("good", "new", "after")}
        if facts["units"].get(unit, {}).get("UnitFileState") == "enabled"
    )
    if enabled != wanted:
        problems.append(f"enabled at boot: {enabled}, {found} serves")
    return problems + _status(slot, status, found)


def _expected(slot: Slot, outcome: str) -> str | None:
    if outcome == "done" and not slot.cell.kind.fails:
        return None if slot.cell.kind.empties else "new"
    if outcome in ("rolled-back", "aborted", "refused"):
        return "good" if slot.cell.kind.has_old else None
    return f"(nothing that goes with {outcome})"


def _status(slot: Slot, status: Any, found: str | None) -> list[str]:
    if found is None:
        way_back = [note for note in status.notes if "brings" in note and slot.outcome == "done"]
        told = status.health in ("empty", "down") and list(status.notes) == way_back
        return [] if told else [f"status says {status}"]
    told = (status.unit, status.health, status.enabled, status.managed, list(status.notes))
    truth = (slot.unit(found), "ready", True, True, [])
    return [] if told == truth else [f"status says {told}"]


def next_deploy(site: Site) -> None:
    """A deploy to each slot works, whatever the fault left."""
    with site.agent() as agent:

        def bring(slot: Slot) -> None:
            facts = settled_facts(agent, site.host, slot.name, False, lambda event: None)
            result = site.roll(agent, site.plan_after(slot, current_target(site.host, slot.name, facts)))
            if result["outcome"] != "done":
                slot.problems.append(f"the next deploy: {result['outcome']}: {result['reason']}")

        site.each(bring)
        _, facts = site.statuses(agent)
        answers = generations(site, site.slots)
    for slot in site.slots:
        if serving(slot, facts) != "after" or not answers.get(slot.port):
            slot.problems.append(f"after the next deploy {serving(slot, facts)} serves")
