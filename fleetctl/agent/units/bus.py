"""systemd asked over its private socket, as ``systemctl`` does for root; without a process for each question.

The few messages of D-Bus's wire format that this takes, little-endian. A socket that is not there, or that speaks
otherwise, is :class:`Unavailable`: then ``systemctl`` is asked.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import Any, Container, Dict, List, Tuple

SOCKET = "/run/systemd/private"
UNITS = "/org/freedesktop/systemd1/unit/"
MANAGER = "org.freedesktop.systemd1.Manager"
PROPERTIES = "org.freedesktop.DBus.Properties"
TIMEOUT_S = 25.0
LARGEST = 1 << 24
CALL, RETURN, ERROR = 1, 2, 3
PATH, INTERFACE, MEMBER, SIGNATURE = 1, 2, 3, 8
FIXED = {"y": "B", "b": "I", "n": "h", "q": "H", "i": "i", "u": "I", "x": "q", "t": "Q", "d": "d", "h": "I"}
SIZES = {**{kind: struct.calcsize(code) for kind, code in FIXED.items()}, "s": 4, "o": 4, "a": 4}
MALFORMED = (struct.error, IndexError, KeyError, ValueError, RecursionError)
ALIGNED = {**SIZES, "g": 1, "v": 1, "(": 8, "{": 8}


class Unavailable(Exception):
    """Nobody answers there, or not in the words known here."""


class Refused(Exception):
    """systemd answers with an error, in its words."""


def properties(unit: str, names: Container[str]) -> Dict[str, Any]:
    """Those properties of a unit that are among ``names``, all of one moment."""
    body = _asked(UNITS + _escaped(unit), PROPERTIES, "GetAll", "")
    try:
        return _Reader(body).chosen(names)
    except MALFORMED as error:
        raise Unavailable(f"an answer that cannot be read: {error}") from error


def manage(member: str, *words: str) -> None:
    """Call a method of systemd's manager that takes texts; :class:`Refused` where it does not do it."""
    _asked("/org/freedesktop/systemd1", MANAGER, member, *words)


def _escaped(name: str) -> str:
    def kept(place: int, letter: str) -> bool:
        return letter.isascii() and (letter.isalpha() or (letter.isdigit() and place > 0))

    return "".join(
        letter if kept(place, letter) else "".join(f"_{byte:02x}" for byte in letter.encode())
        for place, letter in enumerate(name)
    )


def _asked(path: str, interface: str, member: str, *words: str) -> bytes:
    """The body of systemd's answer to one call."""
    user = str(os.getuid()).encode().hex()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as link:
            link.settimeout(TIMEOUT_S)
            link.connect(SOCKET)
            link.sendall(b"\0AUTH EXTERNAL %s\r\nBEGIN\r\n" % user.encode())
            stream = _Stream(link)
            if not stream.line().startswith(b"OK "):
                raise Unavailable("systemd does not know this user")
            link.sendall(_message(path, interface, member, words))
            return _answer(stream)
    except (OSError, *MALFORMED) as error:
        raise Unavailable(str(error)) from error


def _message(path: str, interface: str, member: str, words: Tuple[str, ...]) -> bytes:
    body = b""
    for word in words:
        body = _padded(body, 4) + _text(word)
    fields = b""
    for code, kind, value in ((PATH, "o", path), (INTERFACE, "s", interface), (MEMBER, "s", member)):
        fields = _padded(fields, 8) + bytes([code, 1]) + kind.encode() + b"\0" + _text(value)
    if words:
        fields = _padded(fields, 8) + bytes([SIGNATURE, 1]) + b"g\0" + bytes([len(words)])
        fields += b"s" * len(words) + b"\0"
    head = struct.pack("<cBBBIII", b"l", CALL, 0, 1, len(body), 1, len(fields))
    return _padded(head + fields, 8) + body


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<I", len(data)) + data + b"\0"


def _padded(data: bytes, size: int) -> bytes:
    return data + b"\0" * (-len(data) % size)


class _Stream:
    """Bytes of a connection, until a deadline."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._held = b""
        self._deadline = time.monotonic() + TIMEOUT_S

    def line(self) -> bytes:
        while b"\r\n" not in self._held:
            self._more()
        line, self._held = self._held.split(b"\r\n", 1)
        return line

    def take(self, count: int) -> bytes:
        while len(self._held) < count:
            self._more()
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    def _more(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0 or len(self._held) > LARGEST:
            raise Unavailable("no whole answer")
        self._link.settimeout(left)
        part = self._link.recv(1 << 16)
        if not part:
            raise Unavailable("systemd closed the connection")
        self._held += part


def _answer(stream: _Stream) -> bytes:
    """The body of the answer; what else comes before it is passed over."""
    while True:
        head = stream.take(16)
        order, kind, _, _, length, _, size = struct.unpack("<cBBBIII", head)
        if order != b"l" or length + size > LARGEST:
            raise Unavailable("an answer that cannot be read")
        stream.take(size + -size % 8)
        body = stream.take(length)
        if kind == RETURN:
            return body
        if kind == ERROR:
            raise Refused(_Reader(body).text() if length > 4 else "no reason given")


class _Reader:
    """Values of a message's body, in their order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def chosen(self, names: Container[str]) -> Dict[str, Any]:
        """Of a body ``a{sv}`` the values with these names; the others are passed over."""
        found: Dict[str, Any] = {}
        end = self._fixed("I")
        self._align(8)
        end += self._at
        while self._at < end:
            self._align(8)
            name, kind = self.text(), self._signature()
            if name in names:
                found[name] = self._value(kind)
            else:
                self._pass(kind)
        return found

    def text(self) -> str:
        """A text; one that goes beyond the end raises IndexError."""
        size = self._fixed("I")
        self._at += size + 1
        if self._at > len(self._data):
            raise IndexError("a text without its end")
        return self._data[self._at - size - 1 : self._at - 1].decode(errors="replace")

    def _signature(self) -> str:
        size = self._data[self._at]
        self._at += size + 2
        return self._data[self._at - size - 1 : self._at - 1].decode("ascii")

    def _fixed(self, code: str) -> Any:
        size = struct.calcsize(code)
        self._align(size)
        (value,) = struct.unpack_from(f"<{code}", self._data, self._at)
        self._at += size
        return value

    def _align(self, size: int) -> None:
        self._at += -self._at % size

    def _value(self, kind: str) -> Any:
        """One value of a whole type: numbers, truths and texts as such, all that holds others as lists."""
        first = kind[0]
        if first == "b":
            return bool(self._fixed("I"))
        if first in FIXED:
            return self._fixed(FIXED[first])
        if first in "so":
            return self.text()
        if first == "g":
            return self._signature()
        if first == "v":
            return self._value(self._signature())
        if first == "a":
            return self._list(kind[1:])
        self._align(8)
        return [self._value(one) for one in _types(kind[1:-1])]

    def _list(self, kind: str) -> List[Any]:
        end = self._fixed("I")
        self._align(ALIGNED[kind[0]])
        end += self._at
        found = []
        while self._at < end:
            begin = self._at
            found.append(self._value(kind))
            if self._at == begin:
                raise IndexError("an array of nothing")
        return found

    def _pass(self, kind: str) -> None:
        """Go behind a value without making it."""
        first = kind[0]
        if first in FIXED:
            self._align(SIZES[first])
            self._at += SIZES[first]
        elif first == "a":
            size = self._fixed("I")
            self._align(ALIGNED[kind[1]])
            self._at += size
        elif first in "so":
            size = self._fixed("I")
            self._at += size + 1
        else:
            self._value(kind)


def _types(signature: str) -> List[str]:
    """The whole types that a signature is a row of: ``a(so)u`` is ``a(so)`` and ``u``."""
    found: List[str] = []
    begin, depth = 0, 0
    for at, letter in enumerate(signature):
        depth += (letter in "({") - (letter in ")}")
        if depth == 0 and letter != "a":
            found.append(signature[begin : at + 1])
            begin = at + 1
    return found
