"""Put back what filled a slot before its last commit, from what the host kept of it."""

from __future__ import annotations

from typing import Any

from fleetctl.agent.rollout.vacant import is_vacant
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Deadlines, Host
from fleetctl.rollout import bluegreen
from fleetctl.rollout.current import current_target, spans
from fleetctl.rollout.follow import run_rollout
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.rollout.measured import measured_findings, tell_measured
from fleetctl.rollout.nodes import OnEvent, refuse_follower, rollback_nodes
from fleetctl.rollout.outcome import Outcome, unhealthy
from fleetctl.rollout.plan import Plan, difference
from fleetctl.rollout.settle import settled_facts
from fleetctl.rollout.stop import empty
from fleetctl.services.sides import as_filled, as_recorded, is_spare
from fleetctl.services.target import recorded_target
from fleetctl.transport.agent import open_agent


def rollback_slot(
    fleet: Fleet, host: Host, slot: str, plan_only: bool, interrupt: Interrupt, on_event: OnEvent
) -> Outcome:
    """Swap the slot's service for the one before it; the environment and unit it had are still on the host.

    What a blue-green swap replaced comes back in the same way: its place is free, so nothing stops before it serves.

    Raises ``FleetError``: exit 2 where the slot has no previous service, 5 where that one is there already and
    does not answer.
    """
    with open_agent(host) as agent:
        facts = settled_facts(agent, host, slot, plan_only, on_event)
        own, host = host, as_filled(host, facts)
        old = current_target(host, slot, facts)
        previous: dict[str, Any] | None = (facts["slots"][slot]["state"] or {}).get("previous")
        if not previous:
            raise FleetError(
                "there is nothing to roll back to: no service was committed here before the present one",
                where=f"{host.host}, slot {slot}",
                fix=f"fleetctl history {host.host} lists what happened; fleetctl deploy brings a service",
            )
        state = facts["slots"][slot]["state"]
        refuse_follower(host, slot, state)
        if nodes := [*spans(state), *spans(previous)]:
            return rollback_nodes(fleet, host, slot, nodes, plan_only, interrupt, on_event)
        if is_vacant(previous):
            return empty(agent, "rollback", host, slot, facts, plan_only, interrupt, on_event)
        place = as_recorded(own, slot, previous)
        beside = None
        if is_spare(place, slot) != is_spare(host, slot):
            beside = bluegreen.beside(own, host, slot, old, facts)
        leaves, host = host, place
        new = recorded_target(host, slot, previous, adopted=bool(previous.get("adopted")))
        found = difference(host, slot, new, old, facts)
        if not found.changes:
            if found.warnings:
                raise unhealthy(host, slot, new, found.warnings)
            return Outcome(host.host, slot, new.service, new.mode, "unchanged")
        service = host.services.get(new.service)
        deadlines = service.deadlines if service else Deadlines()
        if beside and old:
            found = bluegreen.in_words(found, host, slot, old)
        plan = Plan.for_slot(
            "rollback",
            host,
            slot,
            new,
            old,
            deadlines,
            restart=found.restart,
            overlap=beside is not None,
            leaves=leaves,
        )
        outcome = Outcome(host.host, slot, new.service, new.mode, "planned", found.changes, found.diff)
        if plan_only:
            outcome.findings = agent.call("preflight", plan=plan.to_message(), timeout=60)["findings"]
            outcome.findings += measured_findings(facts, host, slot)
            return outcome
        tell_measured(facts, slot, on_event)
        outcome.result = run_rollout(agent, plan, interrupt, on_event)
        outcome.verdict = "done"
        return outcome
