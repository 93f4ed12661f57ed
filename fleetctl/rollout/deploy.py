"""Put a service into its slot: the runbook of ``deploy`` and ``swap``.

facts → environment, models and unit as wanted → what would change → send and build what is missing → rollout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fleetctl.environment.room import require_room, shortages
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host
from fleetctl.rollout.current import Facts, current_target
from fleetctl.rollout.follow import run_rollout
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.rollout.needs import survey_needs
from fleetctl.rollout.plan import Kind, Plan, difference
from fleetctl.rollout.status import facts_arguments
from fleetctl.services.target import Target, build_target
from fleetctl.transport.agent import Agent, open_agent

OnEvent = Callable[[dict[str, Any]], None]


@dataclass
class Outcome:
    """What became of one slot: ``unchanged``, ``planned`` (``--plan``) or ``done``."""

    host: str
    slot: str
    service: str
    mode: str
    verdict: Literal["unchanged", "planned", "done"]
    changes: list[str] = field(default_factory=list)
    diff: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The outcome as one JSON object (``--json``)."""
        return dict(self.__dict__)


def deploy_service(
    fleet: Fleet,
    host: Host,
    service_name: str,
    leaving: str | None,
    plan_only: bool,
    interrupt: Interrupt,
    on_event: OnEvent,
    fix: bool = False,
) -> Outcome:
    """Put ``service_name`` into its slot on ``host``, in place of ``leaving`` where that is named.

    Where something is to change, doctor looks at the service first; with ``fix`` its remedies go into the unit.
    Raises ``FleetError`` with the exit codes of docs/architecture.md.
    """
    service = host.services[service_name]
    slot = service.slot
    with open_agent(host) as agent:
        facts = gather_facts(agent, host)
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
        treatment = None
        if needs.changes or (found.changes and found.restart):
            from fleetctl.rollout.treatment import admit, treat

            treatment = treat(fleet, host, service, agent, facts, needs, new, fix)
            new = treatment.target
            found = difference(host, slot, new, old, facts)
        changes = [*needs.changes, *(treatment.changes if treatment else []), *found.changes]
        if needs.changes and found.warnings:
            changes.append(f"restart {new.unit}: {'; '.join(found.warnings)}")
        outcome = Outcome(host.host, slot, service_name, service.mode, "unchanged", changes, found.diff)
        if not changes:
            if found.warnings:
                raise unhealthy(host, slot, new, found.warnings)
            return outcome
        kind: Kind = "swap" if leaving else "deploy"
        plan = Plan.for_slot(kind, host, slot, new, old, service.deadlines, restart=found.restart)
        if plan_only:
            outcome.verdict = "planned"
            outcome.findings = [*shortages(needs.wants), *_findings(agent, plan, needs.pending)]
            outcome.findings += treatment.findings if treatment else []
            return outcome
        require_room(host, needs.wants)
        if treatment:
            admit(treatment, on_event)
        needs.bring(on_event)
        if treatment and needs.pending:
            treatment = treat(fleet, host, service, agent, facts, replace(needs, pending=[]), base, fix)
            admit(treatment, on_event)
            new = treatment.target
            found = difference(host, slot, new, old, facts)
            plan = Plan.for_slot(kind, host, slot, new, old, service.deadlines, restart=found.restart)
        outcome.verdict = "done"
        if found.changes or found.warnings:
            needs.verify(on_event)
            outcome.result = run_rollout(agent, plan, interrupt, on_event)
        return outcome


def gather_facts(agent: Agent, host: Host) -> Facts:
    """The facts that a rollout is planned from, in one message."""
    return dict(agent.call("facts", **facts_arguments(host)))


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


def unhealthy(host: Host, slot: str, new: Target, warnings: list[str]) -> FleetError:
    """The error where nothing is to be changed and the service does not answer as it should."""
    return FleetError(
        "; ".join(warnings) + "; nothing was changed",
        where=f"{host.host}, slot {slot}",
        fix=f"fleetctl logs {host.host} {new.service}; a service that still loads needs only time, one that "
        f"hangs a restart (`systemctl restart {new.unit}` there) or fleetctl rollback",
        exit=Exit.PREFLIGHT,
    )


def _findings(agent: Agent, plan: Plan, pending: list[str]) -> list[dict[str, Any]]:
    """Preflight's findings, without those about paths that the deploy itself will bring."""
    found = agent.call("preflight", plan=plan.to_message(), timeout=60)["findings"]

    def is_expected(finding: dict[str, Any]) -> bool:
        lines = finding["evidence"] or [f"{finding['what']} {finding['where']}"]
        return all(any(path in line for path in pending) for line in lines)

    return [finding for finding in found if not is_expected(finding)]
