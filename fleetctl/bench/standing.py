"""What stood in a slot before it was measured, kept on the disk: a run that was killed has left its own service there.

The next session on that slot then brings back what stood there before the first one, not what the killed one left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleetctl.bench.placing import overridden
from fleetctl.bench.restore import Before
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Argument, Host
from fleetctl.services.target import Target, build_target

FOLDER = ".fleetctl/standing"


@dataclass(frozen=True)
class Put:
    """A service that a session was about to put into the slot: as :meth:`Session.put` takes it."""

    service: str
    args: dict[str, Argument]
    tp: int | None


class Standing:
    """The file of one slot."""

    def __init__(self, fleet: Fleet, host: Host, slot: str) -> None:
        self._fleet = fleet
        self._host = host
        self._path: Path = fleet.root / FOLDER / f"{host.name}-{slot}.json"

    def original(self, now: Before) -> Before:
        """What to bring back in the end: ``now``, or, where a killed session left that, what stood before it."""
        kept = self._read()
        if kept is None or now.target is None:
            return now
        before, puts = kept
        return before if any(self._is(put, now.target) for put in puts) else now

    def note(self, before: Before, put: Put) -> None:
        """``put`` is about to be done, in a slot that had ``before``."""
        kept = self._read()
        puts = [*kept[1], put] if kept and kept[0] == before else [put]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"before": asdict(before), "puts": [asdict(one) for one in puts]}, indent=1)
        fresh = self._path.with_suffix(".new")
        fresh.write_text(text + "\n")
        fresh.replace(self._path)

    def forget(self) -> None:
        """The slot is as it was."""
        self._path.unlink(missing_ok=True)

    def _is(self, put: Put, target: Target) -> bool:
        """Whether ``target``, which fills the slot, is what ``put`` would have put there."""
        if put.service != target.service or put.service not in self._host.services:
            return False
        host = overridden(self._host, put.service, put.args, put.tp)
        try:
            made = build_target(
                self._fleet,
                host,
                put.service,
                target.environment,
                target.environment_digest,
                target.remedies,
            )
        except FleetError:
            return False
        return made.unit_text == target.unit_text

    def _read(self) -> tuple[Before, list[Put]] | None:
        """What is kept; None where nothing is, or it is unreadable and so of no use."""
        try:
            data: Mapping[str, Any] = json.loads(self._path.read_text())
            before = dict(data["before"])
            target = Target(**before["target"]) if before["target"] else None
            return Before(before["slot"], target, before["ran"]), [Put(**put) for put in data["puts"]]
        except (OSError, ValueError, TypeError, LookupError):
            return None
