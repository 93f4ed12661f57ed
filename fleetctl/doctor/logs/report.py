"""From what a log said to findings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from fleetctl.doctor.finding import Finding, Remedy, Severity
from fleetctl.doctor.logs.analysis import Analysis
from fleetctl.doctor.logs.guess import ENGINE, family, guess, module
from fleetctl.doctor.logs.starts import Said, Start
from fleetctl.doctor.logs.traceback import Raised
from fleetctl.doctor.signatures import SIGNATURES, by_id

SHOWN = 5
_NO_PROGRESS = re.compile(r"NCCL|[Cc]ustom[ _]all-?_?reduce|^\(.*\)$")
_LAST = [(re.compile(one.pattern), one) for one in SIGNATURES if one.verdict == "last"]


def findings(analysis: Analysis, where: str) -> list[Finding]:
    """A log's findings: the last start's first cause, what an earlier start died of, and warnings."""
    start = _telling(analysis.starts)
    found = [*_of_start(analysis, start, where), *_of_counts(analysis.last, where)]
    return found or list(_of_end(analysis, where))


def _telling(starts: list[Start]) -> Start:
    """The last start that says why; where systemd only gave up, the one before."""
    for start in reversed(starts):
        if start.causes or start.exceptions or start.announcements or start.ready:
            return start
        if (start.errors or start.doubts) and not start.ends:
            return start
    return next((start for start in reversed(starts) if start.ends), starts[-1])


def _of_start(analysis: Analysis, start: Start, where: str) -> Iterator[Finding]:
    cause = start.cause
    if cause is None:
        earlier = next(
            (one for one in reversed(analysis.starts) if one.number < start.number and one.cause), None
        )
        if earlier is not None and earlier.cause is not None and not earlier.has_recovered:
            yield _finding(
                earlier, earlier.cause, where, "info", "an earlier start failed: ", analysis.starts
            )
        return
    if start.has_recovered and cause.raised is not None and start.ready > cause.number:
        return
    cause = _hinted(start, cause)
    severity: Severity = "warning" if start.has_recovered else "error"
    yield _finding(start, cause, where, severity, "", analysis.starts)


def _hinted(start: Start, cause: Said) -> Said:
    """A warning before that a signature knows, where the cause itself tells nothing: an exception of no known part, or
    a mere report that something failed."""
    tells = (
        guess(cause.raised.first) is not ENGINE
        if cause.raised
        else cause not in (*start.announcements, *start.ends)
    )
    before = [one for one in start.hints if one.number < cause.number]
    return cause if tells or not before else before[0]


def _finding(
    start: Start, cause: Said, where: str, severity: Severity, prefix: str, starts: list[Start]
) -> Finding:
    if cause.signature is not None:
        known = by_id[str(cause.signature["id"])]
        made = Finding(known.id, severity, prefix + known.reason, where, (cause.shown,), known.remedy)
    else:
        assert cause.raised is not None
        made = _unknown(cause.raised, cause, where, severity, prefix)
    return replace(made, evidence=(*made.evidence, *_around(start, cause), *_how_often(starts, made.rule)))


def _unknown(raised: Raised, said: Said, where: str, severity: Severity, prefix: str) -> Finding:
    """An exception that no signature knows: named as such, with the part that raised it and where to look first."""
    first = raised.first
    found, of = guess(first), module(first)
    kind = "an exception" if first.type else "an error"
    what = (
        f"{kind} that fleetctl does not know, in {found.part}{f' ({of})' if of else ''}: {_short(first.text)}"
    )
    evidence = [said.shown] if first is raised else [f"line {first.number}: {_short(first.text)}", said.shown]
    if first.frames:
        path, line, name = first.frames[-1]
        evidence.append(f"raised in {path}:{line}{f', {name}' if name else ''}")
    rule = f"{found.family.lower()}-exception"
    return Finding(rule, severity, prefix + what, where, tuple(evidence), Remedy(f"look at: {found.look}"))


def _around(start: Start, cause: Said) -> Iterator[str]:
    """Other causes that were said in the same start; what only reports the end is left out."""
    mine = (cause.signature or {}).get("id")
    others = {str((one.signature or {}).get("id")): one for one in reversed(start.causes)}
    for id, one in sorted(others.items(), key=lambda each: each[1].number)[:SHOWN]:
        if id != mine and one.number != cause.number:
            yield f"also {one.shown}"


def _how_often(starts: list[Start], rule: str) -> Iterator[str]:
    told = [start for start in starts if start.cause or start.ready]
    same = sum(1 for start in told if start.cause and _rule(start.cause) == rule)
    if len(told) > 1:
        yield f"in {same} of {len(told)} starts"


def _rule(said: Said) -> str:
    if said.signature is not None:
        return str(said.signature["id"])
    assert said.raised is not None
    return f"{family(said.raised.first).lower()}-exception"


def _of_counts(start: Start, where: str) -> Iterator[Finding]:
    for id, said in start.counts.items():
        known = by_id[id]
        if len(said) >= known.times:
            times = f"said {len(said)} times"
            yield Finding(
                id, "warning", known.reason, where, (said[0].shown, said[-1].shown, times), known.remedy
            )


def _of_end(analysis: Analysis, where: str) -> Iterator[Finding]:
    """A log that ends where something must follow; what of NCCL and its users follows is no progress."""
    if analysis.last.ready:
        return
    for last in reversed(analysis.tail):
        for pattern, known in _LAST:
            if pattern.search(last):
                evidence = (f"the log ends after: {_short(last)}",)
                yield Finding(known.id, "error", known.reason, where, evidence, known.remedy)
                return
        if not _NO_PROGRESS.search(last):
            return


def _short(text: str) -> str:
    return text if len(text) <= 300 else text[:300] + "…"
