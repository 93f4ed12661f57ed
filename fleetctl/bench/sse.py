"""Server-sent events as bytes come, read strictly: what is no such event is a fault of the server, and is named."""

from __future__ import annotations

FIELDS = (b"data", b"event", b"id", b"retry")
LONGEST = 16 << 20


class BrokenStream(Exception):
    """Bytes that are no server-sent events; the text says what was seen."""


class EventReader:
    """Takes a stream piece by piece and gives the ``data`` of each event that is complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._begun = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that end in ``piece``; :class:`BrokenStream` where a line is none of a stream."""
        text = self._rest + piece
        if not self._begun:
            text = text.removeprefix(b"\xef\xbb\xbf")
            self._begun = bool(text)
        held = b"\r" if text.endswith(b"\r") else b""  # perhaps the half of \r\n
        text = text[: len(text) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._rest = rest + held
        if len(self._rest) > LONGEST:
            raise BrokenStream(f"a line longer than {LONGEST} bytes")
        found = []
        for line in lines:
            if not line:
                if self._data:
                    found.append(b"\n".join(self._data))
                    self._data = []
            elif not line.startswith(b":"):
                self._take(line)
        return found

    @property
    def unfinished(self) -> bytes:
        """What came of an event that never ended."""
        return b"\n".join([*self._data, self._rest]).strip()

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name not in FIELDS:
            raise BrokenStream(f"a line that is no field of an event: {shown(line)}")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))


def shown(raw: bytes) -> str:
    """Bytes as a message has them: short, and without what drives a terminal."""
    return repr(raw[:120].decode("utf-8", "backslashreplace"))
