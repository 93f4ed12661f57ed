"""``fleetctl sweep``: a suite's points one after the other, each once.

What was measured before under the same digest is taken over, so a sweep goes on where it was stopped or killed. A point
that is clearly worse than the best so far is stopped after the round that shows it. Where requests are still in flight
at a service, nothing follows until they have ended (the session sees to that).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from fleetctl.bench import placing, prompts
from fleetctl.bench.measured import Foresight, Measured, measured_before, speeds
from fleetctl.bench.points import BenchPlan, Planned, Visit
from fleetctl.bench.record import End, HostFacts, Outcome, Request
from fleetctl.bench.records import Writer, utc_now
from fleetctl.bench.runner import CARRY_ON, Job, Result, Watcher, new_run
from fleetctl.bench.session import Session
from fleetctl.bench.statistics import Values, paired_ratio
from fleetctl.errors import Exit, FleetError
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.transport.agent import open_agent

MARGIN = 0.9
"""A point is clearly worse whose speed is surely below this share of the best one's."""


@dataclass(frozen=True)
class Prepared:
    """A sweep before it begins. ``job``: with what is left to measure as its plan; ``known``: the rest, by id."""

    job: Job
    known: dict[str, Measured]
    every: dict[str, Measured] = field(default_factory=dict)
    """All that was measured before, by digest."""


def prepare(job: Job, *, again: bool = False) -> Prepared:
    """Look up what of ``job`` was measured before; with ``again`` nothing counts as that.

    Visits of the job that comes back are single rounds, point by point.
    """
    digest = prompts.digest(list(job.prompts))
    root, host = job.fleet.root, job.host
    every = {} if again else measured_before(root, host.name, digest, job.suite)
    known: dict[str, Measured] = {}
    if every:
        with open_agent(host) as agent:
            foresight = Foresight(job.fleet, host, agent, job.suite, digest)
            for point in job.plan.points:
                told = foresight.digest(point)
                if told in every:
                    known[point.id] = every[told]
    visits = _by_round([visit for visit in job.plan.visits if visit.point.id not in known])
    plan = BenchPlan(job.plan.points, visits, job.plan.left_out)
    return Prepared(replace(job, plan=plan), known, every)


def run_sweep(
    prepared: Prepared, interrupt: Interrupt, watcher: Watcher, *, margin: float = MARGIN
) -> Result:
    """Measure what is left, then put back what stood in the slots; the records hold what was known too.

    A point that cannot be measured is left out and named. Raises FleetError as :func:`run_bench`.
    """
    job = prepared.job
    with open_agent(job.host) as agent:
        facts = placing.host_facts(agent)
    with Writer(job.fleet.root, new_run(job.suite, job.prompts, job.command)) as writer:
        writer.write(HostFacts(job.host.name, facts))
        sweep = _Sweep(prepared, interrupt, watcher, writer, margin)
        try:
            outcome, why = sweep.run()
        except (FleetError, KeyboardInterrupt) as error:
            ended = _interrupted() if isinstance(error, KeyboardInterrupt) else error
            stopped = ended.exit == Exit.INTERRUPTED
            writer.write(End("interrupted" if stopped else "failed", str(ended), utc_now()))
            ended.evidence = [*ended.evidence, f"what was measured is recorded: {writer.path}"]
            raise ended from None
        writer.write(End(outcome, why, utc_now()))
        return Result(writer.path, outcome, why, sweep.failed)


def clearly_worse(mine: Values, best: Values, margin: float) -> str | None:
    """Why a point is not worth more rounds: it is surely below ``margin`` times the best; None where it may be."""
    if not set(mine) & set(best):
        return None
    ratio = paired_ratio(mine, best)
    if ratio.high is None or ratio.low is None or ratio.prompts < 2 or ratio.high >= margin:
        return None
    return f"{ratio.mean:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f}), surely below {margin:g}"


class _Sweep:
    def __init__(
        self, prepared: Prepared, interrupt: Interrupt, watcher: Watcher, writer: Writer, margin: float
    ) -> None:
        self.failed: dict[str, FleetError] = {}
        self._prepared = prepared
        self._job = prepared.job
        self._watcher = watcher
        self._writer = writer
        self._margin = margin
        self._until = time.monotonic() + (self._job.suite.time_limit or math.inf)
        self._requests: dict[str, list[Request]] = {}
        self._digest = prompts.digest(list(self._job.prompts))
        job = self._job
        self._session = Session(
            job.fleet, job.host, watcher.event, writer.write, watcher.request, interrupt, what=job.words
        )

    def run(self) -> tuple[Outcome, str]:
        """All points that are left; then the slots as before."""
        for point in self._job.plan.points:
            if point.id in self._prepared.known:
                self._take_over(point, self._prepared.known[point.id])
        with self._session:
            for point in self._job.plan.points:
                if point.id in self._prepared.known:
                    continue
                if time.monotonic() > self._until:
                    return "stopped", f"the time limit of {self._job.suite.time_limit:g} s"
                self._point(point)
        if len(self.failed) == len(self._job.plan.points):
            return "failed", "no point could be measured"
        return "done", ""

    def _point(self, point: Planned) -> None:
        visits = [visit for visit in self._job.plan.visits if visit.point.id == point.id]
        try:
            if self._prepared.every and self._known_after_all(point):
                return
            outcome, why = self._rounds(point, visits)
        except KeyboardInterrupt:
            self._end(point, "interrupted", "^C")
            raise
        except FleetError as error:
            stopped = error.exit == Exit.INTERRUPTED
            self._end(point, "interrupted" if stopped else "failed", str(error))
            if error.exit not in CARRY_ON:
                raise
            self.failed[point.id] = error
            self._watcher.failed(point, error)
        else:
            self._end(point, outcome, why)

    def _end(self, point: Planned, outcome: Outcome, why: str) -> None:
        self._session.end(point, self._job.suite, outcome, why)

    def _rounds(self, point: Planned, visits: Sequence[Visit]) -> tuple[Outcome, str]:
        done: list[Request] = []
        for number, visit in enumerate(visits, 1):
            self._watcher.visit(visit)
            done += self._measure(point, visit.rounds)
            self._watcher.visited(visit)
            if done and all(request.error for request in done):
                first = done[0].error
                raise FleetError(
                    f"all {len(done)} requests failed; the first: {first.what if first else ''}",
                    point.id,
                    f"fleetctl logs {point.host} {point.service}",
                    exit=Exit.PREFLIGHT,
                )
            self._requests[point.id] = done
            best = self._best(point)
            if number < len(visits) and best is not None:
                why = clearly_worse(speeds(done), speeds(self._requests[best]), self._margin)
                if why is not None:
                    why = f"{why}, beside {best} after {number} of {len(visits)} rounds"
                    self._watcher.stopped(point, why)
                    return "stopped", why
        return "done", ""

    def _measure(self, point: Planned, rounds: Sequence[int]) -> list[Request]:
        """Some rounds of a point; where its service did not come up and the slot is as before, once more."""
        job = self._job
        try:
            return self._session.measure(point, job.suite, job.prompts, rounds)
        except FleetError as error:
            if error.exit != Exit.ROLLED_BACK:
                raise
            text = f"{point.id} did not come up: {error.what}; it is tried once more"
            self._watcher.event({"step": "sweep", "state": "info", "text": text})
            return self._session.measure(point, job.suite, job.prompts, rounds)

    def _known_after_all(self, point: Planned) -> bool:
        """Where only the start tells a point's digest: start it, and take over what is known under that."""
        if self._job.host.services[point.service].remedies != "auto":
            return False
        placed = self._session.put(point.service, point.overrides, point.tp)
        there = placing.point(point, placed, self._job.suite, self._digest).digest
        if there not in self._prepared.every:
            return False
        self._take_over(point, self._prepared.every[there])
        self._watcher.stopped(point, f"measured before, in run {self._prepared.every[there].run}")
        return True

    def _take_over(self, point: Planned, known: Measured) -> None:
        self._requests[point.id] = known.requests
        for record in known.records(point, self._job.suite.suite):
            self._writer.write(record)

    def _best(self, point: Planned) -> str | None:
        """The fastest other point of those that may be compared with this one."""
        rivals = {
            other.id: _level(speeds(self._requests[other.id]))
            for other in self._job.plan.points
            if other.id != point.id and other.id in self._requests and _cell(other) == _cell(point)
        }
        return max(rivals, key=lambda name: rivals[name], default=None)


def _cell(point: Planned) -> tuple[object, ...]:
    """What two points must have in common for a comparison of their speeds to make sense."""
    return (point.concurrency, point.context_tokens, point.tp)


def _level(found: Values) -> float:
    return fmean(math.log(value) for value in found.values()) if found else -math.inf


def _by_round(visits: Sequence[Visit]) -> list[Visit]:
    """The same visits as single rounds, all of a point together."""
    found: list[Visit] = []
    for identity in dict.fromkeys(visit.point.id for visit in visits):
        mine = [visit for visit in visits if visit.point.id == identity]
        rounds = sorted(number for visit in mine for number in visit.rounds)
        requests, seconds = sum(v.requests for v in mine), sum(v.seconds for v in mine)
        for index, number in enumerate(rounds):
            share = requests // len(rounds) + (index < requests % len(rounds))
            found.append(Visit(mine[0].point, [number], not index, share, seconds / len(rounds)))
    return found


def _interrupted() -> FleetError:
    return FleetError(
        "interrupted",
        fix="the same command goes on with the point that was interrupted",
        exit=Exit.INTERRUPTED,
    )
