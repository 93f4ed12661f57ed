"""What becomes of one slot, and what its commands ask and say in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import Host
from fleetctl.services.target import Target


@dataclass
class Outcome:
    """What became of one slot: ``unchanged``, ``planned`` (``--plan``) or ``done``.

    ``emptied``: ``service`` is the one that left (empty where there was none), and nothing took its place.
    """

    host: str
    slot: str
    service: str
    mode: str
    verdict: Literal["unchanged", "planned", "done"]
    changes: list[str] = field(default_factory=list)
    diff: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, Any] | None = None
    emptied: bool = False

    @property
    def proof(self) -> str:
        """What was proven of a service that was started."""
        if self.mode == "router":
            return "on its port"
        return f"(mode {self.mode}), proven by a generation"

    def to_dict(self) -> dict[str, Any]:
        """The outcome as one JSON object (``--json``)."""
        return dict(self.__dict__)


def unhealthy(host: Host, slot: str, new: Target, warnings: list[str]) -> FleetError:
    """The error where nothing is to be changed and the service does not answer as it should."""
    return FleetError(
        "; ".join(warnings) + "; nothing was changed",
        where=f"{host.host}, slot {slot}",
        fix=f"fleetctl logs {host.host} {new.service}; a service that still loads needs only time, one that "
        f"hangs a restart (`systemctl restart {new.unit}` there) or fleetctl rollback",
        exit=Exit.PREFLIGHT,
    )
