"""Doctor before a rollout: what is wrong with the service to be started, and the remedies that its unit gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleetctl.doctor.finding import Finding
from fleetctl.doctor.remedies import Applied, Prescription, package_line, prescribe
from fleetctl.doctor.rule import Context, ServiceView
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host, Service
from fleetctl.rollout.current import Facts
from fleetctl.rollout.needs import Needs
from fleetctl.services.target import Target, build_target
from fleetctl.transport.agent import Agent

OnEvent = Callable[[dict[str, Any]], None]
FACTS_S = 400.0


@dataclass(frozen=True)
class Treatment:
    """The ``target`` to start, with remedies in its unit; ``findings`` as preflight words them."""

    target: Target
    findings: list[dict[str, Any]]
    changes: list[str]
    refusal: FleetError | None


def admit(treatment: Treatment, on_event: OnEvent) -> None:
    """Say what doctor found and added, and raise its refusal (FleetError, exit 5) where there is one."""
    if treatment.refusal:
        raise treatment.refusal
    said = [f"remedy {Applied.from_dict(one).words}" for one in treatment.target.remedies]
    for text in [*said, *(f"{one['severity']}: {one['what']} ({one['id']})" for one in treatment.findings)]:
        on_event({"step": "doctor", "state": "info", "text": text})


def in_force(facts: Facts, slot: str, service: str) -> list[Applied]:
    """The remedies that the slot's last commit of this service had."""
    state = facts["slots"][slot]["state"] or {}
    recorded = state.get("remedies") if state.get("service") == service else None
    return [Applied.from_dict(one) for one in recorded or []]


def treat(
    fleet: Fleet,
    host: Host,
    service: Service,
    agent: Agent,
    facts: Facts,
    needs: Needs,
    target: Target,
    fix: bool,
) -> Treatment:
    """Ask doctor's rules about ``target`` on its host, and put remedies into its unit.

    All of its errors' with ``fix`` or ``remedies: auto``, else those in force already. Changes nothing there.
    """
    kept = in_force(facts, service.slot, service.name)
    known = _facts(agent, host, service, facts, needs)
    context = Context(known, _bom(known, needs.environment_path), _view(host, service, needs, target, facts))
    found = prescribe(context, service, None if fix or service.remedies == "auto" else kept)
    found = replace(found, findings=tuple(one for one in found.findings if not _is_pending(one, needs)))
    treated = target
    if found.applied and not service.keep_unit:
        treated = _render(fleet, host, found, needs)
    carried = not found.applied or (treated.unit_text != target.unit_text)
    return Treatment(
        treated if carried else target,
        _words(host, service, found) + ([] if carried else [_not_carried(service, found)]),
        _changes(found.applied, kept, is_known=needs.environment_path not in needs.pending),
        _refusal(host, service, found, carried),
    )


def _facts(agent: Agent, host: Host, service: Service, facts: Facts, needs: Needs) -> dict[str, Any]:
    """``doctor.facts`` of the service alone, with what the plan's own facts have said already."""
    paths = [host.models[name].path for name in (service.model, service.drafter) if name]
    environment = needs.environment_path
    asked = [environment] if environment and environment not in needs.pending else []
    found = agent.call(
        "doctor.facts",
        timeout=FACTS_S,
        environments=asked,
        models=[path for path in paths if path not in needs.pending],
        units=[service.unit],
        slots={},
        toolkits=[service.env[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in service.env],
    )
    shared = {part: facts[part] for part in ("slots", "ports") if part in facts}
    return {**found, **shared, "inventory": {"gpus": host.gpus.model_dump()}}


def _bom(facts: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    from fleetctl.doctor.facts import bom_of

    return bom_of(facts, path)


def _view(host: Host, service: Service, needs: Needs, target: Target, facts: Facts) -> ServiceView:
    import fleetctl.doctor.rules  # noqa: F401  registers the rules
    from fleetctl.doctor.subjects import service_view

    text = target.unit_text or facts["units"].get(service.unit, {}).get("text") or ""
    return service_view(host, service, needs.environment_path, text)


def _is_pending(found: Finding, needs: Needs) -> bool:
    """Whether a finding is only about what the deploy itself will bring."""
    return any(found.where.startswith(path) for path in needs.pending)


def _render(fleet: Fleet, host: Host, found: Prescription, needs: Needs) -> Target:
    services = {**host.services, found.service.name: found.service}
    return build_target(
        fleet,
        host.model_copy(update={"services": services}),
        found.service.name,
        needs.environment_path,
        needs.environment_digest,
        [one.to_dict() for one in found.applied],
        needs.secrets_file,
    )


def _changes(applied: Sequence[Applied], kept: Sequence[Applied], is_known: bool) -> list[str]:
    """What becomes of remedies; of an environment that is not there yet nobody knows which causes are gone."""
    fresh = [f"add the remedy {one.words}" for one in applied if one not in kept]
    gone = [f"drop the remedy {one.words} (its cause is gone)" for one in kept if one not in applied]
    return fresh + (gone if is_known else [])


def _words(host: Host, service: Service, found: Prescription) -> list[dict[str, Any]]:
    """The findings as preflight's, errors and warnings; each with the way on."""
    return [
        {**one.to_dict(), "id": one.rule, "fix": _way_on(host, service, found, one)}
        for one in found.findings
        if one.severity != "info"
    ]


def _way_on(host: Host, service: Service, found: Prescription, one: Finding) -> str:
    offer = next((each for each in found.offered if each.rule == one.rule), None)
    spec = host.environments[service.environment].spec
    parts = [f"--fix adds {offer.words.partition(': ')[2]}"] if offer else []
    parts += [one.remedy.text, package_line(one.remedy.packages, spec), *one.remedy.commands[:1]]
    parts += [note for note in found.notes if note.startswith(f"{one.rule}: ")]
    return "; ".join(part for part in parts if part)


def _refusal(host: Host, service: Service, found: Prescription, carried: bool) -> FleetError | None:
    """Why the service must not be started as it is; None where nothing forbids it."""
    where = f"{host.host}, slot {service.slot}"
    if not carried:
        wrong = _not_carried(service, found)
        return FleetError(wrong["what"], where, wrong["fix"], exit=Exit.PREFLIGHT)
    errors = found.errors
    if not errors:
        return None
    evidence = [
        f"{one.rule}: {one.what}" + "".join(f" | {line}" for line in one.evidence[:2]) for one in errors
    ]
    more = f", and {len(errors) - 1} more errors" if len(errors) > 1 else ""
    hopeless = [one for one in errors if one.rule not in {each.rule for each in found.offered}]
    if hopeless:
        fix = _way_on(host, service, found, hopeless[0])
        what = f"doctor: {hopeless[0].what}{more}; nothing was changed"
        return FleetError(what, where, fix or f"fleetctl doctor {host.host}", evidence, Exit.PREFLIGHT)
    adds = "; ".join(one.words for one in found.offered)
    fix = f"the same command with --fix adds {adds}; or `remedies: auto` in the service {service.name}"
    fix += "".join(f"; or {line}" for one in errors[:1] if (line := _packages(host, service, one)))
    what = f"doctor: {errors[0].what}{more}; nothing was changed"
    return FleetError(what, where, fix, evidence, Exit.PREFLIGHT)


def _not_carried(service: Service, found: Prescription) -> dict[str, Any]:
    """The finding where a unit's text is not fleetctl's to put a remedy into."""
    wanted = "; ".join(one.words for one in found.applied)
    source = "the host's own" if service.keep_unit else f"made by {service.template}, which does not take it"
    what = f"{service.name} needs a remedy, and its unit is {source}"
    fix = f"add it by hand: {wanted}"
    return {
        "id": "remedy-by-hand",
        "severity": "error",
        "what": what,
        "where": service.unit,
        "fix": fix,
        "evidence": [],
    }


def _packages(host: Host, service: Service, one: Finding) -> str:
    return package_line(one.remedy.packages, host.environments[service.environment].spec)
