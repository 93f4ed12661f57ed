"""``fleetctl tune``: a race of modes and their settings on a workload, its winner checked on prompts held out."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from fleetctl.bench.measured import speeds
from fleetctl.bench.placing import host_facts
from fleetctl.bench.points import BenchPlan, Estimate, Planned, Visit, choose_services, plan_bench, point_id
from fleetctl.bench.prompts import Prompt
from fleetctl.bench.race import Race, batches
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

LOOKS = 4
HELD_OUT = 1 / 3
CHECK_ROUNDS = 3


@dataclass(frozen=True)
class Prepared:
    """A tuning before it begins. ``job``: all that it may come to as its plan; ``parts``: the prompts of each look."""

    job: Job
    parts: list[list[Prompt]]
    split: Split
    incumbent: str | None


def prepare(
    job: Job, services: Sequence[str], estimate: Estimate, *, looks: int = LOOKS, held_out: float = HELD_OUT
) -> Prepared:
    """The candidates of ``job`` and what runs now, in ``looks`` looks at parts of the prompts.

    FleetError (exit 2) where the prompts are too few, or the suite has several concurrencies, contexts or tps.
    """
    suite = job.suite.with_(repeats=1, order="blocks")
    if len(suite.concurrency) > 1 or len(suite.context_tokens) > 1 or len(suite.tp) > 1:
        raise FleetError(
            f"the suite {suite.suite} has several concurrencies, context lengths or tps; one choice is made for one",
            fix="say which: --concurrency N, or a suite with one of each",
        )
    parted = split(job.prompts, held_out, suite.seed)
    by_name = {prompt.name: prompt for prompt in parted.chosen_with}
    parts = [[by_name[name] for name in part] for part in batches(list(by_name), looks)]
    chosen = choose_services(job.host, suite, services)
    stands = _stands(job.host, {point.slot for point in job.plan.points})
    extra = _as_it_is(job.host, stands, job.plan.points)
    points = [*job.plan.points, *([extra] if extra else [])]
    visits: list[Visit] = []
    for number, part in enumerate(parts, 1):
        plan = plan_bench(job.host, suite, chosen, len(part), estimate)
        visits += [replace(visit, rounds=[number]) for visit in plan.visits]
        if extra:
            visits.append(replace(plan.visits[-1], point=extra, rounds=[number]))
    whole = BenchPlan(points, visits, job.plan.left_out)
    return Prepared(replace(job, suite=suite, plan=whole), parts, parted, _incumbent(stands, points))


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
            for name in self._draw.sample(self._race.running, len(self._race.running)):
                self._race.add(name, speeds(self._measure(name, part, number)))
            for gone in self._race.look():
                why = f"{gone.ratio:.2f} times as fast as {gone.by}, at most {gone.high:.2f}, after look {number}"
                self._watcher.stopped(self._points[gone.name], why)

    def _check(self, names: Sequence[str]) -> None:
        """The choice and its rivals in turn, on the prompts held out, so that drift falls on all."""
        looks = len(self._prepared.parts)
        for number in range(looks + 1, looks + 1 + CHECK_ROUNDS):
            for name in names:
                if name not in self._race.dropped:
                    self._checked[name] += self._measure(name, self._prepared.split.held_out, number)

    def _measure(self, name: str, prompts: Sequence[Prompt], number: int) -> list[Request]:
        """One candidate's round; one that cannot be measured leaves the race, and the others go on."""
        point = self._points[name]
        visit = Visit(point, [number], True, len(prompts) * point.copies, 0.0)
        known = [one for one in self._job.plan.visits if one.point.id == name and one.rounds == [number]]
        self._watcher.visit(known[0] if known else visit)
        try:
            requests = self._session.measure(point, self._job.suite, prompts, [number])
        except FleetError as error:
            if error.exit not in CARRY_ON:
                raise
            self._race.drop(name, str(error))
            self._watcher.failed(point, error)
            return []
        self._watcher.visited(known[0] if known else visit)
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
