"""What measured values say and how surely: means with bootstrap intervals, paired ratios, outliers. Pure.

Values are keyed by (prompt, repeat). Prompts are drawn anew first and then each one's repeats, since what varies most
is the prompt, and the repeats of one prompt are not independent of each other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean, median

import numpy as np
from numpy.typing import NDArray

from fleetctl.errors import Exit, FleetError

Values = Mapping[tuple[str, int], float]

CONFIDENCE = 0.95
OUTLIER_DEVIATIONS = 3.5
OUTLIER_LEAST = 0.05
_CELLS = 4_000_000
_CHUNK = 250_000
_FEWEST_DRAWS, _MOST_DRAWS = 2_000, 20_000


@dataclass(frozen=True)
class Interval:
    """A mean, or a geometric mean of ratios, with its interval.

    ``median``: of the prompts' medians. ``low``, ``high``: None where one value alone says nothing about its spread.
    ``n``: values. ``prompts``: how many prompts they are of; where it is 1 the interval speaks of that prompt only.
    """

    median: float
    mean: float
    low: float | None
    high: float | None
    n: int
    prompts: int = 1
    confidence: float = CONFIDENCE


def interval(
    values: Values, *, seed: int = 0, confidence: float = CONFIDENCE, draws: int | None = None
) -> Interval:
    """The mean over prompts (of each one's mean over its repeats) and its bootstrap interval; seeded.

    Percentiles are expanded for the number of prompts (Hesterberg 2015, "What Teachers Should Know About the
    Bootstrap"): plain ones are too narrow where prompts are few. FleetError where there are no values, or one is not
    finite.
    """
    return _interval(_by_prompt(values), lambda value: value, seed, confidence, draws)


def paired_ratio(
    a: Values, b: Values, *, seed: int = 0, confidence: float = CONFIDENCE, draws: int | None = None
) -> Interval:
    """How many times ``a`` is ``b``: geometric mean over the prompts that both have, and its interval.

    Each (prompt, repeat) of ``a`` is divided by the same one of ``b``, so what both share (the prompt, a busy moment
    of an interleaved round) falls out; one that only one side has is left out. FleetError where nothing is shared, or a
    value is not above zero.
    """
    return _interval(_by_prompt(log_ratios(a, b)), math.exp, seed, confidence, draws)


def log_ratios(a: Values, b: Values) -> dict[tuple[str, int], float]:
    """Natural logarithms of ``a`` over ``b``, of every key that both have; errors as :func:`paired_ratio`."""
    shared = [key for key in a if key in b]
    if not shared:
        raise FleetError(
            "the two share no prompt and repeat, so there is no ratio",
            "statistics",
            "compare points that ran the same prompts",
            exit=Exit.INPUT,
        )
    if any(not _positive(side[key]) for key in shared for side in (a, b)):
        raise FleetError(
            "a ratio needs values above zero",
            "statistics",
            "leave out requests that failed or brought no tokens",
            exit=Exit.INPUT,
        )
    return {key: math.log(a[key] / b[key]) for key in shared}


def differs(found: Interval, null: float = 1.0) -> bool:
    """Whether ``null`` lies outside the interval: only then is a difference one."""
    return found.low is not None and found.high is not None and not found.low <= null <= found.high


def contrary(a: Values, b: Values) -> list[str]:
    """Prompts whose own ratio of ``a`` to ``b`` lies on the other side of 1 than that of all together."""
    prompts = {name: fmean(logs) for name, logs in _by_prompt(log_ratios(a, b)).items()}
    overall = fmean(prompts.values())
    return [name for name, log in prompts.items() if log * overall < 0]


def outliers(values: Values) -> list[str]:
    """Repeats far from their prompt's median, as ``prompt #repeat``; they stay in the mean, and are only named.

    Far: over 3.5 robust deviations (1.4826 × MAD of all repeats' relative distances) and over 5 %.
    """
    middles = {name: median(row) for name, row in _by_prompt(values).items() if len(row) > 2}
    away = {key: value / middles[key[0]] - 1 for key, value in values.items() if middles.get(key[0])}
    if not away:
        return []
    limit = max(OUTLIER_LEAST, OUTLIER_DEVIATIONS * 1.4826 * median(abs(d) for d in away.values()))
    return [f"{prompt} #{repeat}" for (prompt, repeat), d in away.items() if abs(d) > limit]


def _interval(
    rows: dict[str, list[float]],
    shown: Callable[[float], float],
    seed: int,
    confidence: float,
    draws: int | None,
) -> Interval:
    """The interval of the mean of ``rows``, its ends and middle passed through ``shown`` (monotonic)."""
    count = sum(map(len, rows.values()))
    low: float | None = None
    high: float | None = None
    if count > 1:
        means = _resampled(list(rows.values()), seed, draws)
        tail = expanded_tail(len(rows) if len(rows) > 1 else count, confidence)
        low, high = (shown(float(end)) for end in np.quantile(means, [tail, 1 - tail]))
    return Interval(
        median=shown(median(median(row) for row in rows.values())),
        mean=shown(fmean(fmean(row) for row in rows.values())),
        low=low,
        high=high,
        n=count,
        prompts=len(rows),
        confidence=confidence,
    )


def _by_prompt(values: Values) -> dict[str, list[float]]:
    rows: defaultdict[str, list[float]] = defaultdict(list)
    for (prompt, _), value in values.items():
        if not math.isfinite(value):
            raise FleetError(
                f"{prompt}: {value} is no measurement", "statistics", "leave it out", exit=Exit.INPUT
            )
        rows[prompt].append(value)
    if not rows:
        raise FleetError(
            "nothing was measured: no value to make a mean of",
            "statistics",
            "did all requests fail?",
            exit=Exit.INPUT,
        )
    return dict(rows)


def _resampled(rows: list[list[float]], seed: int, draws: int | None) -> NDArray[np.float64]:
    """Means of bootstrap samples, (draws,): prompts drawn with replacement, then each one's repeats."""
    most = max(map(len, rows))
    cells = len(rows) * most
    if draws is None:
        draws = max(_FEWEST_DRAWS, min(_MOST_DRAWS, _CELLS // cells))
    table = np.zeros((len(rows), most))
    counts = np.array([len(row) for row in rows])
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    random = np.random.default_rng(seed)
    chunk = max(1, _CHUNK // cells)
    sizes = [min(chunk, draws - start) for start in range(0, draws, chunk)]
    return np.concatenate([_sample(table, counts, size, random) for size in sizes])


def _sample(
    table: NDArray[np.float64], counts: NDArray[np.int64], size: int, random: np.random.Generator
) -> NDArray[np.float64]:
    prompts, most = table.shape
    rows = random.integers(0, prompts, (size, prompts)) if prompts > 1 else np.zeros((size, 1), np.int64)
    if most == 1:
        return np.asarray(table[rows, 0].mean(axis=1))
    held = counts[rows]
    columns = (random.random((size, prompts, most)) * held[..., None]).astype(np.int64)
    values = table[rows[..., None], columns] * (np.arange(most) < held[..., None])
    return np.asarray((values.sum(axis=2) / held).mean(axis=1))


@lru_cache(maxsize=256)
def expanded_tail(count: int, confidence: float) -> float:
    """The share to cut from each end of a bootstrap's means so that ``count`` samples give ``confidence``."""
    wide = math.sqrt(count / (count - 1)) * student_quantile((1 + confidence) / 2, count - 1)
    return NormalDist().cdf(-wide)


@lru_cache(maxsize=256)
def student_quantile(share: float, freedom: int) -> float:
    """Student's t: the value below which ``share`` (0.5 to 1) lies, for ``freedom`` degrees of freedom."""
    low, high = 0.0, 1.0
    while _student_share(high, freedom) < share:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_share(middle, freedom) < share else (low, middle)
    return high


def _student_share(t: float, freedom: int) -> float:
    """The share of Student's t below ``t`` >= 0: Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term, total = (math.cos(angle), 0.0) if odd else (1.0, 0.0)
    for index in range(2 + odd, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (index - 1) / index
    whole = math.sin(angle) * total
    if odd:
        whole = 2 / math.pi * (angle + whole)
    return (1 + whole) / 2


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0
