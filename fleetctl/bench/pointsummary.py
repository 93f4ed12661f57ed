"""One point's requests in numbers: speed, latencies, accepted length, throughput, what failed. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from fleetctl.bench.agreement import Difference, among
from fleetctl.bench.naming import Name
from fleetctl.bench.record import Point, PointEnd, Request, Tree
from fleetctl.bench.statistics import Interval, interval, outliers

Floats = NDArray[np.float64]
Key = tuple[str, int]
_DRAWS = 2_000
_FEW, _MANY = 100, 400
ACCEPTED = ("sglang:mean_spec_accept_length", "fleetctl_accepted_length", "sglang:spec_accept_length")
_NO_MATTER: Floats = np.empty(0)


@dataclass(frozen=True)
class Visit:
    """A request with the run it is of and its key for statistics: prompt, and a repeat that no other run has."""

    run: str
    key: Key
    request: Request


@dataclass(frozen=True)
class Spread:
    """Seconds, sorted; quantiles of them are those of all requests (or gaps) together."""

    values: Floats

    def at(self, share: float) -> float | None:
        """The value below which ``share`` (0 to 1) of all lie; None of none."""
        if not len(self.values):
            return None
        position = share * (len(self.values) - 1)
        below = int(position)
        low, high = self.values[below], self.values[min(below + 1, len(self.values) - 1)]
        return float(low + (high - low) * (position - below))

    def step(self, share: float) -> float:
        """The smallest value that so large a share does not exceed; 0 of none."""
        count = len(self.values)
        return float(self.values[max(0, math.ceil(share * count - 1e-9) - 1)]) if count else 0.0


@dataclass(frozen=True)
class PromptSummary:
    """One prompt at one point. ``values``: tokens/s by repeat; ``context``: the prompt's tokens.

    ``unsteady``: where two of its own answers differ, which greedy ones must not.
    """

    name: str
    kind: str
    values: dict[int, float]
    writing: float | None
    first_s: float | None
    accepted: float | None
    context: float | None
    text: str
    finish: str | None
    trees: list[Tree]
    unsteady: Difference | None

    @property
    def mean(self) -> float:
        """Tokens/s, the mean of its repeats."""
        return fmean(self.values.values())

    @cached_property
    def speed(self) -> Interval:
        """The same with its interval, made when it is first asked for: there may be thousands of prompts."""
        return interval({(self.name, repeat): value for repeat, value in self.values.items()}, draws=_DRAWS)


@dataclass(frozen=True)
class PointSummary:
    """What was measured at one point, over all runs that have it.

    ``speed``: tokens/s of one request, its prompt's reading included; ``writings``: after its first token, by request;
    ``throughput``: tokens/s of all its requests together. ``first``: time to the first token, ``between``: a request's
    mean time for each token after it, ``gaps``: between two events of a stream, all in seconds. ``errors``: kind →
    how many, with the words of one. ``rounds``: how often it was measured, over all runs.
    """

    point: Point
    called: Name
    runs: list[str]
    ends: list[PointEnd]
    prompts: dict[str, PromptSummary]
    speeds: dict[Key, float]
    speed: Interval | None
    writings: dict[Key, float]
    accepted: Interval | None
    throughput: Interval | None
    first: Spread
    between: Spread
    gaps: Spread
    counted: int
    warmups: int
    errors: dict[str, tuple[int, str]]
    warnings: dict[str, int]
    outliers: list[str] = field(default_factory=list)
    rounds: int = 1

    @property
    def name(self) -> str:
        """What it is called among all points of its summary."""
        return self.called.whole

    @property
    def label(self) -> str:
        """What it is called among the points of its cell."""
        return self.called.label

    @cached_property
    def writing(self) -> Interval | None:
        """Tokens/s after a request's first token."""
        return _interval(self.writings)

    @property
    def failed(self) -> int:
        """Requests that brought no answer to count."""
        return sum(count for count, _ in self.errors.values())


def summarize_point(
    point: Point, called: Name, visits: Sequence[Visit], ends: list[PointEnd]
) -> PointSummary:
    """The numbers of one point; requests that failed are counted, and left out of all means."""
    measured = [visit for visit in visits if not visit.request.warmup]
    good = [visit for visit in measured if usable(visit.request)]
    speeds = {visit.key: visit.request.tokens / visit.request.end_s for visit in good}
    streams = [_Stream.of(visit.request) for visit in good]
    writing = {
        visit.key: 1 / stream.between
        for visit, stream in zip(good, streams, strict=True)
        if stream.between is not None
    }
    lengths = {visit.key: visit.request.accepted.length for visit in good if visit.request.accepted}
    return PointSummary(
        point=point,
        called=called,
        runs=list(dict.fromkeys(visit.run for visit in visits)),
        ends=ends,
        prompts=_prompts(visits, good, speeds, writing),
        speeds=speeds,
        speed=_interval(speeds),
        writings=writing,
        accepted=_interval(lengths) or _gauge(ends),
        throughput=_interval(_throughput(measured)),
        first=_spread(visit.request.ttft_s for visit in good),
        between=_spread(stream.between for stream in streams),
        gaps=Spread(np.sort(np.concatenate([stream.gaps for stream in streams] or [_NO_MATTER]))),
        counted=len(good),
        warmups=len(visits) - len(measured),
        errors=_errors(measured),
        warnings=dict(Counter(word for visit in measured for word in visit.request.warnings)),
        outliers=outliers(speeds) if speeds else [],
        rounds=len({(visit.run, visit.request.round) for visit in good}),
    )


def usable(request: Request) -> bool:
    """Whether an answer says how fast the service is."""
    return request.counts and request.tokens > 0 and request.end_s > 0


@dataclass(frozen=True)
class _Stream:
    gaps: Floats
    between: float | None

    @classmethod
    def of(cls, request: Request) -> _Stream:
        times = np.fromiter((event[0] for event in request.events), float, len(request.events))
        if len(times) < 2:
            return cls(_NO_MATTER, None)
        later = request.tokens - request.events[0][1]
        spent = float(times[-1] - times[0])
        return cls(np.diff(times), spent / later if later > 0 and spent > 0 else None)


def _prompts(
    visits: Sequence[Visit], good: Sequence[Visit], speeds: Mapping[Key, float], writing: Mapping[Key, float]
) -> dict[str, PromptSummary]:
    rows: defaultdict[str, list[Visit]] = defaultdict(list)
    for visit in good:
        rows[visit.key[0]].append(visit)
    drafted = {visit.key[0]: visit.request.trees for visit in reversed(visits) if visit.request.trees}
    return {name: _prompt(name, row, speeds, writing, drafted.get(name, [])) for name, row in rows.items()}


def _prompt(
    name: str, row: list[Visit], speeds: Mapping[Key, float], writing: Mapping[Key, float], trees: list[Tree]
) -> PromptSummary:
    row = sorted(row, key=lambda visit: visit.key)
    requests = [visit.request for visit in row]
    values = {visit.key[1]: speeds[visit.key] for visit in row}
    texts = [(f"#{visit.key[1]}", visit.request.text) for visit in row if visit.request.text]
    passes = sum(request.accepted.passes for request in requests if request.accepted)
    tokens = sum(request.accepted.tokens for request in requests if request.accepted)
    return PromptSummary(
        name=name,
        kind=requests[0].prompt_kind,
        values=values,
        writing=_middle([writing[visit.key] for visit in row if visit.key in writing]),
        first_s=_middle([request.ttft_s for request in requests if request.ttft_s is not None]),
        accepted=1 + tokens / passes if passes else None,
        context=_middle([request.prompt_tokens for request in requests if request.prompt_tokens is not None]),
        text=next((text for _, text in texts), ""),
        finish=requests[0].finish,
        trees=trees,
        unsteady=among(name, texts),
    )


def _gauge(ends: Sequence[PointEnd]) -> Interval | None:
    """The accepted length as the server itself says it last, where its answers do not tell."""
    said: list[float] = []
    for end in ends:
        after = end.metrics.get("after", {})
        known = [after[name] for name in ACCEPTED if after.get(name, 0) > 0]
        said += known[:1]
    return Interval(said[-1], said[-1], None, None, 1) if said else None


def _throughput(measured: Sequence[Visit]) -> dict[Key, float]:
    """Tokens/s of all requests of one round of a run together: from the first one's start to the last one's end."""
    rounds: defaultdict[tuple[str, int], list[Request]] = defaultdict(list)
    for visit in measured:
        rounds[visit.run, visit.request.round].append(visit.request)
    found: dict[Key, float] = {}
    for number, requests in enumerate(rounds.values()):
        began = min(request.started_s for request in requests)
        ended = max(request.started_s + request.end_s for request in requests)
        tokens = sum(request.tokens for request in requests if usable(request))
        if tokens and ended > began:
            found["all", number] = tokens / (ended - began)
    return found


def _errors(measured: Sequence[Visit]) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for visit in measured:
        if usable(visit.request):
            continue
        error = visit.request.error
        kind: str = error.kind if error else "empty"
        words = error.what if error else "an answer of no tokens"
        if error and error.status:
            kind = f"{kind} {error.status}"
        count, first = found.get(kind, (0, words))
        found[kind] = (count + 1, first)
    return found


def _interval(values: Mapping[Key, float]) -> Interval | None:
    return interval(values, draws=draws(values)) if values else None


def draws(values: Mapping[Key, float]) -> int | None:
    """How often to resample: as often as ``interval`` does where values are few, else enough for two digits."""
    return None if len(values) <= _FEW else _DRAWS if len(values) <= _MANY else _DRAWS // 2


def _middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _spread(values: Iterable[float | None]) -> Spread:
    return Spread(np.sort(np.array([value for value in values if value is not None], float)))
