"""A suite and a host in, the points to measure out, in their order and with what they will take. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetctl.bench import bounds
from fleetctl.bench.suite import Suite
from fleetctl.errors import FleetError
from fleetctl.inventory.models import Argument, Host, Service
from fleetctl.inventory.nearest import hint
from fleetctl.inventory.select import select_slot
from fleetctl.services.arguments import engine_args, setting_names
from fleetctl.services.engines import ENGINES

SWAP_S = {"standalone": 12.0, "sglang": 90.0, "other": 60.0}
TOKENS_S = {"standalone": 20.0, "sglang": 80.0, "other": 40.0}
"""What a swap takes, and tokens a second of one request, where nothing was measured yet."""
IN_PLACE = "in place of the suite's: bench HOST SERVICE…, sweep and tune with --service NAME"
BATCHED = 16
"""So many requests at once are held to be as quick as one by an engine that batches."""


@dataclass(frozen=True)
class Planned:
    """A point to be measured. ``overrides``: arguments of the engine in place of the service's own.

    ``varied``: what the suite varied, in engine-neutral names. ``copies``: how often each prompt is asked a round.
    """

    id: str
    host: str
    slot: str
    service: str
    mode: str
    engine: str
    varied: dict[str, Any]
    overrides: dict[str, Argument]
    concurrency: int
    copies: int
    context_tokens: int | None = None
    tp: int | None = None

    @property
    def placement(self) -> tuple[object, ...]:
        """What must stand in the slot: points with the same need no swap between them."""
        return (self.slot, self.service, tuple(sorted(self.overrides.items(), key=str)), self.tp)


@dataclass(frozen=True)
class Visit:
    """One stretch of measuring: ``rounds`` of a point, behind a swap where another placement was there before."""

    point: Planned
    rounds: list[int]
    swap: bool
    requests: int
    seconds: float


@dataclass(frozen=True)
class BenchPlan:
    """All visits in order. ``left_out``: what the suite asks for and a service cannot do, in words."""

    points: list[Planned]
    visits: list[Visit]
    left_out: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """What the whole will take, as far as can be told."""
        return sum(visit.seconds for visit in self.visits)

    @property
    def swaps(self) -> int:
        """Visits behind a swap."""
        return sum(visit.swap for visit in self.visits)

    @property
    def requests(self) -> int:
        """Requests that count, and warm-up ones."""
        return sum(visit.requests for visit in self.visits)


Estimate = Callable[[Planned], tuple[float | None, float | None]]
"""Seconds of a swap to a point and of one of its requests, as measured before; None where it was not."""


def choose_services(host: Host, suite: Suite, named: Sequence[str]) -> list[str]:
    """The services named, else the suite's, else all of the host's default slot; FleetError: unknown, or twice."""
    chosen = list(named or suite.services)
    if twice := [name for name in dict.fromkeys(chosen) if chosen.count(name) > 1]:
        by = "" if named else f" by the suite {suite.suite}"
        raise FleetError(
            f"{', '.join(twice)} named twice{by}: each service is measured once",
            fix="name it once; --repeats N measures it in more rounds",
        )
    for name in chosen:
        if name not in host.services:
            whose = "" if named else f", which the suite {suite.suite} names"
            fix = hint(name, host.services, "services") + ("" if named else f"; {IN_PLACE}")
            raise FleetError(f"no service {name} on {host.name}{whose}", fix=fix)
    if not chosen:
        slot = select_slot(host, None)
        chosen = [entry.name for entry in host.services.values() if entry.slot == slot]
    if not chosen:
        raise FleetError(f"{host.name} has no service in its default slot", fix="name services")
    return chosen


def plan_bench(
    host: Host,
    suite: Suite,
    services: Sequence[str],
    prompts: int,
    estimate: Estimate = lambda point: (None, None),
) -> BenchPlan:
    """The points of ``services`` under ``suite`` with so many ``prompts``, and the visits that measure them.

    FleetError (exit 2) where the suite varies what no engine knows, or asks for too many requests in all.
    """
    left_out: list[str] = []
    unique: dict[str, Planned] = {}
    requests = 0
    for point in (
        one for name in services for one in _points(host, host.services[name], suite, prompts, left_out)
    ):
        requests += suite.repeats * (prompts * point.copies * suite.turns + suite.warmup)
        _require_bounded(requests, suite)
        unique[point.id] = point
    every = list(range(1, suite.repeats + 1))
    order = (
        [(point, every) for point in unique.values()]
        if suite.order == "blocks"
        else [(point, [number]) for number in every for point in unique.values()]
    )
    visits, before = [], None
    for point, rounds in order:
        swap = point.placement != before
        visits.append(visit_of(point, rounds, swap, suite, prompts, estimate))
        before = point.placement
    return BenchPlan(list(unique.values()), visits, list(dict.fromkeys(left_out)))


def _require_bounded(requests: int, suite: Suite) -> None:
    if requests > bounds.REQUESTS:
        raise FleetError(
            f"more than {bounds.REQUESTS:,} requests would be planned",
            f"the suite {suite.suite}",
            "fewer rounds (--repeats), prompts (--limit), requests at once (--concurrency) or values that it varies",
        )


def _points(
    host: Host, service: Service, suite: Suite, prompts: int, left_out: list[str]
) -> Iterator[Planned]:
    names = _taken(service, suite, left_out)
    for values in itertools.product(*(suite.vary[name] for name in names)):
        varied: dict[str, Any] = dict(zip(names, values, strict=True))
        overrides = engine_args(service.engine, service.mode, varied)
        contexts: list[int | None] = [*suite.context_tokens] or [None]
        for tp, context in itertools.product(_tps(host, service, suite, left_out), contexts):
            here = {
                **varied,
                **({"tp": tp} if tp else {}),
                **({"context_tokens": context} if context else {}),
            }
            for concurrency in suite.concurrency:
                yield Planned(
                    id=point_id(host.name, service.slot, service.name, here, concurrency),
                    host=host.name,
                    slot=service.slot,
                    service=service.name,
                    mode=service.mode,
                    engine=service.engine,
                    varied=here,
                    overrides=overrides,
                    concurrency=concurrency,
                    copies=copies(prompts, concurrency),
                    context_tokens=context,
                    tp=tp,
                )


def point_id(host: str, slot: str, service: str, varied: dict[str, Any], concurrency: int) -> str:
    """``ct200/native/ddtree?budget=15&topk=8@c4``"""
    asked = "&".join(f"{name}={value}" for name, value in varied.items())
    return f"{host}/{slot}/{service}{'?' if asked else ''}{asked}@c{concurrency}"


def copies(prompts: int, concurrency: int) -> int:
    """How often each prompt is asked a round: often enough that ``concurrency`` requests stay at work."""
    return 1 if concurrency == 1 else -(-2 * concurrency // prompts)


def _taken(service: Service, suite: Suite, left_out: list[str]) -> list[str]:
    """What of the suite's ``vary`` this service's mode takes."""
    every = {name for engine in ENGINES.values() for name in engine.settings}
    takes = setting_names(service.engine, service.mode)
    taken = []
    for name in suite.vary:
        neutral = name.replace("_", "-")
        if neutral not in every:
            raise FleetError(
                f"the suite {suite.suite} varies {name}, which no engine knows",
                fix=hint(name, every, "what can be varied"),
            )
        if neutral in takes:
            taken.append(name)
    if missing := [name for name in suite.vary if name not in taken]:
        left_out.append(
            f"{service.name} (mode {service.mode}) takes no {', '.join(missing)}: measured as it is"
        )
    return taken


def _tps(host: Host, service: Service, suite: Suite, left_out: list[str]) -> list[int | None]:
    if not suite.tp:
        return [None]
    if service.engine != "sglang":
        left_out.append(f"{service.name} ({service.engine}) runs on one place: tp is not varied")
        return [None]
    fitting: list[int | None] = []
    for tp in suite.tp:
        if len(gpus_for(host, service.slot, tp)) == tp:
            fitting.append(tp)
        else:
            left_out.append(f"tp {tp}: slot {service.slot} cannot get so many GPUs that no other slot has")
    return fitting


def gpus_for(host: Host, slot: str, tp: int) -> list[int]:
    """The GPUs of ``slot`` for a tensor parallelism of ``tp``: its own, then those of no other slot."""
    others = {gpu for place in host.slots.values() if place.name != slot for gpu in place.gpus}
    own = host.slots[slot].gpus
    free = [gpu for gpu in range(host.gpus.count) if gpu not in others and gpu not in own]
    return [*own, *free][:tp]


def visit_of(
    point: Planned, rounds: list[int], swap: bool, suite: Suite, prompts: int, estimate: Estimate
) -> Visit:
    """The visit that asks so many ``prompts`` of a point in ``rounds``, and what it will take."""
    swap_s, request_s = estimate(point)
    if swap_s is None:
        swap_s = SWAP_S[point.engine]
    if request_s is None:
        slowed = point.concurrency if point.engine == "standalone" else max(1, point.concurrency / BATCHED)
        request_s = suite.max_tokens / TOKENS_S[point.engine] * slowed
    counted = prompts * point.copies * suite.turns * len(rounds)
    seconds = request_s * (suite.warmup + counted / point.concurrency)
    return Visit(point, rounds, swap, counted + suite.warmup, seconds + (swap_s if swap else 0.0))
