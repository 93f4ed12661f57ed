"""What rules find wrong with a service before it starts, and the service with their remedies beneath its own words.

Pure: facts in, a prescription out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleetctl.doctor.finding import Finding, Remedy
from fleetctl.doctor.known import at
from fleetctl.doctor.rule import RULES, Context, Rule, ServiceView, examine
from fleetctl.inventory.models import Argument, Service

ROUNDS = 4
LEFT_FAMILIES = {"SVC"}
CARD_FAMILIES = {"ARCH", "DRV", "GPU"}
LEFT_RULES = {
    "gpu-lost",
    "gpu-missing",
    "gpu-memory-held",
    "model-missing",
    "net-port-stranger",
    "net-port-shared",
}
"""What the rollout's own preflight looks at closer to its start, or what the rollout itself puts right."""
HOST_WIDE = {"gpu-count", "sys-disk-full"}
"""Faults of the host that need not touch this service: to be told, not to forbid its start."""


@dataclass(frozen=True)
class Applied:
    """A remedy that a service's unit carries: what it adds beneath the service's own ``args`` and ``env``."""

    rule: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, recorded: Mapping[str, Any]) -> Applied:
        """From a slot's state."""
        return cls(str(recorded["rule"]), dict(recorded["arguments"]), dict(recorded["variables"]))

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object."""
        return {"rule": self.rule, "arguments": dict(self.arguments), "variables": dict(self.variables)}

    @property
    def words(self) -> str:
        """``pkg-structural-tag: --grammar-backend none``"""
        return f"{self.rule}: {added(self.arguments, self.variables)}"


@dataclass(frozen=True)
class Prescription:
    """What came of the rules: the ``service`` with the remedies in it, those ``applied``, and what still stands.

    ``offered``: remedies of errors that nobody has asked for yet; ``notes``: what an operator must know of them.
    """

    service: Service
    applied: tuple[Applied, ...] = ()
    offered: tuple[Applied, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def errors(self) -> list[Finding]:
        """The findings that forbid the start."""
        return [one for one in self.findings if one.severity == "error"]


def prescribe(
    context: Context,
    service: Service,
    accepted: Collection[Applied] | None,
    rules: Mapping[str, Rule] = RULES,
) -> Prescription:
    """Examine ``context`` (whose service is ``service``) and put in the remedies of its errors.

    ``accepted``: those that may go in, None for all. What the service's own ``args`` and ``env`` say stands.
    A remedy can uncover another fault, so the rules are asked again with it in place, a few times at most.
    """
    view = context.service
    assert view is not None
    asked = _asked(context, view, rules)
    applied: dict[str, Applied] = {}
    offered: dict[str, Applied] = {}
    notes: list[str] = []
    findings: list[Finding] = []
    for _ in range(ROUNDS):
        now = with_remedies(view, service, applied.values())
        found = examine(Context(context.facts, context.bom, now), asked).findings
        findings = [
            _told(one) for one in found if one.severity != "error" or not is_in_effect(one.remedy, now)
        ]
        fresh = [_applied(one, service, notes) for one in findings if one.severity == "error"]
        wanted = {one.rule: one for one in fresh if one is not None and one.rule not in applied}
        allowed = {name: one for name, one in wanted.items() if accepted is None or one in accepted}
        offered |= {name: one for name, one in wanted.items() if name not in allowed}
        if not allowed:
            break
        applied |= allowed
    return Prescription(
        remedied(service, applied.values()),
        tuple(applied.values()),
        tuple(one for name, one in offered.items() if name not in applied),
        tuple(findings),
        tuple(dict.fromkeys(notes)),
    )


def _asked(context: Context, view: ServiceView, rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """The rules that concern a start. Cards and driver matter to what uses them: a service with GPUs, CUDA in it."""
    uses_cuda = bool(view.gpus) and bool(at(context.bom or {}, "abi", "cuda"))
    left = LEFT_FAMILIES if uses_cuda else LEFT_FAMILIES | CARD_FAMILIES
    return {one.id: one for one in rules.values() if one.family not in left and one.id not in LEFT_RULES}


def _told(found: Finding) -> Finding:
    return (
        replace(found, severity="warning") if found.rule in HOST_WIDE and found.severity == "error" else found
    )


def _applied(found: Finding, service: Service, notes: list[str]) -> Applied | None:
    """What an error's remedy can add to the service; None where it adds nothing. What its own words forbid is noted."""
    remedy = found.remedy
    against = {
        name: value for name, value in remedy.arguments.items() if service.args.get(name, value) != value
    }
    against_env = {
        name: value for name, value in remedy.variables.items() if service.env.get(name, value) != value
    }
    if against or against_env:
        own = added(
            {name: service.args[name] for name in against}, {name: service.env[name] for name in against_env}
        )
        notes.append(f"{found.rule}: the service's own {own} stands against {added(against, against_env)}")
    arguments = {name: value for name, value in remedy.arguments.items() if name not in service.args}
    variables = {name: value for name, value in remedy.variables.items() if name not in service.env}
    return Applied(found.rule, arguments, variables) if arguments or variables else None


def is_in_effect(remedy: Remedy, view: ServiceView) -> bool:
    """Whether a service has all of a remedy's arguments and variables already."""
    has = all(_same(view.arguments.get(name, False), value) for name, value in remedy.arguments.items())
    set_ = all(view.variables.get(name) == value for name, value in remedy.variables.items())
    return remedy.is_appliable and has and set_


def _same(given: Argument, wanted: Argument) -> bool:
    return given is wanted if isinstance(wanted, bool) else str(given) == str(wanted)


def remedied(service: Service, applied: Iterable[Applied]) -> Service:
    """The service with remedies beneath its own ``args`` and ``env``; of two that differ the first counts."""
    arguments: dict[str, Argument] = dict(service.args)
    variables: dict[str, str] = dict(service.env)
    for one in applied:
        arguments = {**one.arguments, **arguments}
        variables = {**one.variables, **variables}
    return service.model_copy(update={"args": arguments, "env": variables})


def with_remedies(view: ServiceView, service: Service, applied: Iterable[Applied]) -> ServiceView:
    """A service's view with remedies in it."""
    changed = remedied(service, applied)
    arguments = {
        **view.arguments,
        **{name: value for name, value in changed.args.items() if name not in service.args},
    }
    variables = {
        **view.variables,
        **{name: value for name, value in changed.env.items() if name not in service.env},
    }
    return replace(view, arguments=arguments, variables=variables)


def added(arguments: Mapping[str, Argument], variables: Mapping[str, str]) -> str:
    """``--grammar-backend none, NCCL_P2P_DISABLE=1``"""
    return ", ".join(
        [
            *(_flag(name, value) for name, value in arguments.items()),
            *(f"{k}={v}" for k, v in variables.items()),
        ]
    )


def _flag(name: str, value: Argument) -> str:
    if value is False:
        return f"no --{name}"
    if value is True:
        return f"--{name}"
    return f"--{name} {' '.join(map(str, value)) if isinstance(value, list) else value}"


def package_line(packages: Sequence[str], spec: str | None) -> str:
    """Where packages are to be added; empty where there are none."""
    if not packages:
        return ""
    named = ", ".join(packages)
    if spec is None:
        return f"{named}: `fleetctl env overlay` makes an environment with it out of the one there"
    return f"{named}: as a line of requirements (or of an overlay's distributions) in envs/{spec}.yaml"
