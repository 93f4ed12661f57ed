"""What stood in a slot before a benchmark, and how it gets there again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Deadlines, Host
from fleetctl.rollout.current import Facts, current_target, is_running
from fleetctl.rollout.follow import run_rollout
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.rollout.measured import measured_words
from fleetctl.rollout.plan import Plan, difference
from fleetctl.rollout.settle import gather_facts
from fleetctl.rollout.stop import stop_slot
from fleetctl.services.target import Target
from fleetctl.transport.agent import Agent, open_agent

OnEvent = Callable[[dict[str, Any]], None]
FIRST = "^C: what stood here before is being put back; ^C again leaves that to the host"


@dataclass(frozen=True)
class Before:
    """A slot before its first swap; ``target`` None: it was empty. ``ran``: whether that was started."""

    slot: str
    target: Target | None
    ran: bool


class Restoring(Interrupt):
    """While a slot is put back the first ^C only says so: undoing would bring the measured service again."""

    _warned = False

    def _on_sigint(self, signum: int, frame: FrameType | None) -> None:
        if self._warned:
            self.asked = True
            for told in self._told.values():
                told.set()
            super()._on_sigint(signum, frame)
        else:
            self._warned = True
            threading.Thread(target=self._say, args=(FIRST,), daemon=True).start()


def remember(agent: Agent, host: Host, slot: str) -> Before:
    """What fills the slot now, with its unit's text as it is; FleetError as :func:`current_target`, and exit 4 where
    somebody else measures there: two measurements would swap each other's services away."""
    facts = gather_facts(agent, host)
    if words := measured_words(facts, slot):
        raise FleetError(
            f"slot {slot} is {words}; nothing was changed",
            f"{host.name}, slot {slot}",
            "wait for its end; `fleetctl status` shows it",
            exit=Exit.LOCKED,
        )
    return _filling(host, slot, facts)


def last_rollout(host: Host, slot: str) -> str:
    """The rollout that the slot is as it is by; "" where it has no record."""
    with open_agent(host) as agent:
        return _last(gather_facts(agent, host), slot)


def put_since(host: Host, slot: str, rollout: str) -> Before | None:
    """What another rollout than ``rollout``, the measurement's own, has left in the slot; None where none has."""
    with open_agent(host) as agent:
        facts = gather_facts(agent, host)
    return None if _last(facts, slot) == rollout else _filling(host, slot, facts)


def _last(facts: Facts, slot: str) -> str:
    return str((facts["slots"][slot]["state"] or {}).get("rollout") or "")


def _filling(host: Host, slot: str, facts: Facts) -> Before:
    target = current_target(host, slot, facts)
    if target is None:
        return Before(slot, None, False)
    text = facts["units"].get(target.unit, {}).get("text")
    return Before(slot, replace(target, unit_text=text or target.unit_text), is_running(facts, target.unit))


def put_back(fleet: Fleet, host: Host, before: Before, on_event: OnEvent) -> str:
    """Bring what stood in the slot, or empty it; in words what came of it. FleetError where that fails."""
    where = f"{host.name}, slot {before.slot}"
    if before.target is None:
        return _empty(fleet, host, before.slot, where, on_event)
    try:
        return _put_back(host, before, before.target, where, on_event)
    except FleetError as error:
        lead = f"{before.target.service}, which stood there before, was not put back: "
        raise FleetError(lead + error.what, error.where, error.fix, error.evidence, error.exit) from None


def _empty(fleet: Fleet, host: Host, slot: str, where: str, on_event: OnEvent) -> str:
    interrupt = Restoring()
    try:
        with interrupt.installed(on_event):
            outcome = stop_slot(fleet, host, slot, False, interrupt, on_event)
    except FleetError as error:
        lead = "the slot was empty before, and was not emptied again: "
        raise FleetError(lead + error.what, error.where, error.fix, error.evidence, error.exit) from None
    return f"{where}: as empty as before" + (f", {outcome.service} is stopped" if outcome.result else "")


def _put_back(host: Host, before: Before, target: Target, where: str, on_event: OnEvent) -> str:
    name = target.service
    interrupt = Restoring()
    with open_agent(host) as agent, interrupt.installed(on_event):
        facts: Facts = gather_facts(agent, host)
        there = current_target(host, before.slot, facts)
        found = difference(host, before.slot, target, there, facts)
        if not found.changes:
            return f"{where}: {name} stands there as before"
        service = host.services.get(name)
        deadlines = service.deadlines if service else Deadlines()
        plan = Plan.for_slot("rollback", host, before.slot, target, there, deadlines, restart=found.restart)
        run_rollout(agent, plan, interrupt, on_event)
    note = "" if before.ran else " (it did not run before; now it does)"
    return f"{where}: {name} is back, proven by a generation{note}"
