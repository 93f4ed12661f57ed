"""The speed of requests so far, for progress lines; what reports say is made by the summary. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.bench.record import Request


def speed(requests: Sequence[Request], concurrency: int) -> float | None:
    """Tokens a second of those that count: of one request at a time, or of all together where several run at once."""
    counted = [request for request in requests if request.counts and request.tokens]
    if not counted:
        return None
    tokens = sum(request.tokens for request in counted)
    if concurrency == 1:
        return tokens / sum(request.end_s for request in counted)
    seconds = 0.0
    for number in {request.round for request in counted}:
        spans = [(one.started_s, one.started_s + one.end_s) for one in counted if one.round == number]
        seconds += max(end for _, end in spans) - min(start for start, _ in spans)
    return tokens / seconds if seconds else None
