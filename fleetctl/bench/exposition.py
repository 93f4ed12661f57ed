"""A server's ``/metrics``: Prometheus's text as names and numbers, labels summed. Pure but for the asking."""

from __future__ import annotations

import math
from collections.abc import Mapping

import httpx
import msgspec

LEFT_OUT = ("_bucket", "_created", "_info")
COUNTERS = ("_total", "_sum", "_count")
ASK_S = 5.0
SINCE_LATELY = "sglang:spec_accept_length"
SINCE_START = "sglang:mean_spec_accept_length"


class _State(msgspec.Struct):
    avg_spec_accept_length: float | None = None


class _ServerInfo(msgspec.Struct):
    internal_states: list[_State] = msgspec.field(default_factory=list)


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
    """What the server's ``/metrics`` says, and SGLang's ``/server_info`` of drafts; empty where it serves none.

    SGLang's own metric of the accepted length is of its last 40 passes; the mean since its start is in the other.
    """
    found = parse(_get(base_url, "/metrics", socket))
    if SINCE_LATELY not in found:
        return found
    mean = mean_accepted(_get(base_url, "/server_info", socket))
    return {**found, SINCE_START: mean} if mean is not None else found


def mean_accepted(text: str) -> float | None:
    """The accepted length since the start, in SGLang's ``/server_info``; None where it does not draft or tell."""
    try:
        said = msgspec.json.decode(text, type=_ServerInfo)
    except msgspec.DecodeError:
        return None
    known = [one.avg_spec_accept_length for one in said.internal_states if one.avg_spec_accept_length]
    return sum(known) / len(known) if known else None


def _get(base_url: str, path: str, socket: str | None) -> str:
    """A page's text; empty where it is not there."""
    try:
        with httpx.Client(trust_env=False, transport=httpx.HTTPTransport(uds=socket), timeout=ASK_S) as http:
            answer = http.get(base_url.rstrip("/") + path)
    except (httpx.HTTPError, OSError):
        return ""
    return answer.text if answer.status_code == 200 else ""


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
