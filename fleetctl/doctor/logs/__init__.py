"""``doctor --log``: what a journal, a traceback or an engine's log says went wrong first."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO

from fleetctl.doctor.finding import SEVERITIES, Finding, Remedy
from fleetctl.doctor.logs.analysis import Analysis
from fleetctl.doctor.logs.claims import check_claim
from fleetctl.doctor.logs.reader import NotALogError, blocks, decompressed, is_empty, open_log
from fleetctl.doctor.logs.report import findings
from fleetctl.doctor.rule import Context
from fleetctl.errors import FleetError

__all__ = ["check_claim", "diagnose_log", "diagnose_text"]

Source = str | Path | IO[bytes]


def diagnose_log(
    logs: Source | list[Source] | list[str] | list[Path], context: Context | None = None
) -> list[Finding]:
    """Findings of one or more logs (paths, ``-`` for standard input, or binary streams), the worst first.

    Each log is read once, in blocks. With ``context`` a log's claim is checked against facts and BOM. A file that
    cannot be opened or is empty is a FleetError (exit code 2); one that is no log is a finding.
    """
    each = list(logs) if isinstance(logs, (list, tuple)) else [logs]
    found = _merged(one for log in each for one in _diagnosed(log))
    if context is not None:
        found = [check_claim(one, context) for one in found]
    return sorted(found, key=lambda one: SEVERITIES.index(one.severity))


def diagnose_text(text: str, context: Context | None = None) -> list[Finding]:
    """A log that is already here, such as a pasted traceback."""
    return diagnose_log(io.BytesIO(text.encode(errors="replace")), context)


def _diagnosed(log: Source) -> list[Finding]:
    if isinstance(log, (str, Path)):
        name = "" if str(log) == "-" else str(log)
        with open_log(log) as stream:
            if is_empty(stream):
                raise FleetError(
                    "the log is empty", where=name or "standard input", fix="name a log that has lines"
                )
            return _read(stream, name)
    return _read(decompressed(log), "")


def _read(stream: IO[bytes], name: str) -> list[Finding]:
    analysis = Analysis()
    try:
        for block in blocks(stream):  # type: ignore[arg-type]
            analysis.feed(block)
    except NotALogError as error:
        return [
            Finding("svc-log-unreadable", "warning", str(error), name, remedy=Remedy("pass the log as text"))
        ]
    analysis.end()
    return findings(analysis, name)


def _merged(found: Iterable[Finding]) -> list[Finding]:
    """One finding a cause, however many files name it."""
    by_cause: dict[tuple[str, str, str], Finding] = {}
    for one in found:
        key = (one.rule, one.severity, one.what)
        known = by_cause.get(key)
        if known is None:
            by_cause[key] = one
            continue
        places = ", ".join(dict.fromkeys((*known.where.split(", "), one.where)))
        evidence = (*known.evidence, *(f"{one.where}: {line}" for line in one.evidence[:1]))
        by_cause[key] = replace(known, where=places, evidence=evidence)
    return list(by_cause.values())
