"""What the lab made on this machine, written down before it is made.

A ``lab up`` that is killed leaves a record that names at least everything it made, so the next
``lab up`` or ``lab down`` can take it away and never touches what others made under the same names.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleetctl.errors import Exit, FleetError
from fleetctl.lab.paths import LAB_DIR, LAB_RECORD, LOCK, HostPaths

LOCK_WAIT_S = 150.0


@dataclass
class HostRecord:
    """One host's claims. ``machine`` names its cgroup, which holds every process of the host."""

    host: str
    address: str
    machine: str
    netns: str
    link: str
    ready: bool = False
    pid: int = 0
    pid_start: int = 0

    def save(self) -> None:
        """Write the record in one step."""
        _write(HostPaths(self.host).record, asdict(self))


@dataclass
class LabRecord:
    """What all hosts share: the bridge, the tmpfs, and iproute2's own mount of /run/netns."""

    netns_mount: bool = False

    def save(self) -> None:
        """Write the record in one step."""
        _write(LAB_RECORD, asdict(self))


def host_record(name: str) -> HostRecord | None:
    """The record of a host, or None where the lab made nothing for it."""
    data = _read(HostPaths(name).record)
    return HostRecord(**data) if data else None


def host_records() -> list[HostRecord]:
    """The records of all hosts, those that are in no inventory any more too."""
    found = (host_record(file.parent.name) for file in sorted(LAB_DIR.glob("*/record.json")))
    return [record for record in found if record]


def lab_record() -> LabRecord | None:
    """The record of what the hosts share."""
    data = _read(LAB_RECORD)
    return LabRecord(**data) if data else None


@contextmanager
def locked(say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lab's lock; it ends with the process that holds it."""
    LAB_DIR.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as handle:
        deadline = time.monotonic() + LOCK_WAIT_S
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise FleetError(
                        f"another lab command holds the lab for over {LOCK_WAIT_S:.0f} s",
                        where=str(LOCK),
                        fix="wait until it ends, then try again",
                        exit=Exit.LOCKED,
                    ) from None
                if not told:
                    say(f"waits for another lab command to end, at most {LOCK_WAIT_S:.0f} s")
                    told = True
                time.sleep(0.05)
        yield


def _write(path: Path, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(data, indent=1) + "\n")
    fresh.replace(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise FleetError("the lab belongs to root", where=str(path), fix="run this as root") from error
    except ValueError as error:
        raise FleetError(f"the lab's record cannot be read: {error}", where=str(path)) from error
    return data
