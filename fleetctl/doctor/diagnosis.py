"""What doctor says of one host: all its contexts examined, equal findings merged, the worst first. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetctl.doctor.finding import SEVERITIES, Finding, Severity
from fleetctl.doctor.rule import RULES, Context, Rule, examine
from fleetctl.errors import FleetError

SCHEMA = 1


@dataclass(frozen=True)
class Said:
    """A finding, with the places where it holds and the services or environments that it is ``of`` (empty: the
    host itself, or a log)."""

    finding: Finding
    where: tuple[str, ...] = ()
    of: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object: the finding's, with ``where`` as a list and ``of``."""
        return {**self.finding.to_dict(), "where": list(self.where), "of": list(self.of)}


@dataclass(frozen=True)
class Diagnosis:
    """One host (or log, or file of facts) by ``name``; ``examined``: labels of what was looked at; ``passed``:
    ids of the rules that found nothing anywhere; ``not_made``: rule → why it could not be asked."""

    name: str
    said: tuple[Said, ...] = ()
    examined: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    not_made: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def count(self, severity: Severity) -> int:
        """How many findings are so bad."""
        return sum(one.finding.severity == severity for one in self.said)

    @property
    def has_error(self) -> bool:
        """Whether an error stands: exit 5."""
        return self.count("error") > 0

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object of ``doctor --json``."""
        return {
            "host": self.name,
            "examined": list(self.examined),
            "findings": [one.to_dict() for one in self.said],
            "counts": {severity: self.count(severity) for severity in SEVERITIES},
            "passed": list(self.passed),
            "not_made": dict(self.not_made),
            "error": None,
        }


def diagnose(
    name: str,
    contexts: Sequence[tuple[str, Context]],
    findings: Iterable[Finding] = (),
    rules: Mapping[str, Rule] = RULES,
) -> Diagnosis:
    """Ask every rule of each context (by label). ``findings`` of a log come first among equals."""
    held = [("", one) for one in findings]
    not_made: dict[str, str] = {}
    for label, context in contexts:
        report = examine(context, rules)
        held += [(label, one) for one in report.findings]
        not_made |= report.not_made
    found = {one.rule for _, one in held}
    return Diagnosis(
        name=name,
        said=tuple(merge(held, sum(bool(label) for label, _ in contexts))),
        examined=tuple(label for label, _ in contexts if label),
        passed=tuple(one for one in rules if one not in found) if contexts else (),
        not_made=not_made,
        facts=contexts[0][1].facts if contexts else {},
    )


def merge(held: Iterable[tuple[str, Finding]], subjects: int = 0) -> list[Said]:
    """Findings that say the same of several places, services or environments as one each, worst first.

    One that is an error here and a warning there is an error. What holds of the host itself (label ""), or of all
    its ``subjects``, is ``of`` nothing.
    """
    groups: dict[str, list[tuple[str, Finding]]] = {}
    for label, finding in held:
        key = [finding.rule, finding.what, finding.remedy.to_dict()]
        groups.setdefault(json.dumps(key, default=str), []).append((label, finding))
    made = [_merged(group, subjects) for group in groups.values()]
    return sorted(made, key=lambda one: SEVERITIES.index(one.finding.severity))


def _merged(group: Sequence[tuple[str, Finding]], subjects: int) -> Said:
    first = min((finding for _, finding in group), key=lambda one: SEVERITIES.index(one.severity))
    where = _unique(finding.where for _, finding in group)
    evidence = _unique(line for _, finding in group for line in finding.evidence)
    labels = _unique(label for label, _ in group)
    of = () if any(not label for label, _ in group) or len(labels) == subjects > 1 else labels
    whole = Finding(first.rule, first.severity, first.what, ", ".join(where), evidence, first.remedy)
    return Said(whole, where, of)


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))


def document(results: Mapping[str, Diagnosis | FleetError]) -> dict[str, Any]:
    """The one JSON document of ``doctor --json``; a host that failed has its ``error`` and the same keys."""
    hosts = [
        {**Diagnosis(name).to_dict(), "error": one.to_dict()}
        if isinstance(one, FleetError)
        else one.to_dict()
        for name, one in results.items()
    ]
    return {"schema": SCHEMA, "hosts": hosts}
