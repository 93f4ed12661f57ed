"""What DDTREE measures: nodes drafted and accepted by depth, and the time of each phase of a step.

A step's phases end where the next begins: draft, build, verify, commit, and host: waiting for the accepted tokens and
the bookkeeping, while the device has nothing to do. Device times come from events that are read one or more steps
later, so measuring waits for nothing.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import pairwise
from typing import Any

import torch

PHASES = ("draft", "build", "verify", "commit", "host")


class Report(list[Any]):
    """What the passes of one request did, for the answer's ``meta_info``: ``ddtree`` in a request's own information.

    SGLang slices such information by the tokens that it sends; every slice of this one is all that is known so far:
    ``{"passes", "accepted_by_depth": [nodes accepted at depth 1, 2, …], "phase_ms": {phase: sum}, "timed_passes"}``.
    A pass's time is that of its batch, on the device; the last passes' may not be known when an answer is sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0
        self.timed = 0
        self.by_depth: list[int] = []
        self.seconds = [0.0] * len(PHASES)

    @classmethod
    def of(cls, req: Any) -> Report:
        """The request's own; made where it has none yet."""
        if req.customized_info is None:
            req.customized_info = {}
        found: Report = req.customized_info.setdefault("ddtree", cls())
        return found

    def add(self, accepted: int) -> None:
        """A pass in which so many drafts were accepted: one at each depth."""
        self.passes += 1
        self.by_depth += [0] * (accepted - len(self.by_depth))
        for depth in range(accepted):
            self.by_depth[depth] += 1

    def time(self, seconds: list[float]) -> None:
        """A pass's phases, on the device."""
        self.timed += 1
        self.seconds = [a + b for a, b in zip(self.seconds, seconds, strict=True)]

    def __getitem__(self, which: Any) -> Any:
        return {
            "passes": self.passes,
            "accepted_by_depth": list(self.by_depth),
            "phase_ms": {
                name: round(1000 * value, 3) for name, value in zip(PHASES, self.seconds, strict=True)
            },
            "timed_passes": self.timed,
        }


class Clock:
    """Marks the phases of a step; ``read`` returns the seconds (device, host) of those that are known."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self._events: list[Any] = []
        self._times: list[float] = []
        self._pending: deque[tuple[list[Any], list[float], list[Report]]] = deque(maxlen=64)

    def start(self) -> None:
        """A step begins, with its first phase."""
        if self.enabled:
            self._events, self._times = [], []
            self.mark()

    def mark(self) -> None:
        """A phase ends here, and the next begins."""
        if self.enabled:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
            self._times.append(time.perf_counter())

    def finish(self, reports: list[Report]) -> None:
        """The pass of these requests ends here; phases that were not told apart belong to the last one that was."""
        if self.enabled and self._events:
            while len(self._events) <= len(PHASES):
                self.mark()
            self._pending.append((self._events, self._times, reports))
            self._events = []

    def read(self) -> list[tuple[list[float], list[float]]]:
        """(device seconds, host seconds) by phase, of the steps that the device has finished since."""
        done = []
        while self._pending and self._pending[0][0][-1].query():
            events, times, reports = self._pending.popleft()
            device = [a.elapsed_time(b) / 1000 for a, b in pairwise(events)]
            host = [b - a for a, b in pairwise(times)]
            done.append((device, host))
            for report in reports:
                report.time(device)
        return done


class Metrics:
    """Counters in ``/metrics``; without ``enabled`` nothing is counted."""

    def __init__(self, enabled: bool, labels: dict[str, str]) -> None:
        self.enabled = enabled
        if not enabled:
            return
        # After sglang set PROMETHEUS_MULTIPROC_DIR, which the import reads.
        from prometheus_client import Counter

        def counter(name: str, what: str, *more: str) -> Any:
            return Counter(f"sglang:ddtree_{name}", what, [*labels, *more])

        self._labels = labels
        self._steps = counter("steps", "Verify passes, counted once for each request")
        self._tokens = counter("committed_tokens", "Tokens committed by verify passes")
        self._drafted = counter("nodes_drafted", "Nodes drafted, by depth", "depth")
        self._accepted = counter("nodes_accepted", "Nodes accepted, by depth", "depth")
        self._seconds = counter("phase_seconds", "Seconds spent in a phase of steps", "phase", "clock")
        self._passes = counter("passes", "Steps of a batch whose phases were measured")

    def count(self, committed: list[int], drafted_by_depth: list[int]) -> None:
        """One pass: tokens committed for each request, and nodes drafted at depths 1, 2, … in all."""
        if not self.enabled:
            return
        self._steps.labels(**self._labels).inc(len(committed))
        self._tokens.labels(**self._labels).inc(sum(committed))
        for depth, nodes in enumerate(drafted_by_depth, 1):
            if nodes:
                self._drafted.labels(**self._labels, depth=depth).inc(nodes)
            accepted = sum(tokens > depth for tokens in committed)
            if accepted:
                self._accepted.labels(**self._labels, depth=depth).inc(accepted)

    def time(self, steps: list[tuple[list[float], list[float]]]) -> None:
        """Phases of steps, as ``Clock.read`` returns them."""
        if not self.enabled:
            return
        for device, host in steps:
            self._passes.labels(**self._labels).inc()
            for clock, seconds in (("device", device), ("host", host)):
                for phase, value in zip(PHASES, seconds, strict=True):
                    self._seconds.labels(**self._labels, phase=phase, clock=clock).inc(value)
