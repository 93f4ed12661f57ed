"""A log cut into starts of the service, and what each start said."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from fleetctl.doctor.logs.traceback import Raised

LONGEST_SHOWN = 300
KEPT = 6
_ENGINE = re.compile(r"server_args=ServerArgs\(|(?:vLLM API server version|Initializing a V\d LLM engine)")
_SYSTEMD = re.compile(r"Start(?:ed|ing) \S|Scheduled restart job")
_READY = re.compile(r"The server is fired up and ready to roll|Application startup complete")

Mark = Literal["systemd", "engine"]


@dataclass(frozen=True)
class Said:
    """A line that says something, by number; ``signature`` where one knows it, ``raised`` for an exception."""

    number: int
    text: str
    signature: dict[str, Any] | None = None
    raised: Raised | None = None

    @property
    def shown(self) -> str:
        """As evidence."""
        text = self.text.strip()
        return f"line {self.number}: {text[:LONGEST_SHOWN]}{'…' if len(text) > LONGEST_SHOWN else ''}"


@dataclass
class Start:
    """What one start said, each kind in order, the first few of it."""

    number: int
    marks: set[Mark] = field(default_factory=set)
    is_sglang: bool = False
    causes: list[Said] = field(default_factory=list)
    exceptions: list[Said] = field(default_factory=list)
    announcements: list[Said] = field(default_factory=list)
    ends: list[Said] = field(default_factory=list)
    hints: list[Said] = field(default_factory=list)
    errors: list[Said] = field(default_factory=list)
    doubts: list[Said] = field(default_factory=list)
    counts: dict[str, list[Said]] = field(default_factory=dict)
    ready: int = 0

    @property
    def has_said(self) -> bool:
        """Whether anything in it is worth a finding."""
        return bool(self.causes or self.exceptions or self.announcements or self.ends)

    def saw_ready(self, text: str, number: int) -> None:
        """The server said that it is ready; SGLang's HTTP part says so too early."""
        match = _READY.search(text)
        if match and (not self.is_sglang or match[0].startswith("The server")):
            self.ready = number

    @property
    def cause(self) -> Said | None:
        """The first cause: a known one, unless an unknown exception ended the service before it; else an exception,
        and where there is none the first that only reports a failure."""
        unknown = _first(self.exceptions)
        known = _first([one for one in self.causes if not _is_late(one)])
        if known is None and (unknown is None or not self._is_over(unknown, _first(self.causes))):
            known = _first(self.causes)
        if known and unknown and self._is_over(unknown, known) and not _of_machine(known):
            return unknown
        return known or unknown or self._instead(_first(self.announcements) or _first(self.ends))

    def _instead(self, reported: Said | None) -> Said | None:
        """Where only a failure was reported: an error worded so before it; or any, where it never became ready."""
        if reported is None:
            return None if self.ready else _first(self.errors) or _first(self.doubts)
        before = _first(self.errors)
        return before if before and before.number < reported.number else reported

    def _is_over(self, unknown: Said, known: Said | None) -> bool:
        """Whether the service had ended of ``unknown`` before ``known`` was said."""
        if known is None or known.number < unknown.number:
            return False
        return _is_late(known) or any(unknown.number < end.number < known.number for end in self.ends)

    @property
    def has_recovered(self) -> bool:
        """Whether it became ready after what it said, and no process's end followed."""
        cause = self.cause
        if not cause or not self.ready:
            return False
        ended = any(one.number > min(cause.number, self.ready) for one in self.ends)
        return not ended and (self.ready > cause.number or cause.raised is not None)


def mark(text: str, of_systemd: bool) -> Mark | None:
    """Whether a service begins here, and who says so."""
    if of_systemd and _SYSTEMD.match(text.split(".service: ", 1)[-1]):
        return "systemd"
    return "engine" if _ENGINE.search(text) else None


def keep(into: list[Said], one: Said) -> None:
    """The first few are enough."""
    if len(into) < KEPT:
        into.append(one)


def _is_late(one: Said) -> bool:
    """A cause that is often only what another one led to."""
    return bool(one.signature) and str((one.signature or {})["id"]).startswith(("net-", "gpu-collective"))


def _of_machine(one: Said) -> bool:
    """Told by the kernel or the driver, whose words may come late."""
    return str((one.signature or {}).get("id", "")).startswith(("sys-out", "gpu-xid", "gpu-fell", "gpu-ecc"))


def _first(said: list[Said]) -> Said | None:
    return min(said, key=lambda one: one.number, default=None)
