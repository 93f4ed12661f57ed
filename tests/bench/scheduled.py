"""A server that emits tokens on a schedule, so that what a client measures can be held against what happened.

    python -m tests.bench.scheduled [--port 0]

It prints its URL. A request's model chooses the schedule and what goes wrong (``tests/bench/behaviours.py``).
``GET /sent`` gives, and forgets, when each event of each answer really left (seconds from the request's arrival), with
the last message of its prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.bench.behaviours import Answer, Schedule, Script, script, whole

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    429: "Too Many Requests",
    500: "Internal Server Error",
}
MODEL = "steady"


@contextmanager
def running(*arguments: str) -> Iterator[str]:
    """The server in a process of its own; gives its URL, and ends it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.scheduled", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        assert url, f"the scheduled server ended with {process.wait(5)}"
        yield url
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


class Server:
    """Plays scripts to whoever connects."""

    def __init__(self) -> None:
        self._running = 0
        self._tokens = 0
        self._refused: Counter[str] = Counter()
        self._sent: list[dict[str, Any]] = []

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection until it ends."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while not writer.is_closing() and await self._request(reader, writer):
                pass
        writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether another may follow on this connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        arrived = time.monotonic()
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, target, _ = head[0].split(" ", 2)
        if method == "POST":
            return await self._generate(json.loads(body), reader, writer, arrived)
        self._plain(writer, *self._look(urlsplit(target).path))
        await writer.drain()
        return True

    def _look(self, path: str) -> tuple[int, str, str]:
        """Status, content type and text of a GET."""
        kind = "application/json"
        if path == "/v1/models":
            return 200, kind, json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        if path == "/health":
            return 200, kind, "{}"
        if path == "/sent":
            sent, self._sent = self._sent, []
            return 200, kind, json.dumps(sent)
        if path == "/metrics":
            lines = ["fleetctl_requests_running", self._running, "fleetctl_requests_queued", 0]
            lines += ["fleetctl_generated_tokens_total", self._tokens]
            pairs = zip(lines[::2], lines[1::2], strict=True)
            return 200, "text/plain", "".join(f"{name} {value}\n" for name, value in pairs)
        return 404, kind, json.dumps({"error": {"message": f"no {path} here"}})

    def _plain(self, writer: asyncio.StreamWriter, status: int, kind: str, text: str) -> None:
        head = f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\nContent-Type: {kind}\r\n"
        writer.write(f"{head}Content-Length: {len(text.encode())}\r\n\r\n{text}".encode())

    async def _generate(
        self, request: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, arrived: float
    ) -> bool:
        name = str(request.get("model"))
        schedule = Schedule.parse(name)
        if schedule is None:
            error = {"error": {"message": f"no model {name!r} here", "code": "model_not_found"}}
            self._plain(writer, 404, "application/json", json.dumps(error))
            return True
        if not request.get("stream"):
            await asyncio.sleep(schedule.ttft)
            self._plain(writer, 200, "application/json", json.dumps(whole(schedule, request)))
            return True
        found = script(schedule, request, self._refused[name])
        self._refused[name] += found.status != 200
        self._running += 1
        try:
            await self._play(found, request, writer, arrived)
            return await self._end(found, reader, writer)
        finally:
            self._running -= 1

    async def _play(
        self, found: Script, request: Answer, writer: asyncio.StreamWriter, arrived: float
    ) -> None:
        head = "".join(f"{header}: {value}\r\n" for header, value in found.headers.items())
        status = f"HTTP/1.1 {found.status} {REASONS.get(found.status, 'Status')}\r\n"
        writer.write(f"{status}{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        events: list[tuple[float, int]] = []
        prompt = request["messages"][-1]["content"] if "messages" in request else request.get("prompt")
        self._sent.append({"prompt": prompt, "arrived": arrived, "events": events})
        for at, text, tokens in found.sends:
            wait = arrived + at - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            if writer.is_closing():
                return
            writer.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
            if tokens:
                events.append((time.monotonic() - arrived, tokens))
                self._tokens += tokens

    async def _end(self, found: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if found.end == "finish":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        if found.end == "hang":
            await writer.drain()
            await reader.read()
        elif found.end == "reset":
            await writer.drain()
            await asyncio.sleep(0.02)
            connected = writer.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return False


async def serve(host: str, port: int) -> None:
    """Serve for good; prints the URL once it listens."""
    listening = await asyncio.start_server(Server().connection, host, port, backlog=512)
    host, port = listening.sockets[0].getsockname()[:2]
    print(f"http://{host}:{port}", flush=True)
    await listening.serve_forever()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=_loop) as runner:
        runner.run(serve(given.host, given.port))


def _loop() -> asyncio.AbstractEventLoop:
    """A loop whose timers are exact to tens of microseconds: epoll's wake up to 1 ms late."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


if __name__ == "__main__":
    main()
