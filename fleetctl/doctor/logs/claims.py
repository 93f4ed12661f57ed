"""A log's claim against what is known of the host: confirmed, or pointing elsewhere."""

from __future__ import annotations

from fleetctl.doctor.finding import Finding
from fleetctl.doctor.rule import Context


def check_claim(finding: Finding, context: Context) -> Finding:
    """The finding with what facts and BOM say to it."""
    return finding
