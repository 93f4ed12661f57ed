"""One bounded HTTP request to this host, over a plain socket.

``http.client`` does the same and more; importing it (with email and ssl) takes as long as a third of the agent's start.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any, Dict, Iterator, Optional, Tuple

ANSWER_BYTES = 1 << 20
HEAD_BYTES = 64 * 1024
LINE_BYTES = 4096
EMPTY = (204, 304)


class Malformed(ValueError):
    """What came is no HTTP answer."""


def request(
    method: str, address: str, port: int, path: str, body: Any = None, timeout: float = 5.0, key: str = ""
) -> Tuple[Optional[int], bytes]:
    """Status and body (at most 1 MiB) of one request; ``body`` is sent as JSON, ``key`` as a bearer's.

    ``(None, reason)`` where no answer came. ``timeout`` bounds the whole, a body that trickles included.
    """
    deadline = time.monotonic() + timeout
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect((address, port))
            connection.sendall(_message(method, address, port, path, body, key))
            return read_answer(_Stream(connection, deadline))
    except socket.timeout:
        return None, f"no answer within {timeout:g} s".encode()
    except (OSError, Malformed) as error:
        return None, (str(error) or type(error).__name__).encode()


def read_answer(stream: _Stream) -> Tuple[int, bytes]:
    """Status and body of the answer that a stream brings; :class:`Malformed` where it is none."""
    status, headers = _head(stream)
    while 100 <= status < 200:
        status, headers = _head(stream)
    if status in EMPTY:
        return status, b""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return status, b"".join(_chunks(stream))
    length = headers.get("content-length")
    if length is None:
        return status, stream.upto(ANSWER_BYTES)
    if not length.isdigit():
        raise Malformed(f"Content-Length: {length[:80]}")
    return status, stream.upto(min(int(length), ANSWER_BYTES))


class _Stream:
    """Bytes of a connection, until a deadline."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._held = b""

    def line(self, limit: int) -> bytes:
        """Up to the next line's end, without it."""
        while b"\n" not in self._held:
            if len(self._held) > limit:
                raise Malformed("a line without an end")
            if not self._more():
                raise Malformed(
                    "the connection ended within the answer's head" if self._held else "no answer"
                )
        line, self._held = self._held.split(b"\n", 1)
        return line.rstrip(b"\r")

    def upto(self, count: int) -> bytes:
        """So many bytes, fewer where the connection ends before."""
        while len(self._held) < count and self._more():
            pass
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    def _more(self) -> bool:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout()
        self._connection.settimeout(left)
        part = self._connection.recv(65536)
        self._held += part
        return bool(part)


def _message(method: str, address: str, port: int, path: str, body: Any, key: str) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    host = f"[{address}]" if ":" in address else address
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host}:{port}",
        "Accept: application/json",
        "Connection: close",
    ]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    return "\r\n".join([*lines, "", ""]).encode() + data


def _head(stream: _Stream) -> Tuple[int, Dict[str, str]]:
    first = stream.line(LINE_BYTES)
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit() or len(words[1]) != 3:
        raise Malformed(f"not an HTTP answer: {first[:80]!r}")
    headers: Dict[str, str] = {}
    spent = 0
    while True:
        line = stream.line(LINE_BYTES)
        if not line:
            return int(words[1]), headers
        spent += len(line)
        if spent > HEAD_BYTES:
            raise Malformed("the answer's head does not end")
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()


def _chunks(stream: _Stream) -> Iterator[bytes]:
    left = ANSWER_BYTES
    while left > 0:
        size = stream.line(LINE_BYTES).partition(b";")[0].strip()
        try:
            count = int(size, 16)
        except ValueError:
            raise Malformed(f"a chunk of the size {size[:20]!r}") from None
        if count <= 0:
            return
        part = stream.upto(min(count, left))
        yield part
        left -= len(part)
        if len(part) < min(count, left + len(part)):
            return
        stream.line(LINE_BYTES)
