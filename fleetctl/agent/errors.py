"""The agent's one expected error: it travels to the controller as the ``error`` object of a call."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

INPUT = 2
LOCKED = 4
PREFLIGHT = 5


class AgentError(Exception):
    """What went wrong, ``where`` on the host, the ``fix``, ``evidence`` lines and the exit code."""

    def __init__(
        self,
        what: str,
        where: str = "",
        fix: str = "",
        evidence: Optional[List[str]] = None,
        exit: int = INPUT,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix
        self.evidence = evidence or []
        self.exit = exit

    def to_dict(self) -> Dict[str, Any]:
        """The ``error`` object of docs/architecture.md."""
        return {
            "what": self.what,
            "where": self.where,
            "fix": self.fix,
            "evidence": self.evidence,
            "exit": self.exit,
        }
