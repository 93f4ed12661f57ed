"""Empty a slot: its service is drained, stopped and no longer started at boot; a rollback brings it back."""

from __future__ import annotations

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Deadlines, Host
from fleetctl.rollout.current import Facts, current_target, spans
from fleetctl.rollout.follow import run_rollout
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.rollout.measured import measured_findings, tell_measured
from fleetctl.rollout.nodes import OnEvent, empty_nodes, refuse_follower
from fleetctl.rollout.outcome import Outcome
from fleetctl.rollout.plan import Kind, Plan, difference
from fleetctl.rollout.replicas import deploy_replicas
from fleetctl.rollout.settle import settled_facts
from fleetctl.services.sides import as_filled
from fleetctl.services.target import Target, vacant_target
from fleetctl.transport.agent import Agent, open_agent


def stop_service(
    fleet: Fleet, host: Host, service: str, plan_only: bool, interrupt: Interrupt, on_event: OnEvent
) -> Outcome:
    """Empty the slot that ``service`` fills, or one after the other those of its replicas.

    A slot that is empty already stays so; ``FleetError`` (exit 5) where another service fills it.
    """

    def stop(name: str, _: str | None = None) -> Outcome:
        return stop_slot(fleet, host, host.services[name].slot, plan_only, interrupt, on_event, name)

    return deploy_replicas(host, service, None, stop) if host.services[service].replicas else stop(service)


def stop_slot(
    fleet: Fleet,
    host: Host,
    slot: str,
    plan_only: bool,
    interrupt: Interrupt,
    on_event: OnEvent,
    service: str | None = None,
) -> Outcome:
    """Leave nothing in ``slot``, on all hosts that its service spans; with ``service`` only where that one fills it.

    Raises ``FleetError``: exit 5 where another service fills it, or the slot holds a node that another host leads;
    6 where it could not be stopped and serves again; 7 where it does not.
    """
    with open_agent(host) as agent:
        facts = settled_facts(agent, host, slot, plan_only, on_event)
        state = facts["slots"][slot]["state"]
        refuse_follower(host, slot, state)
        host = as_filled(host, facts)
        old = current_target(host, slot, facts)
        if service and old and old.service != service:
            raise FleetError(
                f"{service} is not what fills the slot; {old.service} ({old.unit}) is; nothing was changed",
                where=f"{host.host}, slot {slot}",
                fix=f"fleetctl stop {host.name} --slot {slot} empties it whatever fills it",
                exit=Exit.PREFLIGHT,
            )
        if old and (nodes := spans(state)):
            return empty_nodes(fleet, host, slot, nodes, plan_only, interrupt, on_event)
        return empty(agent, "stop", host, slot, facts, plan_only, interrupt, on_event)


def empty(
    agent: Agent,
    kind: Kind,
    host: Host,
    slot: str,
    facts: Facts,
    plan_only: bool,
    interrupt: Interrupt,
    on_event: OnEvent,
) -> Outcome:
    """Carry out what leaves nothing in a slot of ``host`` (on the side in use), by ``facts`` that are fresh."""
    old, new = current_target(host, slot, facts), vacant_target(slot)
    found = difference(host, slot, new, old, facts)
    outcome = emptied(host, slot, old, found.changes)
    if not found.changes:
        return outcome
    known = host.services.get(old.service) if old else None
    plan = Plan.for_slot(kind, host, slot, new, old, known.deadlines if known else Deadlines())
    if plan_only:
        outcome.verdict = "planned"
        outcome.findings = agent.call("preflight", plan=plan.to_message(), timeout=60)["findings"]
        outcome.findings += measured_findings(facts, host, slot)
        return outcome
    tell_measured(facts, slot, on_event)
    outcome.result = run_rollout(agent, plan, interrupt, on_event)
    outcome.verdict = "done"
    return outcome


def emptied(host: Host, slot: str, old: Target | None, changes: list[str]) -> Outcome:
    """The outcome of a slot that ``old`` leaves, before anything is done."""
    service, mode = (old.service, old.mode) if old else ("", "")
    return Outcome(host.host, slot, service, mode, "unchanged", changes, emptied=True)
