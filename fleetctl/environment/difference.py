"""One difference between two environments, and the step that takes it away: data for output, plans and JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
Do = Literal["overlay", "install", "remove", "reinstall", "rebuild", "none"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


class Group(IntEnum):
    """What a difference breaks, the worst first."""

    ABI = 0
    MISSING = 1
    VERSION = 2
    DRIFT = 3
    FACT = 4


@dataclass(frozen=True)
class Step:
    """How B becomes like A in one respect.

    ``distributions`` are those that come (``overlay``: from A; ``install``: from an index or a wheelhouse;
    ``reinstall``: from their own wheel; ``rebuild``: made anew on B's host, all of them where none is named)
    or, for ``remove``, go. ``remove`` are distributions that an overlay replaces under another name, ``paths``
    copies inside a package, relative to site-packages. ``why`` is one sentence.
    """

    do: Do
    distributions: tuple[str, ...] = ()
    why: str = ""
    remove: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The step as one JSON object; empty lists but ``distributions`` are left out."""
        more = {key: list(value) for key, value in (("remove", self.remove), ("paths", self.paths)) if value}
        return {"do": self.do, "distributions": list(self.distributions), **more, "why": self.why}


NOTHING = Step("none")


@dataclass(frozen=True)
class Difference:
    """``id`` of its kind, ``subject`` (a distribution, or ""), ``what`` it breaks, and what was seen."""

    id: str
    group: Group
    severity: Severity
    subject: str
    what: str
    evidence: tuple[str, ...] = ()
    step: Step = NOTHING

    @property
    def rank(self) -> tuple[int, int, str, str]:
        """Sorts by what is broken, the worst first."""
        return self.group, SEVERITIES.index(self.severity), self.id, self.subject

    def to_dict(self) -> dict[str, Any]:
        """The difference as one JSON object."""
        return {
            "id": self.id,
            "group": self.group.name.lower(),
            "severity": self.severity,
            "subject": self.subject,
            "what": self.what,
            "evidence": list(self.evidence),
            "step": self.step.to_dict(),
        }


def listed(names: Iterable[str], at_most: int = 6) -> str:
    """``a, b, c and 4 more``."""
    every = list(names)
    more = len(every) - at_most
    return ", ".join(every[:at_most]) + (f" and {more} more" if more > 0 else "")
