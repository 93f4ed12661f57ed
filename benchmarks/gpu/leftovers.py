"""Servers that an earlier run has left behind: each is on record by its process id, and ended before the next starts.

A run that is killed cannot end its servers; they keep their ports and the card's memory.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

RECORDS = "servers"
PATIENCE_S = 6.0


def started(pid: int) -> int | None:
    """When a process began, in the kernel's ticks since boot; None where there is no such process, or a dead one."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def record(out: Path, pid: int, arm: str) -> Path:
    """Keep who runs, and for whom: another's id may be given to a stranger later, but not with the same beginning."""
    folder = out / RECORDS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{pid}.json"
    owner = os.getpid()
    kept = {"arm": arm, "pid": pid, "began": started(pid), "owner": owner, "owner_began": started(owner)}
    path.write_text(json.dumps(kept))
    return path


def end_earlier(out: Path) -> list[str]:
    """End every server on record under ``out`` whose benchmark is gone; the names of those that still ran."""
    ended = []
    for path in sorted((out / RECORDS).glob("*.json")):
        try:
            kept = json.loads(path.read_text())
        except ValueError:
            continue
        owner = int(kept["owner"])
        if owner != os.getpid() and started(owner) == kept["owner_began"]:
            continue  # another benchmark's, side by side with this one
        if end_group(int(kept["pid"]), int(kept["began"] or -1)):
            ended.append(str(kept["arm"]))
        path.unlink(missing_ok=True)
    return ended


def end_group(pid: int, began: int) -> bool:
    """End a process and its group for certain, if it still is the one that ``began`` then; whether anything ran.

    Its children are in its group and outlive it: they are ended where they began no earlier than it did.
    """
    if not members(pid, began):
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        for one in members(pid, began):
            with suppress(ProcessLookupError):
                os.kill(one, number)
        until = time.monotonic() + PATIENCE_S
        while members(pid, began) and time.monotonic() < until:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.1)
    return True


def members(group: int, began: int) -> list[int]:
    """The living processes of a process group that began no earlier than its leader did."""
    leader = started(group)
    if leader is not None and leader != began:
        return []  # the number belongs to somebody else now
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX" and int(fields[19]) >= began:
            found.append(int(entry.name))
    return found
