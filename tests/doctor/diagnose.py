"""A log's diagnosis as the cases ask for it."""

from __future__ import annotations

from fleetctl.agent.signatures import diagnose as first_cause
from fleetctl.doctor.finding import Finding, Remedy
from fleetctl.doctor.rule import Context
from fleetctl.doctor.signatures import table


def diagnose(log: str, known: Context | None) -> list[Finding]:
    """What a log says, with the facts where they are known; the first cause first."""
    found = first_cause(log.splitlines(), table())
    if found is None:
        return []
    return [Finding(found["id"], "error", found["reason"], "", (found["line"],), Remedy(found["fix"]))]
