"""What was measured before: by a point's digest, and what its digest will be before anything is swapped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.bench import placing
from fleetctl.bench.points import Planned
from fleetctl.bench.record import Point, PointEnd, Record, Request
from fleetctl.bench.records import load, read_run, recordings
from fleetctl.bench.statistics import Values
from fleetctl.bench.suite import Suite
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host
from fleetctl.rollout.needs import survey_needs
from fleetctl.rollout.settle import gather_facts
from fleetctl.transport.agent import Agent

WHOLE = ("done", "stopped")
"""Ends of a point after which it need not be measured again."""


@dataclass(frozen=True)
class Measured:
    """A point of an earlier run, whole."""

    run: str
    point: Point
    requests: list[Request]
    end: PointEnd

    def records(self, planned: Planned, suite: str) -> list[Record]:
        """Its records as those of another run have them: as a point of that run's suite, its end saying where from."""
        why = f"measured before, in run {self.run}" + (f": {self.end.why}" if self.end.why else "")
        if self.end.why.startswith("measured before"):
            why = self.end.why
        return [
            replace(self.point, id=planned.id, varied=planned.varied, suite_part=suite),
            *(replace(request, point=planned.id) for request in self.requests),
            replace(self.end, point=planned.id, why=why),
        ]


def measured_before(root: Path, host: str, prompts_digest: str, suite: Suite) -> dict[str, Measured]:
    """Points that earlier runs on ``host`` measured whole with these prompts, by digest; the newest of each.

    One with fewer rounds than ``suite`` wants does not count, unless it was stopped for being worse; nor does one whose
    suite wanted less warm-up.
    """
    found: dict[str, Measured] = {}
    for path in recordings(root):
        try:
            with path.open("rb") as file:
                run = read_run(path, file.readline().rstrip(b"\n"))
            warmup = run.suite.get("warmup")
            warm = isinstance(warmup, int) and warmup >= suite.warmup
            if run.prompts_digest != prompts_digest or not warm:
                continue
            recording = load(path)
        except (FleetError, OSError):
            continue
        for point in recording.points:
            end = recording.ends.get(point.id)
            requests = recording.of(point.id)
            rounds = {request.round for request in requests if request.counts}
            whole = end is not None and end.outcome in WHOLE
            enough = whole and end is not None and (end.outcome == "stopped" or len(rounds) >= suite.repeats)
            if point.host == host and enough and end is not None and rounds:
                found.setdefault(point.digest, Measured(run.id, point, requests, end))
    return found


class Foresight:
    """What digests points will have, told by the host's facts before anything is put there."""

    def __init__(self, fleet: Fleet, host: Host, agent: Agent, suite: Suite, prompts_digest: str) -> None:
        self._fleet = fleet
        self._host = host
        self._agent = agent
        self._suite = suite
        self._prompts = prompts_digest
        self._facts = gather_facts(agent, host)
        self._services: dict[str, placing.Placed | None] = {}

    def digest(self, planned: Planned) -> str | None:
        """The point's digest; None where only the start tells (a service whose remedies are put in by themselves)."""
        if planned.service not in self._services:
            self._services[planned.service] = self._foresee(planned.service)
        placed = self._services[planned.service]
        if placed is None:
            return None
        host = placing.overridden(self._host, planned.service, planned.overrides, planned.tp)
        there = replace(placed, host=host, service=host.services[planned.service])
        return placing.point(planned, there, self._suite, self._prompts).digest

    def _foresee(self, name: str) -> placing.Placed | None:
        service = self._host.services[name]
        if service.remedies == "auto":
            return None
        try:
            needs = survey_needs(
                self._fleet, self._host, service, self._agent, self._facts, lambda event: None
            )
        except FleetError:
            return None
        return placing.foreseen(self._agent, self._host, service, needs)


def speeds(requests: Sequence[Request]) -> Values:
    """Tokens a second of each request that counts, from sending it to its end, by (prompt, repeat)."""
    return {
        (request.prompt, request.repeat): request.tokens / request.end_s
        for request in requests
        if request.counts and request.tokens and request.end_s > 0
    }
