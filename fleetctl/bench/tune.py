"""``fleetctl tune``: a race of modes and their settings on a workload, its winner checked on prompts held out."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from fleetctl.bench.measured import speeds
from fleetctl.bench.placing import host_facts
from fleetctl.bench.points import BenchPlan, Estimate, Planned, Visit, copies, point_id, visit_of
from fleetctl.bench.prompts import Prompt
from fleetctl.bench.race import FEWEST_PROMPTS, Race, batches
from fleetctl.bench.record import End, HostFacts, Outcome, Request
from fleetctl.bench.records import Writer, utc_now
from fleetctl.bench.runner import CARRY_ON, Job, Watcher, new_run
from fleetctl.bench.session import Session
from fleetctl.bench.tuning import Split, Tuning, advise, check, entry, rivals, split
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import Host
from fleetctl.rollout.current import current_target
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.rollout.settle import gather_facts
from fleetctl.transport.agent import open_agent
from fleetctl.words import counted

LOOKS = 4
HELD_OUT = 1 / 3
CHECK_ROUNDS = 3


@dataclass(frozen=True)
class Prepared:
    """A tuning before it begins. ``job``: all that it may come to as its plan, the check at its end.

    ``parts``: the prompts of each look; ``if_checked``: each candidate's visit on the prompts held out.
    """

    job: Job
    parts: list[list[Prompt]]
    split: Split
    incumbent: str | None
    if_checked: list[Visit]

    def check(self, names: Collection[str]) -> list[Visit]:
        """The check of these candidates: in turn, so that drift falls on all."""
        first = len(self.parts) + 1
        chosen = [visit for visit in self.if_checked if visit.point.id in names]
        return [
            replace(visit, rounds=[number])
            for number in range(first, first + CHECK_ROUNDS)
            for visit in chosen
        ]

    def longest_check(self, choices: Collection[str]) -> list[Visit]:
        """The check that takes longest of those that can follow, where one of ``choices`` will be the choice."""
        checks = [self.check(self._checked_at_most(name)) for name in choices]
        return max(checks, key=lambda visits: sum(visit.seconds for visit in visits), default=[])

    def _checked_at_most(self, choice: str) -> set[str]:
        """``choice``, what runs now and the slowest candidate of another service: it may turn out to be its best."""
        service = next(visit.point.service for visit in self.if_checked if visit.point.id == choice)
        sure = {choice, self.incumbent} if self.incumbent else {choice}
        others = [one for one in self.if_checked if one.point.service != service and one.point.id not in sure]
        rival = max(others, key=lambda visit: visit.seconds, default=None)
        return sure | ({rival.point.id} if rival else set())


def prepare(
    job: Job, estimate: Estimate, *, looks: int | None = None, held_out: float = HELD_OUT
) -> Prepared:
    """The candidates of ``job`` and what runs now, in ``looks`` looks at parts of the prompts (default: up to 4).

    FleetError (exit 2) where the prompts are too few, also for so many looks, or the suite has several concurrencies,
    contexts or tps.
    """
    suite = job.suite.with_(repeats=1, order="blocks")
    if len(suite.concurrency) > 1 or len(suite.context_tokens) > 1 or len(suite.tp) > 1:
        raise FleetError(
            f"the suite {suite.suite} has several concurrencies, context lengths or tps; one choice is made for one",
            fix="say which: --concurrency N, or a suite with one of each",
        )
    parted = split(job.prompts, held_out, suite.seed)
    by_name = {prompt.name: prompt for prompt in parted.chosen_with}
    parts = [[by_name[name] for name in part] for part in batches(list(by_name), looks or LOOKS)]
    if looks and looks > len(parts):
        raise FleetError(
            f"{len(by_name)} prompts to choose with are enough for {counted(len(parts), 'look')}, not for {looks}",
            fix=f"--looks {len(parts)}, or a workload of more prompts: each look needs {FEWEST_PROMPTS} of its own",
        )
    stands = _stands(job.host, {point.slot for point in job.plan.points})
    extra = _as_it_is(job.host, stands, job.plan.points)
    fewest = min(len(asked) for asked in (*parts, parted.held_out))
    points = [
        replace(point, copies=copies(fewest, point.concurrency))
        for point in [*job.plan.points, *([extra] if extra else [])]
    ]

    def visits(asked: Sequence[Prompt], number: int) -> list[Visit]:
        return [visit_of(point, [number], True, suite, len(asked), estimate) for point in points]

    race = [visit for number, part in enumerate(parts, 1) for visit in visits(part, number)]
    prepared = Prepared(
        replace(job, suite=suite, plan=BenchPlan(points, race, job.plan.left_out)),
        parts,
        parted,
        _incumbent(stands, points),
        visits(parted.held_out, len(parts) + 1),
    )
    whole = [*race, *prepared.longest_check([point.id for point in points])]
    return replace(prepared, job=replace(prepared.job, plan=replace(prepared.job.plan, visits=whole)))


def run_tune(prepared: Prepared, interrupt: Interrupt, watcher: Watcher) -> Tuning:
    """Race the candidates, check the winner, and put back what stood in the slots.

    Raises FleetError as :func:`fleetctl.bench.runner.run_bench`, and exit 5 where no candidate could be measured.
    """
    job = prepared.job
    with open_agent(job.host) as agent:
        facts = host_facts(agent)
    run = new_run(job.suite, job.prompts, job.command)
    with Writer(job.fleet.root, run) as writer:
        writer.write(HostFacts(job.host.name, facts))
        tune = _Tune(prepared, interrupt, watcher, writer)
        try:
            found = tune.run(run.id)
        except (FleetError, KeyboardInterrupt) as error:
            ended = _interrupted() if isinstance(error, KeyboardInterrupt) else error
            stopped = ended.exit == Exit.INTERRUPTED
            writer.write(End("interrupted" if stopped else "failed", str(ended), utc_now()))
            ended.evidence = [*ended.evidence, f"what was measured is recorded: {writer.path}"]
            raise ended from None
        writer.write(End("done", f"{found.choice}: {found.why}", utc_now()))
        return found


class _Tune:
    def __init__(self, prepared: Prepared, interrupt: Interrupt, watcher: Watcher, writer: Writer) -> None:
        job = prepared.job
        self._prepared = prepared
        self._job = job
        self._watcher = watcher
        self._writer = writer
        self._points = {point.id: point for point in job.plan.points}
        self._race = Race(list(self._points), len(prepared.parts))
        self._checked: defaultdict[str, list[Request]] = defaultdict(list)
        self._draw = random.Random(job.suite.seed)
        self._until = time.monotonic() + (job.suite.time_limit or float("inf"))
        self._session = Session(
            job.fleet, job.host, watcher.event, writer.write, watcher.request, interrupt, what=job.words
        )

    def run(self, identity: str) -> Tuning:
        """The race, the check, the advice."""
        with self._session:
            try:
                self._look_at_all()
                choice = self._race.leader
                against = rivals(self._race, choice, self._incumbent, self._points)
                self._check([choice, *against])
            except (FleetError, KeyboardInterrupt) as error:
                self._end("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
                raise
            self._end("done")
        mine = speeds(self._checked[choice])
        if not mine:
            raise FleetError(
                f"{choice} won on the prompts to choose with, and answered none of those held out",
                fix="fleetctl bench show last names the requests that failed",
                exit=Exit.PREFLIGHT,
            )
        others = {name: speeds(self._checked[name]) for name in against if speeds(self._checked[name])}
        checks = check(mine, others, self._job.suite.seed, self._points[choice].copies)
        advice, why = advise(choice, self._incumbent, checks)
        advised = self._points[advice]
        return Tuning(
            run=identity,
            path=self._writer.path,
            choice=choice,
            advice=advice,
            incumbent=self._incumbent,
            apart=[name for name in self._race.running if name != choice],
            out=self._race.out,
            failed=self._race.dropped,
            checks=checks,
            prompts=(sum(map(len, self._prepared.parts)), len(self._prepared.split.held_out)),
            why=why,
            entry=entry(self._job.host, advised.service, advised.overrides),
        )

    @property
    def _incumbent(self) -> str | None:
        """What runs now, unless it cannot be measured."""
        incumbent = self._prepared.incumbent
        return None if incumbent in self._race.dropped else incumbent

    def _look_at_all(self) -> None:
        for number, part in enumerate(self._prepared.parts, 1):
            if time.monotonic() > self._until or len(self._race.running) < 2:
                return
            look = {visit.point.id: visit for visit in self._job.plan.visits if visit.rounds == [number]}
            for name in self._draw.sample(self._race.running, len(self._race.running)):
                self._race.add(name, speeds(self._measure(look[name], part)))
            for gone in self._race.look():
                why = f"{gone.ratio:.2f} times as fast as {gone.by}, at most {gone.high:.2f}, after look {number}"
                self._watcher.stopped(self._points[gone.name], why)
            running = self._race.running
            left = [
                visit
                for visit in self._job.plan.visits
                if number < visit.rounds[0] <= len(self._prepared.parts) and visit.point.id in running
            ]
            self._watcher.ahead([*left, *self._prepared.longest_check(running)])

    def _check(self, names: Collection[str]) -> None:
        """The choice and its rivals on the prompts held out."""
        visits = self._prepared.check(names)
        self._watcher.ahead(visits)
        for visit in visits:
            if visit.point.id not in self._race.dropped:
                found = self._measure(visit, self._prepared.split.held_out)
                self._checked[visit.point.id] += found

    def _measure(self, visit: Visit, prompts: Sequence[Prompt]) -> list[Request]:
        """One candidate's round; one that cannot be measured leaves the race, and the others go on."""
        point, name = visit.point, visit.point.id
        self._watcher.visit(visit)
        try:
            requests = self._session.measure(point, self._job.suite, prompts, visit.rounds)
        except FleetError as error:
            if error.exit not in CARRY_ON:
                raise
            self._race.drop(name, str(error))
            self._watcher.failed(point, error)
            return []
        self._watcher.visited(visit)
        wrong = [request.error for request in requests if request.error]
        if requests and len(wrong) == len(requests):
            what = f"all {len(wrong)} requests failed; the first: {wrong[0].what}"
            self._race.drop(name, what)
            self._watcher.failed(point, FleetError(what, name, exit=Exit.PREFLIGHT))
        return requests

    def _end(self, outcome: Outcome) -> None:
        beaten = {gone.name: gone for gone in self._race.out}
        for name, point in self._points.items():
            if name in self._race.dropped:
                self._session.end(point, self._job.suite, "failed", self._race.dropped[name])
            elif name in beaten:
                gone = beaten[name]
                why = f"{gone.ratio:.2f} times as fast as {gone.by}, at most {gone.high:.2f}"
                self._session.end(point, self._job.suite, "stopped", why)
            else:
                self._session.end(point, self._job.suite, outcome)


def _stands(host: Host, slots: Collection[str]) -> dict[str, str]:
    """The inventory's services that fill these slots now, by slot."""
    with open_agent(host) as agent:
        facts = gather_facts(agent, host)
    found = {slot: current_target(host, slot, facts) for slot in slots}
    return {
        slot: target.service for slot, target in found.items() if target and target.service in host.services
    }


def _as_it_is(host: Host, stands: dict[str, str], points: Sequence[Planned]) -> Planned | None:
    """What runs now as a candidate, where the plan has no point of just that."""
    like = points[0]
    service = stands.get(like.slot)
    if service is None or any(point.service == service and not point.overrides for point in points):
        return None
    mode, engine = host.services[service].mode, host.services[service].engine
    identity = point_id(host.name, like.slot, service, {}, like.concurrency)
    return replace(like, id=identity, service=service, mode=mode, engine=engine, varied={}, overrides={})


def _incumbent(stands: dict[str, str], points: Sequence[Planned]) -> str | None:
    fitting = [one for one in points if stands.get(one.slot) == one.service and not one.overrides]
    return fitting[0].id if fitting else None


def _interrupted() -> FleetError:
    return FleetError(
        "interrupted: nothing was chosen", fix="run it again; fleetctl bench show last shows what there is",
        exit=Exit.INTERRUPTED,
    )  # fmt: skip
