"""Put a service into its slot: the runbook of ``deploy`` and ``swap``.

facts → environment, models and unit as wanted → what would change → send and build what is missing → rollout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fleetctl.environment.room import require_room, shortages
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host
from fleetctl.rollout import bluegreen
from fleetctl.rollout.current import current_target, spans
from fleetctl.rollout.follow import run_rollout
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.rollout.measured import measured_findings, tell_measured
from fleetctl.rollout.needs import survey_needs
from fleetctl.rollout.outcome import Outcome, unhealthy
from fleetctl.rollout.plan import Difference, Kind, Plan, difference
from fleetctl.rollout.replicas import deploy_replicas
from fleetctl.rollout.settle import settled_facts
from fleetctl.services.sides import as_filled
from fleetctl.services.target import Target, build_target
from fleetctl.transport.agent import Agent, open_agent

OnEvent = Callable[[dict[str, Any]], None]


def deploy_service(
    fleet: Fleet,
    host: Host,
    service_name: str,
    leaving: str | None,
    plan_only: bool,
    interrupt: Interrupt,
    on_event: OnEvent,
    fix: bool = False,
    blue_green: bool = False,
) -> Outcome:
    """Put ``service_name`` into its slot on ``host``, in place of ``leaving`` where that is named.

    With ``blue_green`` it starts beside the old one, which serves until it is proven. Where something is to change,
    doctor looks at the service first; with ``fix`` its remedies go into the unit.
    Raises ``FleetError`` with the exit codes of docs/architecture.md.
    """
    own, slot = host, host.services[service_name].slot
    if host.services[service_name].replicas:
        rest = (plan_only, interrupt, on_event, fix, blue_green)
        plain = host.services[service_name].model_copy(update={"replicas": []})
        single = host.model_copy(update={"services": {**host.services, service_name: plain}})
        return deploy_replicas(
            host,
            service_name,
            leaving,
            lambda name, before: deploy_service(fleet, single, name, before, *rest),
        )
    if blue_green:
        bluegreen.require_room(fleet, host, service_name)
    with open_agent(host) as agent:
        facts = settled_facts(agent, host, slot, plan_only, on_event)
        if host.services[service_name].nodes or spans(facts["slots"][slot]["state"]):
            from fleetctl.rollout.nodes import deploy_nodes

            return deploy_nodes(fleet, host, service_name, leaving, plan_only, interrupt, on_event, fix)
        host = filled = as_filled(own, facts)
        service = host.services[service_name]
        old = current_target(host, slot, facts)
        if leaving is not None:
            _check_leaving(host, slot, leaving, service_name, old)
        needs = survey_needs(fleet, host, service, agent, facts, on_event)
        new = base = build_target(
            fleet,
            host,
            service_name,
            needs.environment_path,
            needs.environment_digest,
            secrets_file=needs.secrets_file,
        )
        found = difference(host, slot, new, old, facts)
        beside = None
        if blue_green and (needs.changes or (found.changes and found.restart)):
            beside = bluegreen.beside(own, filled, slot, old, facts)
        if beside:
            host, service = beside, beside.services[service_name]
            new = base = build_target(
                fleet,
                host,
                service_name,
                needs.environment_path,
                needs.environment_digest,
                secrets_file=needs.secrets_file,
            )

        def compare(new: Target) -> Difference:
            found = difference(host, slot, new, old, facts)
            return bluegreen.in_words(found, host, slot, old) if beside and old else found

        def planned(new: Target, restart: bool) -> Plan:
            kind: Kind = "swap" if leaving else "deploy"
            whole = (kind, host, slot, new, old, service.deadlines)
            return Plan.for_slot(*whole, restart=restart, overlap=beside is not None, leaves=filled)

        found = compare(new)
        treatment = None
        if not service.is_router and (needs.changes or (found.changes and found.restart)):
            from fleetctl.rollout.treatment import admit, treat

            treatment = treat(fleet, host, service, agent, facts, needs, new, fix)
            new = treatment.target
            found = compare(new)
        changes = [*needs.changes, *(treatment.changes if treatment else []), *found.changes]
        if needs.changes and found.warnings:
            changes.append(f"restart {new.unit}: {'; '.join(found.warnings)}")
        outcome = Outcome(host.host, slot, service_name, service.mode, "unchanged", changes, found.diff)
        if not changes:
            if found.warnings:
                raise unhealthy(host, slot, new, found.warnings)
            return outcome
        plan = planned(new, found.restart)
        if plan_only:
            outcome.verdict = "planned"
            outcome.findings = [*shortages(needs.wants), *_findings(agent, plan, needs.pending)]
            outcome.findings += measured_findings(facts, host, slot)
            outcome.findings += treatment.findings if treatment else []
            return outcome
        tell_measured(facts, slot, on_event)
        require_room(host, needs.wants)
        if treatment:
            admit(treatment, on_event)
        needs.bring(on_event)
        if treatment and needs.pending:
            treatment = treat(fleet, host, service, agent, facts, replace(needs, pending=[]), base, fix)
            admit(treatment, on_event)
            new = treatment.target
            found = compare(new)
            plan = planned(new, found.restart)
        outcome.verdict = "done"
        if found.changes or found.warnings:
            needs.verify(on_event)
            outcome.result = run_rollout(agent, plan, interrupt, on_event)
        return outcome


def _check_leaving(host: Host, slot: str, leaving: str, service: str, old: Target | None) -> None:
    if old is None or (old.service not in (leaving, service)):
        held = f"{old.service} ({old.unit})" if old else "nothing"
        deploy = f"fleetctl deploy {host.host} --service {service}"
        fix = f"fleetctl swap {old.service} {service}" if old and not old.adopted else deploy
        raise FleetError(
            f"{leaving} is not what fills the slot; {held} is",
            where=f"{host.host}, slot {slot}",
            fix=fix,
            exit=Exit.PREFLIGHT,
        )


def _findings(agent: Agent, plan: Plan, pending: list[str]) -> list[dict[str, Any]]:
    """Preflight's findings, without those about paths that the deploy itself will bring."""
    found = agent.call("preflight", plan=plan.to_message(), timeout=60)["findings"]

    def is_expected(finding: dict[str, Any]) -> bool:
        lines = finding["evidence"] or [f"{finding['what']} {finding['where']}"]
        return all(any(path in line for path in pending) for line in lines)

    return [finding for finding in found if not is_expected(finding)]
