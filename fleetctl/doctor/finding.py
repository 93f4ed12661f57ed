"""What doctor says: a finding with its evidence, and a remedy as data that ``deploy`` can show and apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fleetctl.inventory.models import Argument

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
FAMILIES = ("ABI", "ARCH", "PKG", "DRV", "GPU", "MODEL", "SYS", "NET", "SVC", "CFG")


@dataclass(frozen=True)
class Remedy:
    """How to go on. ``text`` is for people; the rest is data, empty where nothing can be applied by itself.

    ``arguments`` of the service (name without dashes → value; False takes a flag out), ``variables`` of its
    environment, ``packages`` (pins) that its environment lacks, ``commands`` that a person runs on the host.
    """

    text: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def is_appliable(self) -> bool:
        """Whether ``deploy --fix`` can apply it: arguments and variables alone change only the unit."""
        return bool(self.arguments or self.variables)

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object."""
        return {
            "text": self.text,
            "arguments": dict(self.arguments),
            "variables": dict(self.variables),
            "packages": list(self.packages),
            "commands": list(self.commands),
        }


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: the rule that says so, what and where, what was seen, and what to do."""

    rule: str
    severity: Severity
    what: str
    where: str = ""
    evidence: tuple[str, ...] = ()
    remedy: Remedy = Remedy("")

    @property
    def family(self) -> str:
        """``ABI``, ``ARCH`` … of the rule's id."""
        return self.rule.split("-", 1)[0].upper()

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object (``--json``)."""
        return {
            "rule": self.rule,
            "family": self.family,
            "severity": self.severity,
            "what": self.what,
            "where": self.where,
            "evidence": list(self.evidence),
            "remedy": self.remedy.to_dict(),
        }
