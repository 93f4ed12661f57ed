"""Who listens on a port of this host, and a bounded HTTP request to it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, Iterable, Optional, Tuple

from fleetctl.agent.host.http import request
from fleetctl.agent.host.processes import opened
from fleetctl.agent.host.sockets import listeners
from fleetctl.agent.units import systemd

# A socket can be between two processes while /proc is read: a daemon that forks a worker and lets its own go.
LOOKS = 4
AGAIN = 0.05


def port_owner(port: int) -> Optional[Dict[str, Any]]:
    """The process that listens on a TCP port: pid, command and systemd service; None when nothing does.

    ``pid`` is None where a listener is there and its process cannot be seen (in another namespace). ``unit`` is None
    where it is only the login service that somebody started the process from.
    """
    pid: Optional[int] = None
    for left in range(LOOKS, 0, -1):
        inodes = _listeners(port)
        if not inodes:
            return None
        pid = _holder(inodes)
        if pid is not None or left == 1:
            break
        time.sleep(AGAIN)
    if pid is None:
        return {"pid": None, "command": "(a process that cannot be seen)", "unit": None}
    unit = systemd.unit_of(pid)
    return {"pid": pid, "command": command(pid), "unit": None if unit in systemd.login_units() else unit}


def command(pid: int) -> str:
    """A process's command line; its name in brackets where it has none."""
    try:
        words = (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
        return words or "[" + Path(f"/proc/{pid}/comm").read_text().strip() + "]"
    except OSError:
        return "(gone)"


def address(port: int) -> str:
    """The address to reach a port's listener by; loopback where it listens on all, or nothing does."""
    found = sorted(_listeners(port).values())
    for usual in ("127.0.0.1", "::1"):
        if usual in found:
            return usual
    return found[0] if found else "127.0.0.1"


def listening() -> Dict[int, Dict[str, str]]:
    """Every TCP port that something listens on, IPv4 and IPv6: ``{port: {socket's inode: address to reach it}}``."""
    found: Dict[int, Dict[str, str]] = {}
    for one in listeners():
        found.setdefault(one.port, {})[one.inode] = one.address
    return found


def _listeners(port: int) -> Dict[str, str]:
    """The inodes of sockets that listen on the port, IPv4 and IPv6, each with the address to reach it by."""
    return {one.inode: one.address for one in listeners() if one.port == port}


def _holder(inodes: Iterable[str]) -> Optional[int]:
    targets = {f"socket:[{inode}]" for inode in inodes}
    for entry in sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        if any(target in targets for target in opened(entry)):
            return entry
    return None


def http(
    method: str, port: int, path: str, body: Any = None, timeout: float = 5.0, key: str = ""
) -> Tuple[Optional[int], bytes]:
    """One request to this host's port: status and body, as :func:`http.request`."""
    return request(method, address(port), port, path, body, timeout, key)
