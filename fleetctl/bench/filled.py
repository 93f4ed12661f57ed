"""What fills a slot while it is measured: where that changes meanwhile, the figures are of two things."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from fleetctl.inventory.models import Host, Service
from fleetctl.rollout.current import Facts, filling, rollout_words
from fleetctl.rollout.settle import gather_facts
from fleetctl.transport.agent import open_agent

LOOK_EVERY_S = 1.0
ENDED = {"activating": "ended, and is being started again", "failed": "failed"}
"""What a unit that no rollout touched did, by the state it is in."""


@dataclass(frozen=True)
class Filled:
    """A slot at one moment. ``start``: which start of ``unit`` it is; ``at_work``: the rollout that holds the slot."""

    service: str
    unit: str
    start: str
    state: str
    runs: bool
    rollout: str
    operator: str
    at_work: str


def filled(facts: Facts, service: Service) -> Filled:
    """What the facts say of the service's slot."""
    record = facts["slots"][service.slot]["state"] or {}
    state = filling(facts, service.slot) or {}
    unit = str(state.get("unit") or service.unit)
    properties: dict[str, Any] = facts["units"].get(unit) or {}
    start = properties.get("InvocationID") or properties.get("MainPID") or ""
    lock = facts["slots"][service.slot]["locked_by"]
    return Filled(
        service=str(state.get("service") or service.name),
        unit=unit,
        start=str(start),
        state=str(properties.get("ActiveState") or "not there"),
        runs=properties.get("ActiveState") in ("active", "reloading"),
        rollout=str(record.get("rollout") or ""),
        operator=str(record.get("operator") or "somebody"),
        at_work=rollout_words(lock) if lock else "",
    )


@dataclass(frozen=True)
class Change:
    """``what`` is no longer as it was; ``by_rollout``: somebody did it, whom the host's history names."""

    what: str
    by_rollout: bool


def change_since(began: Filled, host: Host, service: Service, patience_s: float = 0.0) -> Change | None:
    """What is no longer as it ``began``, asked of the host; None where the same process still serves.

    A rollout that is at work in the slot may end first, for at most ``patience_s``.
    """
    until = time.monotonic() + patience_s
    with open_agent(host) as agent:
        while True:
            now = filled(gather_facts(agent, host), service)
            if not now.at_work or time.monotonic() > until:
                return changed(began, now)
            time.sleep(LOOK_EVERY_S)


def changed(began: Filled, now: Filled) -> Change | None:
    """What is no longer as it ``began``, in words, and by whom where the slot's record says so."""
    theirs = bool(now.rollout) and now.rollout != began.rollout
    by = f" (rollout {now.rollout} of {now.operator})" if theirs else ""
    if now.at_work:
        return Change(f"{now.at_work} was at work in its slot", True)
    if now.unit != began.unit:
        return Change(f"{now.service} took its place{by}", True)
    if began.runs and not now.runs:
        did = None if theirs else ENDED.get(now.state)
        return Change(f"{now.unit} {did or f'does not run any more: it is {now.state}{by}'}", theirs)
    if now.start != began.start:
        return Change(f"{now.unit} was restarted{by}", theirs)
    return None
