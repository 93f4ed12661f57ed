"""What a point will take, by what was measured on its host before."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median

from fleetctl.bench.points import Estimate, Planned
from fleetctl.bench.records import Recording, load, recordings
from fleetctl.errors import FleetError

RUNS = 5
LARGEST = 32 << 20


def from_records(root: Path, host: str, max_tokens: int) -> Estimate:
    """Estimates out of the newest runs on ``host`` below the fleet folder; a service's own, never another's.

    A request's seconds are scaled to ``max_tokens``: of answers that came to their limit, by their length.
    """
    swaps: defaultdict[str, list[float]] = defaultdict(list)
    rates: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    lengths: defaultdict[str, list[float]] = defaultdict(list)
    for recording in _newest(root, host):
        _learn(recording, max_tokens, swaps, rates, lengths)

    def estimate(point: Planned) -> tuple[float | None, float | None]:
        swap = median(swaps[point.service]) if swaps[point.service] else None
        rate = rates.get((point.service, point.concurrency))
        if not rate:
            return swap, None
        return swap, median(rate) * min(max_tokens, median(lengths[point.service]))

    return estimate


def _newest(root: Path, host: str) -> list[Recording]:
    found: list[Recording] = []
    for path in recordings(root):
        if len(found) == RUNS:
            break
        try:
            if path.stat().st_size <= LARGEST:
                recording = load(path)
                if any(point.host == host for point in recording.points):
                    found.append(recording)
        except (FleetError, OSError):
            continue
    return found


def _learn(
    recording: Recording,
    max_tokens: int,
    swaps: defaultdict[str, list[float]],
    rates: defaultdict[tuple[str, int], list[float]],
    lengths: defaultdict[str, list[float]],
) -> None:
    """Seconds a swap, seconds a token, and the length that answers have with so much room."""
    points = {point.id: point for point in recording.points}
    for end in recording.ends.values():
        if end.swap_s is not None and end.visits:
            swaps[points[end.point].service].append(end.swap_s / end.visits)
    for request in recording.requests:
        if request.counts and request.tokens:
            point = points[request.point]
            rates[point.service, point.concurrency].append(request.end_s / request.tokens)
            cut = request.finish == "length"
            lengths[point.service].append(float(max_tokens if cut else request.tokens))
