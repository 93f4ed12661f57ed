"""One generation at a time, first come, first served, and a bounded number of requests that wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class Full(Exception):
    """As many requests wait as may wait."""


class Queue:
    """Places for requests. ``running`` is 0 or 1; ``queued`` counts those that wait, at most ``limit``."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.running = 0
        self.queued = 0
        self._turns = asyncio.Lock()

    @contextmanager
    def place(self) -> Iterator[Place]:
        """A request's place for as long as it is here; Full where there is none."""
        if self.running + self.queued > self.limit:
            raise Full
        place = Place(self)
        self.queued += 1
        try:
            yield place
        finally:
            place.leave()

    @property
    def turns(self) -> asyncio.Lock:
        """Held by the request that generates; asyncio's lock wakes in order."""
        return self._turns


class Place:
    """A request's place: it waits until its turn comes."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._waits = True

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn and keep it for the block."""
        queue = self._queue
        async with queue.turns:
            self.leave()
            queue.running = 1
            try:
                yield
            finally:
                queue.running = 0

    def leave(self) -> None:
        """Wait no longer."""
        if self._waits:
            self._waits = False
            self._queue.queued -= 1
