"""What a slot holds that is to be empty: a target that is no service, for the record and for a rollback to find."""

from __future__ import annotations

from fleetctl.agent.paths import VACANT_UNITS
from fleetctl.services.target import Target

VACANT = "vacant"


def vacant_target(slot: str) -> Target:
    """The service that is none, for ``slot``; the agent installs, starts and enables nothing for it."""
    return Target(service=VACANT, mode="", engine="other", unit=f"{VACANT_UNITS}{slot}.service")
