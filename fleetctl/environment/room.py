"""Whether the host's disks hold an environment and models together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import Host


@dataclass(frozen=True)
class Want:
    """What one path will need: bytes ``needed``, and what is ``free`` on its file system, told apart by ``device``."""

    path: str
    needed: int
    free: int
    device: int


def shortages(wants: Sequence[Want]) -> list[dict[str, Any]]:
    """A finding for each file system that is too small for all that is wanted of it."""
    found = []
    for device in dict.fromkeys(want.device for want in wants):
        there = [want for want in wants if want.device == device and want.needed]
        needed, free = sum(want.needed for want in there), min((want.free for want in there), default=0)
        if needed > free:
            found.append(
                {
                    "id": "disk-room",
                    "severity": "error",
                    "what": f"the disk is too full: {needed:,} bytes needed, {free:,} free",
                    "where": ", ".join(want.path for want in there),
                    "fix": "free some space there (old environments, models, logs)",
                    "evidence": [f"{want.path}: {want.needed:,} bytes" for want in there],
                }
            )
    return found


def require_room(host: Host, wants: Sequence[Want]) -> None:
    """Raise the first shortage as a ``FleetError`` (exit 5)."""
    for found in shortages(wants):
        raise FleetError(
            f"{found['what']}; nothing was changed",
            where=f"{host.name}:{found['where']}",
            fix=found["fix"],
            evidence=found["evidence"],
            exit=Exit.PREFLIGHT,
        )
