"""The one exception an operator sees, and the exit codes of the contract in docs/architecture.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    """What the process's exit status says."""

    OK = 0
    BUG = 1
    OUTPUT_LOST = 1
    INPUT = 2
    UNREACHABLE = 3
    LOCKED = 4
    PREFLIGHT = 5
    ROLLED_BACK = 6
    NOT_RESTORED = 7
    PARTIAL = 8
    PLAN_CHANGES = 10
    INTERRUPTED = 130


@dataclass
class FleetError(Exception):
    """An error the operator can act on.

    ``what`` went wrong, ``where`` (file:line, host, unit), how to ``fix`` it, and the ``evidence``
    seen (journal lines, an answer's body). Never used for bugs in fleetctl itself.
    """

    what: str
    where: str = ""
    fix: str = ""
    evidence: list[str] = field(default_factory=list)
    exit: Exit = Exit.INPUT

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what

    def to_dict(self) -> dict[str, Any]:
        """The error as one JSON object (``--json``)."""
        return {
            "what": self.what,
            "where": self.where,
            "fix": self.fix,
            "evidence": self.evidence,
            "exit": int(self.exit),
        }
