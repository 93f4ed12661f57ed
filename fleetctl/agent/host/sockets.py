"""The TCP sockets that listen on this host.

Asked of the kernel by netlink (``sock_diag``), as ``ss`` does: it walks the listening sockets alone. ``/proc/net/tcp``
walks every bucket of the table of connections, milliseconds a time; it is read where netlink is not there.
"""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path
from typing import Iterator, List, NamedTuple

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLMSG_ERROR, NLMSG_DONE = 2, 3
REQUEST_DUMP = 0x1 | 0x300
TCP_LISTEN = 10
LISTEN = "0A"
HEAD = struct.Struct("=LHHLL")
ASK = struct.Struct("=BBBxL48x")
FAMILY = struct.Struct("=B3x")
PORT = struct.Struct("!H")
PORT_AT, ADDRESS_AT, INODE_AT = 4, 8, 68
TIMEOUT_S = 2.0


class Listener(NamedTuple):
    """A listening socket: its port, its inode, and the address to reach it by (loopback where it takes any)."""

    port: int
    inode: str
    address: str


def listeners() -> List[Listener]:
    """Every TCP socket that listens, IPv4 and IPv6."""
    try:
        return [*_asked(socket.AF_INET), *_asked(socket.AF_INET6)]
    except (OSError, struct.error):
        return list(from_proc())


def _asked(family: int) -> Iterator[Listener]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(TIMEOUT_S)
        body = ASK.pack(family, socket.IPPROTO_TCP, 0, 1 << TCP_LISTEN)
        kernel.send(HEAD.pack(HEAD.size + len(body), SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, 1, 0) + body)
        while True:
            data = kernel.recv(1 << 16)
            while len(data) >= HEAD.size:
                length, kind, _, _, _ = HEAD.unpack_from(data)
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR or length < HEAD.size:
                    raise OSError("the kernel knows no sock_diag")
                yield _listener(data[HEAD.size : length])
                data = data[(length + 3) & ~3 :]


def _listener(message: bytes) -> Listener:
    (family,) = FAMILY.unpack_from(message)
    (port,) = PORT.unpack_from(message, PORT_AT)
    (inode,) = struct.unpack_from("=L", message, INODE_AT)
    size = 16 if family == socket.AF_INET6 else 4
    return Listener(port, str(inode), _reached(family, message[ADDRESS_AT : ADDRESS_AT + size]))


def from_proc() -> Iterator[Listener]:
    """The same, out of /proc."""
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] != LISTEN:
                continue
            digits, _, number = fields[1].partition(":")
            words = [bytes.fromhex(digits[at : at + 8]) for at in range(0, len(digits), 8)]
            packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
            family = socket.AF_INET6 if len(packed) == 16 else socket.AF_INET
            yield Listener(int(number, 16), fields[9], _reached(family, packed))


def _reached(family: int, packed: bytes) -> str:
    """An address as text, with loopback for "any"."""
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, packed if any(packed) else packed[:15] + b"\x01")
    return socket.inet_ntop(family, packed if any(packed) else b"\x7f\x00\x00\x01")
