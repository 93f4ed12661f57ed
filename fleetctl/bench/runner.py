"""``bench run``: a plan's visits one after the other, each recorded as it happens."""

from __future__ import annotations

import getpass
import os
import platform
import shlex
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fleetctl import __version__
from fleetctl.bench import prompts as prompt_files
from fleetctl.bench.loadgen import load_generator
from fleetctl.bench.placing import host_facts
from fleetctl.bench.points import BenchPlan, Planned, Visit
from fleetctl.bench.prompts import Prompt
from fleetctl.bench.record import End, HostFacts, Outcome, Request, Run
from fleetctl.bench.records import Writer, new_id, utc_now
from fleetctl.bench.session import Session
from fleetctl.bench.suite import Suite
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.transport.agent import open_agent

COMMAND_SHOWN = 100
CARRY_ON = (Exit.INPUT, Exit.PREFLIGHT, Exit.ROLLED_BACK)
"""Ends of a swap after which the slot is as before, so that other points can still be measured."""


class Watcher(Protocol):
    """Is told what happens, as it happens."""

    def event(self, event: dict[str, Any]) -> None:
        """A rollout's event."""

    def visit(self, visit: Visit) -> None:
        """A stretch of measuring begins."""

    def request(self, request: Request) -> None:
        """A request has ended."""

    def visited(self, visit: Visit) -> None:
        """A stretch of measuring has ended."""

    def failed(self, point: Planned, error: FleetError) -> None:
        """A point could not be measured; the others go on."""

    def stopped(self, point: Planned, why: str) -> None:
        """A point is not measured any further."""

    def ahead(self, visits: Sequence[Visit]) -> None:
        """What is to come has become just this."""


@dataclass(frozen=True)
class Job:
    """What is to be measured, on which host, by which command line; ``by``: the load generator's name, if any.

    ``prompts_file``: where the prompts are from, if not from the suite.
    """

    fleet: Fleet
    host: Host
    suite: Suite
    prompts: Sequence[Prompt]
    plan: BenchPlan
    command: Sequence[str]
    by: str | None = None
    prompts_file: Path | None = None

    @property
    def words(self) -> str:
        """The command line, as far as others need it to know what runs."""
        return shlex.join(self.command)[:COMMAND_SHOWN]


@dataclass(frozen=True)
class Result:
    """The records' file, how the run ended, and the points that could not be measured, by id."""

    path: Path
    outcome: Outcome
    why: str
    failed: dict[str, FleetError]


def new_run(suite: Suite, prompts: Sequence[Prompt], command: Sequence[str]) -> Run:
    """The first record of a run that begins now."""
    shown = suite.with_(prompts=list(prompts))
    return Run(
        id=new_id(suite.suite),
        started=utc_now(),
        suite=shown.model_dump(mode="json"),
        prompts_digest=prompt_files.digest(list(prompts)),
        command=list(command),
        fleetctl=__version__,
        operator=getpass.getuser(),
        seed=suite.seed,
        client={
            "host": socket.gethostname(),
            "cpus": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            "load": list(os.getloadavg()),
        },
    )


def run_bench(job: Job, interrupt: Interrupt, watcher: Watcher) -> Result:
    """Measure all of ``job``'s visits, then put back what stood in the slots.

    A point that cannot be measured is left out and named. Raises FleetError: exit 130 at ^C, 3 where the host is
    lost, 7 where what stood there before could not be brought back. What was recorded is whole in each case.
    """
    with open_agent(job.host) as agent:
        facts = host_facts(agent)
    with Writer(job.fleet.root, new_run(job.suite, job.prompts, job.command)) as writer:
        writer.write(HostFacts(job.host.name, facts))
        work = _Work(job, interrupt, watcher, writer)
        try:
            outcome, why = work.run()
        except FleetError as error:
            stopped = error.exit == Exit.INTERRUPTED
            writer.write(End("interrupted" if stopped else "failed", str(error), utc_now()))
            if work.requests:
                error.evidence = [*error.evidence, f"what was measured is recorded: {writer.path}"]
            raise
        writer.write(End(outcome, why, utc_now()))
        return Result(writer.path, outcome, why, work.failed)


class _Work:
    def __init__(self, job: Job, interrupt: Interrupt, watcher: Watcher, writer: Writer) -> None:
        self.failed: dict[str, FleetError] = {}
        self.requests = 0
        self._job = job
        self._watcher = watcher
        self._until = time.monotonic() + (job.suite.time_limit or float("inf"))
        self._visited: dict[str, int] = {}
        generator = load_generator(job.fleet.root, job.by, watcher.event) if job.by else None
        self._session = Session(
            job.fleet,
            job.host,
            watcher.event,
            writer.write,
            self._request,
            interrupt,
            generator=generator,
            what=job.words,
        )

    def run(self) -> tuple[Outcome, str]:
        """All visits; then each point's end, and the slots as before."""
        ends: tuple[Outcome, str] = ("done", "")
        with self._session:
            try:
                for visit in self._job.plan.visits:
                    if time.monotonic() > self._until:
                        ends = ("stopped", f"the time limit of {self._job.suite.time_limit:g} s")
                        break
                    if visit.point.id not in self.failed:
                        self._visit(visit)
            except KeyboardInterrupt:
                self._end("interrupted", "^C")
                raise _interrupted(self.requests) from None
            except FleetError as error:
                if error.exit == Exit.INTERRUPTED:
                    self._end("interrupted", "^C during a swap, which was undone")
                    raise _interrupted(self.requests) from None
                self._end("failed", str(error))
                raise
            self._end(*ends)
        if len(self.failed) == len(self._job.plan.points):
            return "failed", "no point could be measured"
        return ends

    def _visit(self, visit: Visit) -> None:
        self._watcher.visit(visit)
        try:
            requests = self._session.measure(visit.point, self._job.suite, self._job.prompts, visit.rounds)
        except FleetError as error:
            if error.exit not in CARRY_ON:
                raise
            self._fail(visit.point, error)
            return
        self._visited[visit.point.id] = self._visited.get(visit.point.id, 0) + len(visit.rounds)
        wrong = [request.error for request in requests if request.error]
        if requests and len(wrong) == len(requests):
            self._fail(visit.point, _all_failed(visit.point, wrong[0].what, len(wrong)))
        self._watcher.visited(visit)

    def _fail(self, point: Planned, error: FleetError) -> None:
        self.failed[point.id] = error
        self._watcher.failed(point, error)

    def _end(self, outcome: Outcome, why: str) -> None:
        """Record the end of each point: its own failure, or ``outcome`` where rounds of it are missing."""
        for point in self._job.plan.points:
            if point.id in self.failed:
                self._session.end(point, self._job.suite, "failed", str(self.failed[point.id]))
            elif self._visited.get(point.id, 0) == self._job.suite.repeats:
                self._session.end(point, self._job.suite, "done")
            else:
                self._session.end(point, self._job.suite, outcome, why)

    def _request(self, request: Request) -> None:
        self.requests += 1
        self._watcher.request(request)


def _all_failed(point: Planned, first: str, count: int) -> FleetError:
    return FleetError(
        f"all {count} requests failed; the first: {first}",
        point.id,
        f"fleetctl logs {point.host} {point.service}",
        exit=Exit.PREFLIGHT,
    )


def _interrupted(requests: int) -> FleetError:
    return FleetError(
        f"interrupted after {requests} requests",
        fix="fleetctl bench show last shows what there is; a sweep goes on where it stopped",
        exit=Exit.INTERRUPTED,
    )
