"""What fills a slot that a service over several hosts has left: a unit that does nothing, for a rollback to find."""

from __future__ import annotations

from fleetctl.services.target import Target

VACANT = "vacant"
UNIT = """[Unit]
Description=slot {slot} is left empty by a service over several hosts (fleetctl)

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true

[Install]
WantedBy=multi-user.target
"""


def vacant_target(slot: str) -> Target:
    """The service that is none, for ``slot``."""
    return Target(
        service=VACANT,
        mode="",
        engine="other",
        unit=f"fleetctl-vacant-{slot}.service",
        unit_text=UNIT.format(slot=slot),
        rungs=["unit"],
    )
