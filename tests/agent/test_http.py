"""The agent's HTTP, held against answers as servers give them and as none should."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.agent.host.http import ANSWER_BYTES, request

Serve = Callable[..., int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A port that answers one connection with these parts, with a pause between them, and then ends it."""
    doors: list[socket.socket] = []

    def start(*parts: bytes, pause: float = 0.0, stays: float = 0.0) -> int:
        door = socket.create_server(("127.0.0.1", 0))
        doors.append(door)

        def run() -> None:
            near, _ = door.accept()
            with near, suppress(OSError):
                near.recv(65536)
                for part in parts:
                    near.sendall(part)
                    time.sleep(pause)
                time.sleep(stays)

        threading.Thread(target=run, daemon=True).start()
        return int(door.getsockname()[1])

    yield start
    for door in doors:
        door.close()


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodymore", 200, b"body"),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\nloading", 503, b"loading"),
        (b"HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", 200, b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 200, b"ok"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
            200,
            b"abc0123456789",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", 200, b"short"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nshort", 200, b"short"),
    ],
)
def test_an_answer(serve: Serve, answer: bytes, status: int, body: bytes) -> None:
    assert request("GET", "127.0.0.1", serve(answer), "/", timeout=60) == (status, body)
    cut = [answer[at : at + 1] for at in range(len(answer))]
    assert request("GET", "127.0.0.1", serve(*cut), "/", timeout=60) == (status, body)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "no answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "ended within the answer's head"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 two hundred\r\n\r\n", "not an HTTP answer"),
        (b"x" * 10_000, "a line without an end"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000, "does not end"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "a chunk of the size"),
    ],
)
def test_what_is_no_answer(serve: Serve, answer: bytes, reason: str) -> None:
    status, said = request("GET", "127.0.0.1", serve(answer), "/", timeout=60)
    assert status is None and reason in said.decode()


def test_an_answer_is_bounded_in_time_and_size(serve: Serve) -> None:
    begin = time.monotonic()
    trickles = serve(b"HTTP/1.1 200 OK\r\n\r\n", *[b"x"] * 10_000, pause=0.05)
    assert request("GET", "127.0.0.1", trickles, "/", timeout=0.4) == (None, b"no answer within 0.4 s")
    assert time.monotonic() - begin < 60
    silent = serve(stays=600.0)
    assert request("GET", "127.0.0.1", silent, "/", timeout=0.2) == (None, b"no answer within 0.2 s")
    big = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000)
    status, body = request("GET", "127.0.0.1", big, "/", timeout=60)
    assert (status, len(body)) == (200, ANSWER_BYTES)
    with socket.create_server(("127.0.0.1", 0)) as door:
        free = door.getsockname()[1]
    assert request("GET", "127.0.0.1", free, "/")[1] == b"[Errno 111] Connection refused"


def test_a_server_understands_what_is_sent() -> None:
    seen: list[tuple[str, str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, self.headers["Content-Type"], body))
            self.send_response(201)
            self.end_headers()
            self.wfile.write(b"made")

        def log_message(self, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        answer = request("POST", "127.0.0.1", server.server_port, "/v1/x?y=1", {"prompt": "ü"}, timeout=60)
        server.shutdown()
    assert answer == (201, b"made")
    assert seen == [("/v1/x?y=1", "application/json", b'{"prompt": "\\u00fc"}')]


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_an_answer_or_a_reason(answer: bytes, with_head: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" if with_head else b""
    near, far = socket.socketpair()
    from fleetctl.agent.host.http import Malformed, _Stream, read_answer

    with near, far:
        far.sendall(head + answer)
        far.shutdown(socket.SHUT_WR)
        try:
            status, body = read_answer(_Stream(near, time.monotonic() + 5))
        except Malformed:
            return
        assert 100 <= status <= 999 and len(body) <= ANSWER_BYTES
