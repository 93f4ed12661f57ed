"""Who listens on a port of this host, and a bounded HTTP request to it."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from fleetctl.agent import systemd
from fleetctl.agent.http import request

LISTEN = "0A"


def port_owner(port: int) -> Optional[Dict[str, Any]]:
    """The process that listens on a TCP port: pid, command and systemd service; None when nothing does.

    ``pid`` is None where a listener is there and its process cannot be seen (in another namespace). ``unit`` is None
    where it is only the login service that somebody started the process from.
    """
    inodes = _listeners(port)
    if not inodes:
        return None
    pid = _holder(inodes)
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
    for fields, local, number in _sockets():
        found.setdefault(int(number, 16), {})[fields[9]] = _address(local)
    return found


def _listeners(port: int) -> Dict[str, str]:
    """The inodes of sockets that listen on the port, IPv4 and IPv6, each with the address to reach it by."""
    wanted = f"{port:04X}"
    return {fields[9]: _address(local) for fields, local, number in _sockets() if number == wanted}


def _sockets() -> Iterator[Tuple[List[str], str, str]]:
    """Of each listening socket: its fields in /proc/net, its address and port in hexadecimal digits."""
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            local, _, number = fields[1].partition(":")
            if fields[3] == LISTEN:
                yield fields, local, number


def _address(digits: str) -> str:
    """An address of /proc/net/tcp (32-bit words in the machine's order), with loopback for "any"."""
    words = [bytes.fromhex(digits[at : at + 8]) for at in range(0, len(digits), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    if len(packed) == 16:
        return socket.inet_ntop(socket.AF_INET6, packed if any(packed) else packed[:15] + b"\x01")
    return socket.inet_ntop(socket.AF_INET, packed if any(packed) else b"\x7f\x00\x00\x01")


def _holder(inodes: Iterable[str]) -> Optional[int]:
    targets = {f"socket:[{inode}]" for inode in inodes}
    for entry in sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            with os.scandir(f"/proc/{entry}/fd") as handles:
                for handle in handles:
                    if os.readlink(handle.path) in targets:  # noqa: PTH115
                        return entry
        except OSError:
            continue
    return None


def http(
    method: str, port: int, path: str, body: Any = None, timeout: float = 5.0
) -> Tuple[Optional[int], bytes]:
    """One request to this host's port: status and body, as :func:`http.request`."""
    return request(method, address(port), port, path, body, timeout)
