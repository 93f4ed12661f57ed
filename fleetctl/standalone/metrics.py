"""The server's Prometheus metrics."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)

from fleetctl.standalone.generate import Counts
from fleetctl.standalone.queue import Queue

_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)


class Metrics:
    """What ``/metrics`` tells; ``queue`` is read when it is asked."""

    def __init__(self, queue: Queue, about: dict[str, str]) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry()
        Info("fleetctl_server", "How this server was started", registry=self.registry).info(about)
        Gauge("fleetctl_requests_running", "Requests that generate", registry=self.registry).set_function(
            lambda: queue.running
        )
        Gauge("fleetctl_requests_queued", "Requests that wait", registry=self.registry).set_function(
            lambda: queue.queued
        )
        self.requests = Counter(
            "fleetctl_requests", "Requests by how they ended", ["outcome"], registry=self.registry
        )
        self._prompt = Counter("fleetctl_prompt_tokens", "Prompt tokens read", registry=self.registry)
        self._generated = Counter("fleetctl_generated_tokens", "Tokens answered", registry=self.registry)
        self._drafted = Counter("fleetctl_drafted_tokens", "Tokens drafted", registry=self.registry)
        self._accepted = Counter(
            "fleetctl_accepted_tokens", "Drafted tokens accepted", registry=self.registry
        )
        self._passes = Counter(
            "fleetctl_verify_passes", "Passes that verified a draft", registry=self.registry
        )
        self._length = Histogram(
            "fleetctl_accepted_length",
            "Tokens that a verify pass committed, the target's own included",
            buckets=_LENGTHS,
            registry=self.registry,
        )

    def prompt(self, tokens: int) -> None:
        """A prompt of so many tokens was read."""
        self._prompt.inc(tokens)

    def step(self, committed: int, before: Counts, after: Counts) -> None:
        """A step committed so many tokens; ``before`` and ``after`` are the generation's counts around it."""
        self._generated.inc(committed)
        self._drafted.inc(after.drafted - before.drafted)
        self._accepted.inc(after.accepted - before.accepted)
        if after.passes > before.passes:
            self._passes.inc(after.passes - before.passes)
            self._length.observe(committed)

    def render(self) -> bytes:
        """The text of Prometheus."""
        return generate_latest(self.registry)
