"""Words in a log that say what went wrong: matching only, the words themselves come with the plan."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

EXCEPTION = re.compile(
    r"^(?:\[[^]]*\] )?(?:[\w.]+\.)?\w*(?:Error|Exception|OutOfResources|Interrupt)\b(?:: |$)"
)

Signature = Dict[str, Any]


class Signatures:
    """A table of signatures, compiled once. One that is no regular expression never matches."""

    def __init__(self, table: Sequence[Signature]) -> None:
        self._harmless: List["re.Pattern[str]"] = []
        self._fatal: List[Tuple["re.Pattern[str]", Signature]] = []
        for signature in table:
            try:
                pattern = re.compile(signature["pattern"])
            except (re.error, KeyError, TypeError):
                continue
            if signature.get("verdict") == "fatal":
                self._fatal.append((pattern, signature))
            else:
                self._harmless.append(pattern)

    def harmless(self, line: str) -> bool:
        """Whether the table says that this line may be ignored."""
        return any(pattern.search(line) for pattern in self._harmless)

    def fatal(self, line: str) -> Optional[Signature]:
        """The first signature that makes this line fatal; None for most lines."""
        for pattern, signature in self._fatal:
            if pattern.search(line):
                return None if self.harmless(line) else signature
        return None

    def diagnose(self, lines: Iterable[str]) -> Optional[Signature]:
        """The first cause in a log, with its ``line``; None where nothing in it says why.

        What only follows from a failure (``consequence``: a parent that reports its dead child) counts where
        no cause is found. An exception that no signature knows is a cause too, as ``exception``.
        """
        consequence: Optional[Signature] = None
        exception: Optional[Signature] = None
        for line in lines:
            found = self.fatal(line)
            if found is not None and not found.get("consequence"):
                return {**found, "line": line.strip()}
            if found is not None and consequence is None:
                consequence = {**found, "line": line.strip()}
            if found is None and exception is None and EXCEPTION.match(line) and not self.harmless(line):
                exception = {"id": "exception", "verdict": "fatal", "reason": line.strip(), "fix": ""}
                exception["line"] = line.strip()
        return exception or consequence


def diagnose(lines: Iterable[str], table: Sequence[Signature]) -> Optional[Signature]:
    """:meth:`Signatures.diagnose` for one log."""
    return Signatures(table).diagnose(lines)
