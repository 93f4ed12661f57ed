"""How well the benchmark's own client measures: its times against those of a server that keeps a schedule.

    python -m benchmarks.bench_client [--json FILE]

The server (tests/bench/scheduled.py) runs in a process of its own and says when each event really left; an error is
what the client says beside that. Exit status 1 where an error is over its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import httpx

from fleetctl.bench.client import Ask, Client
from fleetctl.bench.record import Request
from tests.bench.scheduled import running

CPU_BOUND = 0.5


@dataclass(frozen=True)
class Case:
    """``concurrency`` streams, ``per_event`` tokens every ``itl`` seconds; ``bound``: largest error."""

    name: str
    concurrency: int
    requests: int
    ttft: float
    itl: float
    tokens: int
    per_event: int
    bound: float
    cpu_bound: float | None = None

    @property
    def model(self) -> str:
        """The schedule, as the server reads it."""
        return f"steady?ttft={self.ttft}&itl={self.itl}&tokens={self.tokens}&per_event={self.per_event}"

    @property
    def rate(self) -> float:
        """Tokens per second of all streams together, while they run."""
        return self.concurrency * self.per_event / self.itl


CASES = [
    Case("one stream", 1, 8, 0.2, 0.02, 100, 1, 0.02),
    Case("one stream, drafted", 1, 8, 0.2, 0.05, 160, 4, 0.02),
    Case("500 tokens/s", 16, 32, 0.2, 0.032, 150, 1, 0.05, CPU_BOUND),
    Case("2,000 tokens/s", 64, 128, 0.2, 0.032, 150, 1, 0.05),
]


@dataclass(frozen=True)
class Figures:
    """Relative errors of a case: the median over its requests of their size, and the 95th percentile.

    ``cpu``: cores that the client took.
    """

    case: Case
    ttft: tuple[float, float]
    itl: tuple[float, float]
    speed: tuple[float, float]
    cpu: float
    seconds: float

    @property
    def worst(self) -> float:
        """The largest of the median errors."""
        return max(self.ttft[0], self.itl[0], self.speed[0])

    @property
    def holds(self) -> bool:
        """Whether all is within the case's bounds."""
        return self.worst <= self.case.bound and self.cpu <= (self.case.cpu_bound or 99)


def run_case(url: str, case: Case) -> Figures:
    """Measure one case against the scheduled server at ``url``."""
    httpx.get(f"{url}/sent", trust_env=False)
    asks = [
        Ask(f"p{number}", [{"role": "user", "content": f"prompt {number}"}], case.tokens)
        for number in range(case.requests)
    ]
    began, cpu = time.perf_counter(), time.process_time()
    measured = asyncio.run(_load(url, case, asks))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    failed = [request.error for request in measured if request.error]
    if failed:
        raise SystemExit(f"{case.name}: {len(failed)} requests failed: {failed[0]}")
    sent = {entry["prompt"]: entry["events"] for entry in httpx.get(f"{url}/sent", trust_env=False).json()}
    pairs = [(request, sent[f"prompt {request.prompt[1:]}"]) for request in measured]
    return Figures(
        case,
        _size([_error(request.ttft_s or 0.0, events[0][0]) for request, events in pairs]),
        _size([_error(_gap(request.events), _gap(events)) for request, events in pairs]),
        _size(
            [_error(request.tokens / request.end_s, case.tokens / events[-1][0]) for request, events in pairs]
        ),
        cpu / seconds,
        seconds,
    )


async def _load(url: str, case: Case, asks: list[Ask]) -> list[Request]:
    async with Client(url, case.model) as client:
        return await client.load(asks, case.concurrency)


def _gap(events: list[Any]) -> float:
    """The mean time between tokens behind the first event, in seconds."""
    return float((events[-1][0] - events[0][0]) / sum(tokens for _, tokens in events[1:]))


def _error(found: float, true: float) -> float:
    return abs(found / true - 1)


def _size(errors: list[float]) -> tuple[float, float]:
    ordered = sorted(errors)
    return median(ordered), ordered[int(0.95 * (len(ordered) - 1))]


def main() -> None:
    """Measure all cases, print them, and say whether they hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f} before; median error over the requests (95th percentile)")
    found = []
    with running() as url:
        for case in CASES:
            figures = run_case(url, case)
            found.append(figures)
            cells = [f"{name} {mid:.2%} ({high:.2%})" for name, (mid, high) in (
                ("TTFT", figures.ttft), ("ITL", figures.itl), ("tokens/s", figures.speed))]  # fmt: skip
            print(f"{case.name:20} {'   '.join(cells)}   client {figures.cpu:.2f} cores"
                  f"   {'holds' if figures.holds else f'OVER {case.bound:.0%}'}", flush=True)  # fmt: skip
    if given.json:
        mean = fmean(figures.worst for figures in found)
        given.json.write_text(
            json.dumps({"load": load, "mean": mean, "cases": [asdict(f) for f in found]}, indent=1) + "\n"
        )
    sys.exit(not all(figures.holds for figures in found))


if __name__ == "__main__":
    main()
