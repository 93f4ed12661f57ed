"""Which of several candidates is quickest: successive elimination with a stated family error. Pure.

All candidates answer the same prompts, batch by batch; after each batch those that another one clearly beats leave. A
comparison is Student's t on the prompts' paired log ratios, at the family's error divided by the number of rivals and
by the number of looks (both fixed beforehand), so that the best one leaves with at most that probability, however the
race goes: Bonferroni's inequality over all the tests that could throw it out.

All answers of a candidate in a look come in one stretch, and a busy stretch of the machine slows all of them: prompts
alone do not tell that from a slow candidate. So nobody leaves who was not slower in each look, and after but one
look only who is slower by more than machines drift.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, stdev

from fleetctl.bench.statistics import Values, log_ratios, student_quantile
from fleetctl.errors import Exit, FleetError

FAMILY_ERROR = 0.05
DRIFT = 0.8
"""After one look a candidate leaves that is surely below this share of another one."""
FEWEST_PROMPTS = 3
"""Prompts that a comparison needs: below, nobody leaves."""


@dataclass(frozen=True)
class Elimination:
    """``name`` left at look ``look``: it is ``ratio`` times ``by``, and at most ``high`` times."""

    name: str
    by: str
    look: int
    ratio: float
    high: float


@dataclass
class Race:
    """The state of a race; ``looks``: how many times :meth:`look` may be called at most."""

    names: list[str]
    looks: int
    error: float = FAMILY_ERROR
    out: list[Elimination] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    _looked: int = 0
    _speeds: dict[str, dict[tuple[str, int], float]] = field(default_factory=lambda: defaultdict(dict))
    _looks: list[set[tuple[str, int]]] = field(default_factory=lambda: [set()])

    def add(self, name: str, speeds: Values) -> None:
        """What one candidate brought for the next look: tokens per second by (prompt, repeat)."""
        self._speeds[name].update(speeds)
        self._looks[-1].update(speeds)

    def drop(self, name: str, why: str) -> None:
        """Take a candidate out that cannot be measured."""
        self.dropped[name] = why

    @property
    def running(self) -> list[str]:
        """Who is still in it, in the order of ``names``."""
        gone = {elimination.name for elimination in self.out} | set(self.dropped)
        return [name for name in self.names if name not in gone]

    @property
    def leader(self) -> str:
        """The one still in it that is quickest on the prompts that all of these have."""
        running = self.running
        shared = set.intersection(*(set(self._speeds[name]) for name in running)) if running else set()
        if not shared:
            raise FleetError(
                "no prompt was answered by all that are compared",
                "tune",
                "the records name each request's error",
                exit=Exit.PREFLIGHT,
            )
        return max(running, key=lambda name: fmean(math.log(self._speeds[name][key]) for key in shared))

    def look(self) -> list[Elimination]:
        """Compare all that are still in it with each other; who leaves, and beaten by whom."""
        self._looked += 1
        if self._looked > self.looks:
            raise ValueError(f"look {self._looked} of {self.looks}: the stated error would not hold")
        running = self.running
        found = [worst for name in running if (worst := self._beaten(name, running)) is not None]
        self.out += found
        self._looks.append(set())
        return found

    def ratio(self, name: str, other: str) -> float | None:
        """How many times ``other`` is ``name``, on the prompts that both have; None where there are none."""
        logs = self._paired(name, other)
        return math.exp(fmean(logs)) if logs else None

    def _beaten(self, name: str, running: list[str]) -> Elimination | None:
        """By which of the others ``name`` is beaten most clearly, if by any."""
        rivals = [
            (self._highest(name, other), other)
            for other in running
            if other != name and self._slower_each_time(name, other)
        ]
        high, by = min(rivals, default=(math.inf, ""))
        if high >= 1:
            return None
        ratio = self.ratio(name, by)
        assert ratio is not None
        return Elimination(name, by, self._looked, ratio, high)

    def _highest(self, name: str, other: str) -> float:
        """The upper limit of the ratio of ``name`` to ``other``, at this one comparison's share of the error."""
        logs = self._paired(name, other)
        if len(logs) < FEWEST_PROMPTS:
            return math.inf
        share = self.error / (max(1, len(self.names) - 1) * self.looks)
        width = student_quantile(1 - share, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
        high = math.exp(fmean(logs) + width)
        return high if high < DRIFT or self._shared_looks(name, other) > 1 else max(1.0, high)

    def _slower_each_time(self, name: str, other: str) -> bool:
        return all(fmean(logs) < 0 for logs in self._by_look(name, other))

    def _shared_looks(self, name: str, other: str) -> int:
        return len(self._by_look(name, other))

    def _by_look(self, name: str, other: str) -> list[list[float]]:
        """The log ratios of each look in which both were measured."""
        mine, theirs = self._speeds[name], self._speeds[other]
        rows = [[key for key in look if key in mine and key in theirs] for look in self._looks]
        return [[math.log(mine[key] / theirs[key]) for key in row] for row in rows if row]

    def _paired(self, name: str, other: str) -> list[float]:
        """One log ratio a prompt: the mean over the repeats that both have."""
        mine, theirs = self._speeds[name], self._speeds[other]
        if not set(mine) & set(theirs):
            return []
        prompts: defaultdict[str, list[float]] = defaultdict(list)
        for (prompt, _), log in log_ratios(mine, theirs).items():
            prompts[prompt].append(log)
        return [fmean(logs) for logs in prompts.values()]


def batches(prompts: list[str], looks: int) -> list[list[str]]:
    """The prompts in ``looks`` parts (fewer where there are few), the first never below what a comparison needs."""
    looks = max(1, min(looks, len(prompts) // FEWEST_PROMPTS))
    ends = [round(len(prompts) * look / looks) for look in range(looks + 1)]
    return [prompts[start:end] for start, end in pairwise(ends)]
