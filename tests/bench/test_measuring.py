"""The client's times are those of the server's schedule: the cases of benchmarks/bench_client.py, shorter.

Client and server share a loop whose clock stands still while there is anything to do and else jumps to the next
timer, so what else runs on the machine has no say; how right the times are on a real clock is the benchmark's.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.bench_client import Case
from fleetctl.bench import client
from fleetctl.bench.record import Request
from tests.bench import scheduled

GRAIN_S = 2e-6
"""Records keep microseconds."""


class Clock(selectors.SelectSelector):
    """Where a loop would wait, time passes at once; sockets are Unix ones, so what was sent is there."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class Loop(asyncio.SelectorEventLoop):
    """A loop that lives by such a clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


Run = Callable[[Coroutine[Any, Any, list[Request]]], list[Request]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs to its end what asks a server; both on the loop's clock."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        clock = runner.get_loop().time
        for module in (client, scheduled):
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=clock, monotonic=clock))
        yield runner.run


async def measured(case: Case, address: Path) -> list[Request]:
    asks = [
        client.Ask(f"p{number}", [{"role": "user", "content": f"prompt {number}"}], case.tokens)
        for number in range(case.requests)
    ]
    listening = await asyncio.start_unix_server(scheduled.Server().connection, address)
    async with listening, client.Client("http://there", case.model, origin=0.0, socket=str(address)) as one:
        return await one.load(asks, case.concurrency)


@pytest.mark.parametrize(
    "case",
    [
        Case("one stream", 1, 3, 0.3, 0.02, 40, 1, 0),
        Case("drafted", 1, 3, 0.3, 0.05, 80, 4, 0),
        Case("64 streams", 64, 128, 0.4, 0.032, 60, 1, 0),
    ],
    ids=lambda case: case.name,
)
def test_a_known_schedule_is_measured_as_it_was(run: Run, case: Case, tmp_path: Path) -> None:
    requests = run(measured(case, tmp_path / "socket"))
    assert len(requests) == case.requests
    scheduled_at = [case.ttft + case.itl * number for number in range(case.tokens // case.per_event)]
    for request in requests:
        assert request.error is None
        assert sum(tokens for _, tokens in request.events) == request.tokens == case.tokens
        assert [at for at, _ in request.events] == pytest.approx(scheduled_at, abs=GRAIN_S)
        assert request.ttft_s == pytest.approx(case.ttft, abs=GRAIN_S)
        assert request.end_s == pytest.approx(scheduled_at[-1], abs=GRAIN_S)
    rounds = case.requests // case.concurrency
    begun = sorted(request.started_s for request in requests)
    expected = [scheduled_at[-1] * number for number in range(rounds) for _ in range(case.concurrency)]
    assert begun == pytest.approx(expected, abs=1e-4), "so many are at work at once, and no more"
    first = {request.prompt for request in requests if request.started_s < case.ttft}
    assert first == {f"p{number}" for number in range(case.concurrency)}


def test_streams_at_once_do_not_make_each_other_late(run: Run, tmp_path: Path) -> None:
    """With one pool for all connections, choosing one of 64 took so long that the last request began seconds late."""

    def cpu(concurrency: int) -> float:
        case = Case("at once", concurrency, 192, 0.5, 0.03, 2, 1, 0)
        began = time.process_time()
        run(measured(case, tmp_path / f"socket{concurrency}"))
        return time.process_time() - began

    cpu(64)
    assert cpu(64) < 2.5 * cpu(1)
