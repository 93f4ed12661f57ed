"""A service over several hosts: one rollout of all its nodes, and of those that the service before it had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from fleetctl.environment.room import require_room, shortages
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Deadlines, Host
from fleetctl.inventory.nodes import node_host
from fleetctl.rollout.current import Facts, current_target, spans
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.rollout.needs import Needs, survey_needs
from fleetctl.rollout.outcome import Outcome, unhealthy
from fleetctl.rollout.plan import Difference, Kind, Plan, difference
from fleetctl.rollout.settle import gather_facts
from fleetctl.rollout.together import Node, Together, gates
from fleetctl.rollout.treatment import Treatment, admit, treat
from fleetctl.services.target import Target, build_target, recorded_target, vacant_target
from fleetctl.transport.agent import Agent, open_agent
from fleetctl.transport.fleet import on_hosts

OnEvent = Callable[[dict[str, Any]], None]


@dataclass
class Part:
    """One host's share: what is there, what is wanted, what would change."""

    host: Host
    agent: Agent
    facts: Facts
    old: Target | None
    new: Target
    found: Difference
    needs: Needs | None = None
    treatment: Treatment | None = None

    @property
    def changes(self) -> list[str]:
        """In words, each with the host."""
        every = [*(self.needs.changes if self.needs else []), *self.found.changes]
        every += self.treatment.changes if self.treatment else []
        return [f"{self.host.name}: {change}" for change in every]


def refuse_follower(host: Host, slot: str, state: Facts | None) -> None:
    """FleetError (exit 5) where a slot holds a node of a service that another host leads."""
    nodes = spans(state)
    if nodes and nodes[0] != host.name:
        service = (state or {}).get("service")
        raise FleetError(
            f"slot {slot} holds a node of {service}, which {nodes[0]} leads; nothing was changed",
            where=f"{host.name}, slot {slot}",
            fix=f"change it there, for all of its hosts: fleetctl swap {service} NAME --host {nodes[0]}",
            exit=Exit.PREFLIGHT,
        )


def deploy_nodes(
    fleet: Fleet,
    head: Host,
    service_name: str,
    leaving: str | None,
    plan_only: bool,
    interrupt: Interrupt,
    on_event: OnEvent,
    fix: bool,
) -> Outcome:
    """Put a service onto all of its hosts, and off those that only the service before it had; all or none.

    Raises ``FleetError`` with the exit codes of docs/architecture.md.
    """
    service = head.services[service_name]
    slot, nodes = service.slot, service.nodes or [head.name]
    with _sessions(fleet, head, slot, nodes) as agents:

        def survey(host: Host) -> Part:
            agent = agents[host.name]
            facts = gather_facts(agent, host)
            old = current_target(host, slot, facts)
            if host.name not in nodes:
                return _part(host, slot, agent, facts, old, vacant_target(slot))
            needs = survey_needs(fleet, host, service, agent, facts, _of(host, on_event))
            new = build_target(
                fleet,
                host,
                service_name,
                needs.environment_path,
                needs.environment_digest,
                secrets_file=needs.secrets_file,
            )
            return _part(host, slot, agent, facts, old, new, needs)

        hosts = [_view(fleet, head, service_name, name) for name in agents]
        parts = _each(hosts, survey)
        _check_leaving(parts[0], slot, leaving, service_name)
        if any(part.changes for part in parts):
            for part in parts:
                if part.needs:
                    part.treatment = _treat(fleet, part, service_name, fix)
        changes = [change for part in parts for change in part.changes]
        diff = [line for part in parts for line in part.found.diff]
        outcome = Outcome(head.name, slot, service_name, service.mode, "unchanged", changes, diff)
        if not changes:
            if warnings := [line for part in parts for line in part.found.warnings]:
                raise unhealthy(head, slot, parts[0].new, warnings)
            return outcome
        if plan_only:
            outcome.verdict = "planned"
            outcome.findings = [finding for part in parts for finding in _findings(part)]
            return outcome
        _bring(parts, on_event)
        kind: Kind = "swap" if leaving else "deploy"
        outcome.result = run_parts(kind, parts, slot, service.deadlines, interrupt, on_event)
        outcome.verdict = "done"
        return outcome


def rollback_nodes(
    fleet: Fleet,
    host: Host,
    slot: str,
    nodes: Sequence[str],
    plan_only: bool,
    interrupt: Interrupt,
    on_event: OnEvent,
) -> Outcome:
    """Put back on each of ``nodes`` (``host`` first) what filled its slot before; all or none."""

    def before(host: Host, facts: Facts) -> Target:
        previous = (facts["slots"][slot]["state"] or {}).get("previous")
        adopted = bool(previous and previous.get("adopted"))
        return recorded_target(host, slot, previous, adopted=adopted) if previous else vacant_target(slot)

    return _change("rollback", fleet, host, slot, nodes, before, plan_only, interrupt, on_event)


def empty_nodes(
    fleet: Fleet,
    host: Host,
    slot: str,
    nodes: Sequence[str],
    plan_only: bool,
    interrupt: Interrupt,
    on_event: OnEvent,
) -> Outcome:
    """Leave nothing in the slot of each of ``nodes`` (``host`` first); all or none."""

    def nothing(host: Host, facts: Facts) -> Target:
        return vacant_target(slot)

    return _change("stop", fleet, host, slot, nodes, nothing, plan_only, interrupt, on_event)


def _change(
    kind: Kind,
    fleet: Fleet,
    host: Host,
    slot: str,
    nodes: Sequence[str],
    wanted: Callable[[Host, Facts], Target],
    plan_only: bool,
    interrupt: Interrupt,
    on_event: OnEvent,
) -> Outcome:
    """Put what the host itself tells to be wanted into each one's slot."""
    with _sessions(fleet, host, slot, nodes) as agents:

        def survey(host: Host) -> Part:
            agent = agents[host.name]
            facts = gather_facts(agent, host)
            old = current_target(host, slot, facts)
            return _part(host, slot, agent, facts, old, wanted(host, facts))

        parts = _each([fleet.hosts[name] if name != host.name else host for name in agents], survey)
        new, old = parts[0].new, parts[0].old
        about = old if new.is_vacant and old else new
        changes = [change for part in parts for change in part.changes]
        diff = [line for part in parts for line in part.found.diff]
        outcome = Outcome(host.name, slot, about.service, about.mode, "planned", changes, diff)
        outcome.emptied = new.is_vacant
        if not plan_only:
            limits = Deadlines(**(about.deadlines or {}))
            outcome.result = run_parts(kind, parts, slot, limits, interrupt, on_event)
            outcome.verdict = "done"
        return outcome


def run_parts(
    kind: Kind,
    parts: Sequence[Part],
    slot: str,
    limits: Deadlines,
    interrupt: Interrupt,
    on_event: OnEvent,
) -> dict[str, Any]:
    """Carry all parts out as one; the first one's result, and each host's under ``hosts``."""
    at = gates(limits)
    nodes = []
    for part in parts:
        whole = Plan.for_slot(kind, part.host, slot, part.new, part.old, limits)
        nodes.append(Node(part.host, part.agent, replace(whole, gates=at)))
    results = Together(nodes, interrupt, on_event).run()
    return {**results[parts[0].host.name], "hosts": results}


def _of(host: Host, on_event: OnEvent) -> OnEvent:
    """Events with their host."""
    return lambda event: on_event({"host": host.name, **event})


@contextmanager
def _sessions(fleet: Fleet, head: Host, slot: str, nodes: Sequence[str]) -> Iterator[dict[str, Agent]]:
    """A session with each node, the first one first, and with the others that its present service spans."""
    with ExitStack() as stack:
        agents = {head.name: stack.enter_context(open_agent(head))}
        state = gather_facts(agents[head.name], head)["slots"][slot]["state"]
        refuse_follower(head, slot, state)
        more = [name for name in dict.fromkeys([*nodes, *spans(state)]) if name not in agents]
        if unknown := [name for name in more if name not in fleet.hosts]:
            raise FleetError(
                f"{unknown[0]}, a node of what fills the slot, is not in the inventory",
                where=f"{head.name}, slot {slot}",
                fix=f"add inventories/{unknown[0]}.yaml again",
            )
        opened = on_hosts(
            [fleet.hosts[name] for name in more], lambda host: stack.enter_context(open_agent(host))
        )
        for name, agent in opened.items():
            if isinstance(agent, FleetError):
                raise agent
            agents[name] = agent
        yield agents


def _view(fleet: Fleet, head: Host, service: str, name: str) -> Host:
    """A host as the service sees it; one that only the leaving service spans stays as it is."""
    nodes = head.services[service].nodes or [head.name]
    return node_host(fleet.hosts, head, service, name) if name in nodes else fleet.hosts[name]


def _each(hosts: Sequence[Host], survey: Callable[[Host], Part]) -> list[Part]:
    found = on_hosts(hosts, survey)
    for end in found.values():
        if isinstance(end, FleetError):
            raise end
    return [end for end in found.values() if isinstance(end, Part)]


def _part(
    host: Host,
    slot: str,
    agent: Agent,
    facts: Facts,
    old: Target | None,
    new: Target,
    needs: Needs | None = None,
) -> Part:
    return Part(host, agent, facts, old, new, difference(host, slot, new, old, facts), needs)


def _check_leaving(first: Part, slot: str, leaving: str | None, service: str) -> None:
    if leaving is not None and (first.old is None or first.old.service not in (leaving, service)):
        held = f"{first.old.service} ({first.old.unit})" if first.old else "nothing"
        raise FleetError(
            f"{leaving} is not what fills the slot; {held} is",
            where=f"{first.host.name}, slot {slot}",
            fix=f"fleetctl deploy {first.host.name} --service {service}",
            exit=Exit.PREFLIGHT,
        )


def _treat(fleet: Fleet, part: Part, service: str, fix: bool) -> Treatment:
    assert part.needs is not None
    entry = part.host.services[service]
    treatment = treat(fleet, part.host, entry, part.agent, part.facts, part.needs, part.new, fix)
    part.new = treatment.target
    part.found = difference(part.host, entry.slot, part.new, part.old, part.facts)
    return treatment


def _findings(part: Part) -> list[dict[str, Any]]:
    needs, treatment = part.needs, part.treatment
    found = [*(shortages(needs.wants) if needs else []), *(treatment.findings if treatment else [])]
    return [{**finding, "what": f"{part.host.name}: {finding['what']}"} for finding in found]


def _bring(parts: Sequence[Part], on_event: OnEvent) -> None:
    """All that is missing anywhere is brought before anything is stopped anywhere."""
    for part in parts:
        if part.needs:
            require_room(part.host, part.needs.wants)
        if part.treatment:
            admit(part.treatment, _of(part.host, on_event))
    by_name = {part.host.name: part for part in parts}

    def bring(host: Host) -> None:
        part = by_name[host.name]
        if part.needs:
            part.needs.bring(_of(host, on_event))
            part.needs.verify(_of(host, on_event))

    ends = on_hosts([part.host for part in parts], bring)
    for end in ends.values():
        if isinstance(end, FleetError):
            raise end
