"""What ``/metrics`` shows, in Prometheus's text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from fleetctl.standalone.engine import Engine, Job


class Metrics:
    """The server's own registry; ``labels`` describe what it runs (mode, model, dtype, …)."""

    def __init__(self, labels: dict[str, str]) -> None:
        self._registry = CollectorRegistry()
        info = Gauge(
            "fleetctl_mode_info", "What this server runs; always 1.", list(labels), registry=self._registry
        )
        info.labels(**labels).set(1)
        self._running = self._gauge("fleetctl_requests_running", "Requests being generated.")
        self._queued = self._gauge("fleetctl_requests_queued", "Requests that wait.")
        self._length = self._gauge(
            "fleetctl_accepted_length", "Tokens committed per verify pass since the start, 0 before any."
        )
        self._generated = self._counter("fleetctl_generated_tokens", "Tokens of finished answers.")
        self._drafted = self._counter("fleetctl_drafted_tokens", "Draft tokens that were verified.")
        self._accepted = self._counter("fleetctl_accepted_tokens", "Draft tokens that the model confirmed.")
        self._passes = self._counter("fleetctl_verify_passes", "Verify passes.")
        self._totals = (0, 0)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self._registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self._registry)

    def finished(self, job: Job) -> None:
        """Add the tokens and passes of a job that has ended, cancelled ones included."""
        counts = job.counts
        self._generated.inc(job.completion_tokens)
        self._drafted.inc(counts.drafted)
        self._accepted.inc(counts.accepted)
        self._passes.inc(counts.verify_passes)
        accepted, passes = self._totals
        self._totals = (accepted + counts.accepted, passes + counts.verify_passes)
        if self._totals[1]:
            self._length.set(1 + self._totals[0] / self._totals[1])

    def render(self, engine: Engine) -> bytes:
        """The exposition, with the queue as it is now."""
        self._running.set(int(engine.running is not None))
        self._queued.set(engine.queued)
        return generate_latest(self._registry)
