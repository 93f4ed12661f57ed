"""A proxy that holds every byte back for a while, each way: what distance does, where the kernel has no netem.

    python -m benchmarks.fleet.delay SECONDS PORT=ADDRESS[:PORT] ...

A connection's first bytes are held a round trip longer, which is what the handshake of TCP would have taken.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import deque
from contextlib import suppress
from functools import partial


class Pipe(asyncio.Protocol):
    """One end of a relayed connection; ``far`` is the other."""

    def __init__(self, delay: float) -> None:
        self.far: Pipe | None = None
        self._delay = delay
        self._held: deque[bytes] = deque()
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if self.far is None:
            self._early.append(data)
        else:
            asyncio.get_running_loop().call_later(self._delay, self.far.send, data)

    def join(self, far: Pipe) -> None:
        """From now on what comes in goes to ``far``."""
        self.far = far
        for data in self._early:
            self.data_received(data)

    def send(self, data: bytes) -> None:
        if self._transport:
            self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.far:
            asyncio.get_running_loop().call_later(self._delay, self.far.close)

    def close(self) -> None:
        if self._transport:
            self._transport.close()


class Near(Pipe):
    """The operator's end: it reaches the host once a handshake's round trip has passed."""

    def __init__(self, delay: float, address: str, port: int) -> None:
        super().__init__(delay)
        self._place = (address, port)
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        task = asyncio.get_running_loop().create_task(self._reach())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reach(self) -> None:
        await asyncio.sleep(2 * self._delay)
        loop = asyncio.get_running_loop()
        try:
            _, far = await loop.create_connection(lambda: Pipe(self._delay), *self._place)
        except OSError:
            self.close()
            return
        far.join(self)
        self.join(far)


async def serve(delay: float, doors: list[tuple[int, str, int]]) -> None:
    """Relay each local port to its address until killed."""
    loop = asyncio.get_running_loop()
    for port, address, far in doors:
        near = partial(Near, delay, address, far)
        await loop.create_server(near, "127.0.0.1", port, backlog=200)
    print("ready", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Parse the arguments and serve."""
    doors = []
    for word in sys.argv[2:]:
        port, _, place = word.partition("=")
        address, _, far = place.partition(":")
        doors.append((int(port), address, int(far or 22)))
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(float(sys.argv[1]), doors))


if __name__ == "__main__":
    main()
