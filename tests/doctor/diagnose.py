"""A log's diagnosis as the cases ask for it."""

from __future__ import annotations

from fleetctl.doctor.finding import Finding
from fleetctl.doctor.logs import diagnose_text
from fleetctl.doctor.rule import Context


def diagnose(log: str, known: Context | None) -> list[Finding]:
    """What a log says, with the facts where they are known; the first cause first."""
    return diagnose_text(log, known)
