"""A server's ``/metrics``: Prometheus's text as names and numbers, labels summed. Pure but for the asking."""

from __future__ import annotations

import math
from collections.abc import Mapping

import httpx

LEFT_OUT = ("_bucket", "_created", "_info")
COUNTERS = ("_total", "_sum", "_count")
ASK_S = 5.0


def parse(text: str) -> dict[str, float]:
    """Each metric's value, summed over its labels; histograms' buckets and what is no number are left out."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        head, brace, rest = line.partition("{")
        name, _, value = (head, "", rest.rpartition("}")[2]) if brace else line.partition(" ")
        name = name.strip()
        words = value.split()
        if not words or not name or name.endswith(LEFT_OUT):
            continue
        try:
            number = float(words[0])
        except ValueError:
            continue
        if math.isfinite(number):
            found[name] = found.get(name, 0.0) + number
    return found


def fetch(base_url: str, socket: str | None = None) -> dict[str, float]:
    """What the server's ``/metrics`` says; empty where it serves none."""
    try:
        with httpx.Client(trust_env=False, transport=httpx.HTTPTransport(uds=socket), timeout=ASK_S) as http:
            answer = http.get(base_url.rstrip("/") + "/metrics")
    except (httpx.HTTPError, OSError):
        return {}
    return parse(answer.text) if answer.status_code == 200 else {}


def in_flight(metrics: Mapping[str, float], names: Mapping[str, str]) -> float | None:
    """Requests running and queued; None where the metrics do not tell."""
    known = [metrics[name] for name in names.values() if name in metrics]
    return sum(known) if known else None


def added(sums: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Counters of two stretches as one: counters are summed, what goes up and down has its last value."""
    return {
        **sums,
        **{
            name: value + (sums.get(name, 0.0) if name.endswith(COUNTERS) else 0.0)
            for name, value in more.items()
        },
    }
