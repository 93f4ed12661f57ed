"""Words in a log that say what went wrong: matching only, the words themselves come with the plan."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

EXCEPTION = re.compile(
    r"^(?:\[[^]]*\] )?(?:[\w.]+\.)?\w*(?:Error|Exception|OutOfResources|Interrupt)\b(?:: |$)"
)
# A logger's line below an error's level; a line with a time and no level, unless it names an error.
NOTE = re.compile(
    r"^(?:\([^)]*\) ?)?(?:\d{4}-\d\d-\d\d[T ][\d:.,+Z-]*(?: - [\w.]+)?[ |-]*)?"
    r"(?:(?:\[[^]]*\] ?)?\[?(?:DEBUG|INFO|WARNING|WARN|NOTICE)\b"
    r"|\[\d{4}-\d\d-\d\d [^]]*\] (?!.*(?:rror\b|xception|raceback|atal|annot |ailed|CRITICAL|Killed)))"
)
# One of these stands in nearly every line that says that something is wrong, and in few others.
SUSPICIOUS = (
    "rror", "ailed", "xception", "atal", "annot ", "CRITICAL", "status=", "NVRM", "WARN", "Errno", "CUDA_",
    "illed", "ot found", "nvalid", "nsupport", "not support", "sigquit", "SIGQUIT", "o such file", "Traceback",
    "mismatch", " memory", "GPU", "does not", "No ", "oom", "unexpected", "unrecognized",
)  # fmt: skip

Signature = Dict[str, Any]


class Pattern:
    """A regular expression, compiled when a line is first held against it; one that is none never matches."""

    def __init__(self, text: Any) -> None:
        self._text = text
        self._compiled: "Optional[re.Pattern[str]]" = None

    def search(self, line: str) -> bool:
        """Whether it is found in the line."""
        if self._text is not None:
            try:
                self._compiled = re.compile(self._text)
            except (re.error, TypeError):
                self._compiled = None
            self._text = None
        return self._compiled is not None and self._compiled.search(line) is not None


class Group:
    """Signatures in order, found by the words of which one stands in each line that a pattern matches."""

    def __init__(self) -> None:
        self._entries: List[Tuple[Pattern, Signature]] = []
        self._words: List[Tuple[str, int]] = []
        self._wordless: List[int] = []

    def add(self, pattern: Pattern, signature: Signature) -> None:
        """One more, behind the others."""
        at = len(self._entries)
        self._entries.append((pattern, signature))
        words = signature.get("words") or ()
        self._words += [(str(word), at) for word in words]
        self._wordless += [] if words else [at]

    def first(self, line: str) -> Optional[Signature]:
        """The first whose pattern is found in the line."""
        possible = {at for word, at in self._words if word in line}
        possible.update(self._wordless)
        for at in sorted(possible):
            pattern, signature = self._entries[at]
            if pattern.search(line):
                return signature
        return None


class Signatures:
    """A table of signatures; few of its patterns are ever held against a line, and only those are compiled.

    ``fatal`` ones end a wait at once. ``likely`` ones name a cause after the fact, in lines that look
    suspicious (``thorough``: in any line). ``fragments``: a line with none of them matches nothing; they hold
    no digits.
    """

    def __init__(self, table: Sequence[Signature], thorough: bool = False) -> None:
        self._harmless: List[Pattern] = []
        self._known = Group()
        self._fatal = Group()
        certain: List[Sequence[str]] = []
        for signature in table:
            pattern = Pattern(signature.get("pattern"))
            if signature.get("verdict") == "harmless":
                self._harmless.append(pattern)
                continue
            self._known.add(pattern, signature)
            if signature.get("verdict") == "fatal":
                self._fatal.add(pattern, signature)
            if thorough or signature.get("verdict") == "fatal":
                certain.append(signature.get("words") or ())
        self.fragments = fragments(certain)

    def harmless(self, line: str) -> bool:
        """Whether the table says that this line may be ignored."""
        return any(pattern.search(line) for pattern in self._harmless)

    def suspicious(self, line: str) -> bool:
        """Whether the line may match at all; false for most lines."""
        return not self.fragments or any(fragment in line for fragment in self.fragments)

    def fatal(self, line: str) -> Optional[Signature]:
        """The first signature that makes this line fatal; None for most lines."""
        return self._first(self._fatal, line)

    def match(self, line: str) -> Optional[Signature]:
        """The first signature of any kind but harmless that knows this line; no likely one knows a mere note."""
        found = self._first(self._known, line)
        return self.fatal(line) if found and found["verdict"] == "likely" and NOTE.match(line) else found

    def _first(self, group: Group, line: str) -> Optional[Signature]:
        if not self.suspicious(line):
            return None
        found = group.first(line)
        return None if found is None or self.harmless(line) else found

    def diagnose(self, lines: Iterable[str]) -> Optional[Signature]:
        """The first cause in a log, with its ``line``; None where nothing in it says why.

        What only follows from a failure (``consequence``: a parent that reports its dead child) counts where
        no cause is found. An exception that no signature knows is a cause too, as ``exception``.
        """
        consequence: Optional[Signature] = None
        exception: Optional[Signature] = None
        for line in lines:
            found = self.match(line)
            if found is not None and not found.get("consequence"):
                return {**found, "line": line.strip()}
            if found is not None and consequence is None:
                consequence = {**found, "line": line.strip()}
            if found is None and exception is None and EXCEPTION.match(line) and not self.harmless(line):
                exception = {"id": "exception", "verdict": "fatal", "reason": line.strip(), "fix": ""}
                exception["line"] = line.strip()
        return exception or consequence


def fragments(words: Sequence[Sequence[str]]) -> Tuple[str, ...]:
    """Texts of which one stands in each of the words; none where a signature has no words."""
    if not all(words):
        return ()
    found = list(SUSPICIOUS)
    for word in sorted({word for each in words for word in each}, key=lambda word: (len(word), word)):
        if not any(fragment in word for fragment in found):
            found.append(max(re.split(r"\d+", word), key=len))
    return tuple(found)


def diagnose(lines: Iterable[str], table: Sequence[Signature]) -> Optional[Signature]:
    """:meth:`Signatures.diagnose` for one log."""
    return Signatures(table).diagnose(lines)
