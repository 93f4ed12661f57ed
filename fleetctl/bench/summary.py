"""What recordings say: points in numbers, compared where they measured the same, never averaged where they did not.

Points are merged across runs only by their digest; they are compared only within a *cell*: the same host, model,
prompts, length of answers, concurrency and part of the suite.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetctl.bench.agreement import Difference, against
from fleetctl.bench.naming import Name, name_points, part
from fleetctl.bench.pointsummary import PointSummary, Visit, draws, summarize_point
from fleetctl.bench.record import HostFacts, Point, PointEnd, Run
from fleetctl.bench.records import Recording
from fleetctl.bench.statistics import Interval, contrary, differs, paired_ratio
from fleetctl.errors import FleetError

Cell = tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """How many times as fast ``one`` is as ``other``, prompt by prompt; ``against``: prompts that say the opposite.

    ``rounds``: of the one that has fewer. In one round all of one came before all of the other, so a host that drifted
    meanwhile and a real difference look alike.
    """

    one: str
    other: str
    ratio: Interval
    against: list[str]
    rounds: int

    @property
    def sure(self) -> bool:
        """Whether it is a difference: its interval excludes none, and it was there in more than one round."""
        return self.rounds > 1 and differs(self.ratio)


@dataclass(frozen=True)
class CellSummary:
    """Points that may be compared: ``base`` is what the others are compared with, ``best`` the fastest.

    ``ratios``: to ``base``, by the point's name; ``lead``: ``best`` over the second fastest. ``differences``: answers
    that are not the same as those of ``base``; ``answers``: whether the suite wants them compared. ``prompts_digest``,
    ``max_tokens``: what all of them were asked.
    """

    names: list[str]
    prompts_digest: str
    max_tokens: str
    base: str
    best: str
    ratios: dict[str, Comparison]
    lead: Comparison | None
    differences: list[Difference]
    answers: bool = True


@dataclass(frozen=True)
class Summary:
    """One or more runs. ``points`` and what ``cells`` name are in the order in which they were measured."""

    runs: list[Run]
    outcomes: dict[str, tuple[str, str]]
    hosts: list[HostFacts]
    model: str
    points: dict[str, PointSummary]
    cells: list[CellSummary]
    problems: list[str]

    @property
    def title(self) -> str:
        """The suite and its hosts."""
        suites = dict.fromkeys(str(run.suite.get("suite") or "own prompts") for run in self.runs)
        hosts = dict.fromkeys(point.point.host for point in self.points.values())
        return f"{', '.join(suites)} on {', '.join(hosts) or 'no host'}"

    @property
    def prompts(self) -> dict[str, str]:
        """All prompts that have an answer, with their kind."""
        return {
            prompt.name: prompt.kind for point in self.points.values() for prompt in point.prompts.values()
        }

    def cell_of(self, name: str) -> CellSummary:
        """The cell of a point."""
        return next(cell for cell in self.cells if name in cell.names)


def summarize(recordings: Sequence[Recording]) -> Summary:
    """All of ``recordings`` in numbers; FleetError (exit 2) where they measured different models, or nothing."""
    recordings = sorted(recordings, key=lambda recording: recording.run.started)
    model = _one_model(recordings)
    gathered = _gather(recordings)
    names = name_points(
        [one.point for one in gathered], [one.first.id for one in gathered], [one.by for one in gathered]
    )
    points = {
        name.whole: summarize_point(one.point, name, one.visits, one.ends)
        for one, name in zip(gathered, names, strict=True)
    }
    cells: defaultdict[Cell, list[str]] = defaultdict(list)
    uncompared: set[Cell] = set()
    for name, one in zip(names, gathered, strict=True):
        cell = _cell(one.point, one.first)
        cells[cell].append(name.whole)
        if one.first.suite.get("compare_outputs") is False:
            uncompared.add(cell)
    return Summary(
        runs=[recording.run for recording in recordings],
        outcomes={one.run.id: (one.end.outcome, one.end.why) for one in recordings},
        hosts=list({facts.host: facts for one in recordings for facts in one.hosts}.values()),
        model=model,
        points=points,
        cells=[
            _summarize_cell(cell, [points[name] for name in row], cell not in uncompared)
            for cell, row in cells.items()
        ],
        problems=[f"{one.run.id}: {problem}" for one in recordings for problem in one.problems],
    )


def summarize_one(recording: Recording, point: Point) -> PointSummary:
    """One point of a run in numbers, also of a run that cannot be summarized as a whole."""
    gathered = _Gathered(point, recording.run)
    gathered.take(recording, {point.id})
    return summarize_point(point, Name(point.service, point.id, point.id), gathered.visits, gathered.ends)


@dataclass
class _Gathered:
    """One point with its requests of all runs; ``first``: the run that measured it first."""

    point: Point
    first: Run
    visits: list[Visit] = field(default_factory=list)
    ends: list[PointEnd] = field(default_factory=list)
    repeats: int = 0

    @property
    def by(self) -> str | None:
        """The load generator that measured it; None for fleetctl's own client."""
        return self.visits[0].request.by if self.visits else None

    def take(self, recording: Recording, ids: set[str]) -> None:
        """Add a run's requests, its repeats behind those of the runs before."""
        taken: set[tuple[str, int]] = set()
        for request in (one for one in recording.requests if one.point in ids):
            repeat = request.repeat + self.repeats
            while not request.warmup and (request.prompt, repeat) in taken:
                repeat += len(recording.requests)
            if not request.warmup:
                taken.add((request.prompt, repeat))
            self.visits.append(Visit(recording.run.id, (request.prompt, repeat), request))
        self.ends += [recording.ends[name] for name in ids if name in recording.ends]
        self.repeats += 1 + max((repeat - self.repeats for _, repeat in taken), default=-1)


def _gather(recordings: Sequence[Recording]) -> list[_Gathered]:
    """The points of all runs, each once: those of one digest in one place of a host are one."""
    found: dict[tuple[str, str, str], _Gathered] = {}
    given = {recording.run.id for recording in recordings}
    for recording in recordings:
        ids: dict[tuple[str, str, str], set[str]] = {}
        for point in recording.points:
            key = (point.host, point.slot, point.digest or point.id)
            found.setdefault(key, _Gathered(point, recording.run))
            if not _taken_over(recording, point.id, given):
                ids.setdefault(key, set()).add(point.id)
        for key, names in ids.items():
            found[key].take(recording, names)
    return list(found.values())


def _taken_over(recording: Recording, point: str, given: set[str]) -> bool:
    """Whether a sweep only repeats here what another of the ``given`` runs has measured."""
    end = recording.ends.get(point)
    return end is not None and any(end.why.startswith(f"measured before, in run {run}") for run in given)


def _one_model(recordings: Sequence[Recording]) -> str:
    models: dict[tuple[str, str | None], str] = {}
    for recording in recordings:
        for point in (one for one in recording.points if one.digest):
            key = (str(point.model.get("id")), point.model.get("digest"))
            models.setdefault(
                key, f"{key[0]} ({(key[1] or 'no digest')[:12]}): {recording.run.id}, {point.id}"
            )
    if not models:
        where = ", ".join(str(recording.path) for recording in recordings)
        said = [
            f"{end.point}: {end.why}"
            for recording in recordings
            for end in recording.ends.values()
            if end.why
        ]
        what = "nothing was measured: the records hold no point that was"
        raise FleetError(what, where, "run the benchmark again", said)
    if len(models) > 1:
        raise FleetError(
            f"{len(models)} different models were measured; they are not compared or averaged",
            "",
            "make a report of each run alone, of one model",
            list(models.values()),
        )
    return next(iter(models))[0]


def _cell(point: Point, run: Run) -> Cell:
    asked = (run.prompts_digest, str(run.suite.get("max_tokens", "?")))
    return (point.host, part(point), str(point.concurrency), *asked)


def _summarize_cell(cell: Cell, points: list[PointSummary], answers: bool) -> CellSummary:
    base = next((one for one in points if one.point.mode == "autoregressive" and one.speed), None)
    base = base or next((one for one in points if one.speed), points[0])
    ranked = sorted(
        (one for one in points if one.speed), key=lambda one: one.speed.mean if one.speed else 0, reverse=True
    )
    lead = compare(ranked[0], ranked[1]) if len(ranked) > 1 else None
    ratios = {one.name: compare(one, base) for one in points if one is not base and one.speed}
    said = {one.name: {name: prompt.text for name, prompt in one.prompts.items()} for one in points}
    return CellSummary(
        names=[one.name for one in points],
        prompts_digest=cell[-2],
        max_tokens=cell[-1],
        base=base.name,
        best=ranked[0].name if ranked else base.name,
        ratios={name: ratio for name, ratio in ratios.items() if ratio},
        lead=lead,
        differences=against(base.name, said) if answers else [],
        answers=answers,
    )


def compare(one: PointSummary, other: PointSummary) -> Comparison | None:
    """How many times as fast ``one`` is, over the prompts and repeats that both have; None where they share none."""
    if not one.speeds.keys() & other.speeds.keys():
        return None
    ratio = paired_ratio(one.speeds, other.speeds, draws=draws(one.speeds))
    return Comparison(
        one.name, other.name, ratio, contrary(one.speeds, other.speeds), min(one.rounds, other.rounds)
    )
