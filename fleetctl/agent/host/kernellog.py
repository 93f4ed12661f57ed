"""What the kernel said since it booted that concerns GPUs and memory: Xids, kills for want of memory, the driver."""

from __future__ import annotations

import re
import shutil
from typing import Any, Dict, Iterable, List, NamedTuple, Optional

from fleetctl.agent.errors import AgentError
from fleetctl.agent.units import systemd

Json = Dict[str, Any]

LOG_S = 4.0
LINES = 20000
KEEP = 50
WIDTH = 500
XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+)\b")
OOM = re.compile(r"[Oo]ut of memory: Killed process (\d+) \(([^)]*)\)")
STAMP = re.compile(
    r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:[+-]\d\d:?\d\d|Z)?) (?:\S+ kernel: )?(.*)$"
)
SINCE_BOOT = re.compile(r"^\[ *(\d+\.\d+)\] (.*)$")


class Line(NamedTuple):
    """One line, with its time in ISO 8601 or None."""

    time: Optional[str]
    text: str


def look(seconds: float = LOG_S) -> Json:
    """``{"xid": [{time, bus_id, code, line}], "oom": [{time, pid, name, line}], "nvrm": [line], "error"}``.

    The last boot's, by journalctl, else by dmesg; the newest of each kind. ``error`` where neither shows a line.
    """
    errors: List[str] = []
    for command in (
        ["journalctl", "--no-pager", "-q", "-k", "-b", "-o", "short-iso", f"--lines={LINES}"],
        ["dmesg", "--time-format", "iso"],
        ["dmesg"],
    ):
        if shutil.which(command[0]) is None:
            errors.append(f"{command[0]} is not on this host")
            continue
        try:
            done = systemd.run(command, seconds / 2)
        except (AgentError, OSError) as error:
            errors.append(str(error))
            continue
        if done.stdout.strip():
            return {**read(done.stdout.splitlines()[-LINES:]), "error": None}
        errors.append(f"{command[0]}: {next(iter(done.stderr.splitlines()), 'no line')}")
    return {"xid": [], "oom": [], "nvrm": [], "error": "; ".join(dict.fromkeys(errors))}


def read(lines: Iterable[str]) -> Json:
    """The lines that matter, by kind, at most the newest 50 of each."""
    xid: List[Json] = []
    oom: List[Json] = []
    nvrm: List[str] = []
    for raw in lines:
        if "NVRM" not in raw and "of memory" not in raw:
            continue
        time, text = split(raw)
        text = text[:WIDTH]
        found = XID.search(text)
        killed = OOM.search(text)
        if found:
            xid.append({"time": time, "bus_id": found[1], "code": int(found[2]), "line": text})
        elif killed:
            oom.append({"time": time, "pid": int(killed[1]), "name": killed[2], "line": text})
        elif "NVRM" in text:
            nvrm.append(text)
    return {"xid": xid[-KEEP:], "oom": oom[-KEEP:], "nvrm": nvrm[-KEEP:]}


def split(raw: str) -> Line:
    """A line of journalctl or dmesg without its head."""
    stamped = STAMP.match(raw)
    if stamped:
        return Line(stamped[1].replace(",", "."), stamped[2])
    counted = SINCE_BOOT.match(raw)
    return Line(None, counted[2]) if counted else Line(None, raw)
