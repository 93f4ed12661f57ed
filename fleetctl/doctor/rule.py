"""Rules: small pure functions of what is known, each with an id, a severity, a reason and a source.

A module of ``fleetctl/doctor/rules/`` holds one family; its functions register themselves by ``@rule``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetctl.doctor.finding import FAMILIES, SEVERITIES, Finding, Remedy, Severity
from fleetctl.inventory.models import Argument

Json = Mapping[str, Any]


@dataclass(frozen=True)
class ServiceView:
    """A service as rules see it: ``arguments`` as the engine gets them, GPUs by index, paths on the host."""

    name: str
    engine: str
    mode: str
    unit: str
    port: int
    gpus: Sequence[int]
    arguments: Mapping[str, Argument]
    variables: Mapping[str, str]
    environment: str
    model: str
    drafter: str | None = None


@dataclass(frozen=True)
class Context:
    """What is known of one host. ``facts``: the ``doctor.facts`` of docs/architecture.md; ``bom``: the BOM of the
    environment examined; ``service``: the one examined. What is None was not asked for or could not be had."""

    facts: Json = field(default_factory=dict)
    bom: Json | None = None
    service: ServiceView | None = None


@dataclass(frozen=True)
class Found:
    """What a rule yields; the rule's own severity unless it says another."""

    what: str
    where: str = ""
    evidence: Sequence[str] = ()
    remedy: Remedy | None = None
    severity: Severity | None = None


Check = Callable[[Context], Iterable[Found]]


@dataclass(frozen=True)
class Rule:
    """One rule. ``remedy`` holds for each of its findings that brings none of its own; ``source``: where the
    knowledge is from."""

    id: str
    severity: Severity
    reason: str
    source: str
    remedy: Remedy
    check: Check

    @property
    def family(self) -> str:
        """``ABI``, ``ARCH`` …"""
        return self.id.split("-", 1)[0].upper()


RULES: dict[str, Rule] = {}


def rule(
    id: str, severity: Severity, *, reason: str, source: str, remedy: Remedy | str = ""
) -> Callable[[Check], Check]:
    """Register a check. ``reason`` in a sentence: why what it finds is a fault."""
    kept = Remedy(remedy) if isinstance(remedy, str) else remedy

    def register(check: Check) -> Check:
        made = Rule(id, severity, reason, source, kept, check)
        assert made.family in FAMILIES, id
        assert id not in RULES, f"two rules {id}"
        RULES[id] = made
        return check

    return register


@dataclass(frozen=True)
class Report:
    """What all rules say: findings, worst first; ``passed`` and ``not_made`` are ids of rules."""

    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    not_made: Mapping[str, str]


def examine(context: Context, rules: Mapping[str, Rule] = RULES) -> Report:
    """Ask every rule. One that fails is a finding of its own, which says why the check could not be made."""
    findings: list[Finding] = []
    passed: list[str] = []
    not_made: dict[str, str] = {}
    for one in rules.values():
        try:
            found = list(one.check(context))
        except Exception as error:
            not_made[one.id] = f"{type(error).__name__}: {error}"
            findings.append(_not_made(one, not_made[one.id]))
            continue
        if not found:
            passed.append(one.id)
        findings += [_finding(one, each) for each in found]
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return Report(tuple(findings), tuple(passed), not_made)


def _finding(one: Rule, found: Found) -> Finding:
    return Finding(
        one.id,
        found.severity or one.severity,
        found.what,
        found.where,
        tuple(found.evidence),
        found.remedy or one.remedy,
    )


def _not_made(one: Rule, why: str) -> Finding:
    what = f"the check {one.id} could not be made"
    return Finding(one.id, "info", what, evidence=(why,), remedy=Remedy("please report it with these facts"))
