"""Measuring on one host: put a service into its slot, let requests end, measure, and put back what was there."""

from __future__ import annotations

import asyncio
import getpass
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from fleetctl.bench import exposition, prompts, refusals, restore
from fleetctl.bench.asks import Round, calibration, characters_a_token
from fleetctl.bench.client import Ask, Client, Limits
from fleetctl.bench.clocks import clock_jump, clocks
from fleetctl.bench.filled import Change, change_since
from fleetctl.bench.loadgen import LoadGenerator
from fleetctl.bench.placing import Placed, look, overridden, point, require_overridable, unmeasured
from fleetctl.bench.points import Planned
from fleetctl.bench.prompts import Prompt
from fleetctl.bench.reach import Way, reach
from fleetctl.bench.record import Outcome, PointEnd, Record, Request
from fleetctl.bench.records import utc_now
from fleetctl.bench.standing import Put, Standing
from fleetctl.bench.suite import Suite
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Argument, Host
from fleetctl.rollout.deploy import deploy_service
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.rollout.measured import this_process
from fleetctl.services.secrets import api_key
from fleetctl.transport.agent import Agent, open_agent

OnEvent = Callable[[dict[str, Any]], None]
IDLE_EVERY_S = 0.2
TREES = 4
"""Steps whose drafted trees the standalone server is asked for, once for each prompt; it costs it less than 1 ms."""


@dataclass
class _Tally:
    """What a point's visits come to."""

    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    swap_s: float | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    jump_s: float = 0.0
    visits: int = 0
    disturbed: list[int] = field(default_factory=list)


class Session:
    """One host while it is measured. On leaving, each slot has again what it had before the first ``put``.

    ``on_event`` gets rollouts' events, ``record`` each record as it comes, ``on_request`` each request too.
    ``origin``: the clock that ``started_s`` counts from (``time.perf_counter``). ``generator`` makes the requests that
    count in the own client's place. ``what``: the command that measures, for others to see.
    """

    def __init__(
        self,
        fleet: Fleet,
        host: Host,
        on_event: OnEvent,
        record: Callable[[Record], None] = lambda record: None,
        on_request: Callable[[Request], None] = lambda request: None,
        interrupt: Interrupt | None = None,
        limits: Limits | None = None,
        generator: LoadGenerator | None = None,
        what: str = "",
    ) -> None:
        self._what = what
        self._generator = generator
        self._fleet = fleet
        self._host = host
        self._on_event = on_event
        self._record = record
        self._on_request = on_request
        self._interrupt = interrupt or Interrupt()
        self._limits = limits or Limits()
        self._origin = time.perf_counter()
        self._before: dict[str, restore.Before] = {}
        self._own: dict[str, str] = {}
        self._there: dict[str, tuple[object, Placed, Way]] = {}
        self._ways: dict[str, ExitStack] = {}
        self._warm: set[str] = set()
        self._known: set[str] = set()
        self._tallies: dict[str, _Tally] = {}
        self._characters: dict[str, float] = {}
        self._unanswered = False
        self._told = ExitStack()
        self._teller: Agent | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.put_back()
        finally:
            self._told.close()

    def put(self, service: str, args: Mapping[str, Argument] | None = None, tp: int | None = None) -> Placed:
        """Have ``service``, its arguments overridden by the engine's ``args``, serve in its slot, proven by probes.

        Nothing happens where it does already. Requests in flight there end first. Raises what a deploy does.
        """
        args = dict(args or {})
        slot = self._host.services[service].slot
        wanted = (service, tuple(sorted(args.items(), key=str)), tp)
        if slot in self._there and self._there[slot][0] == wanted:
            return replace(self._there[slot][1], swap_s=None)
        require_overridable(self._fleet, self._host, service, args)
        self._remember(slot)
        self._heed_others(slot)
        if slot in self._there:
            self.wait_idle(slot)
        self._leave(slot)
        host = overridden(self._host, service, args, tp)
        self._standing(slot).note(self._before[slot], Put(service, args, tp))
        began = time.perf_counter()
        try:
            outcome = deploy_service(self._fleet, host, service, None, False, self._interrupt, self._on_event)
        finally:
            with suppress(FleetError):
                self._own[slot] = restore.last_rollout(host, slot)
        swap_s = time.perf_counter() - began if outcome.verdict == "done" else None
        with open_agent(host) as agent:
            placed = look(agent, host, host.services[service], swap_s)
        key = api_key(self._fleet, host, host.services[service])
        way = self._ways.setdefault(slot, ExitStack()).enter_context(
            reach(host, placed.port, host.services[service].model_id, key)
        )
        self._there[slot] = (wanted, placed, way)
        self._warm = set()
        return placed

    def measure(
        self,
        planned: Planned,
        suite: Suite,
        asked: Sequence[Prompt] | None = None,
        rounds: Sequence[int] | None = None,
    ) -> list[Request]:
        """Measure ``rounds`` (default: all) of a point, its service put there first; the requests that count.

        Warm-up comes before them where the service was started anew. Failed requests are among them. FleetError (exit
        5) where the service was changed or restarted meanwhile: these rounds count for nothing; and before anything
        is asked where the model's context, as its server tells it, is too short for the point.
        """
        asked = asked if asked is not None else suite.read_prompts(self._fleet.root)
        rounds = rounds if rounds is not None else range(1, suite.repeats + 1)
        placed = self.put(planned.service, planned.overrides, planned.tp)
        way = self._there[planned.slot][2]
        refusals.require_room(planned, suite, way.context)
        if planned.id not in self._known:
            self._known.add(planned.id)
            by = self._generator.by if self._generator else None
            digest = prompts.digest(list(asked))
            self._record(point(planned, placed, suite, digest, way.via, utc_now(), by))
        self.wait_idle(planned.slot)
        tally = self._tallies.setdefault(planned.id, _Tally())
        kept = tally.before, tally.after
        self._unanswered = False
        before = exposition.fetch(way.base_url, way.socket)
        began = clocks()
        try:
            requests = asyncio.run(self._requests(planned, suite, asked, rounds, placed, way))
        finally:
            wall, steady, cpu = (now - then for now, then in zip(clocks(), began, strict=True))
            tally.before = exposition.added(tally.before, before)
            tally.after = exposition.added(tally.after, exposition.fetch(way.base_url, way.socket))
            tally.wall_s += steady
            tally.cpu_s += cpu
            tally.jump_s += clock_jump(wall, steady)
            tally.visits += 1
            if placed.swap_s is not None:
                tally.swap_s = (tally.swap_s or 0.0) + placed.swap_s
        limits = placed.service.deadlines
        if change := self._changed(placed, limits.drain + limits.stop + limits.ready + limits.generate):
            tally.before, tally.after = kept
            tally.disturbed += rounds
            self._leave(planned.slot)
            raise refusals.disturbed(planned, change)
        return requests

    def end(self, planned: Planned, suite: Suite, outcome: Outcome, why: str = "") -> PointEnd:
        """Record how a point ended, with what its visits come to; of one that never stood there also what it was."""
        if planned.id not in self._known:
            self._known.add(planned.id)
            self._record(unmeasured(planned, self._host, suite, utc_now()))
        tally = self._tallies.get(planned.id, _Tally())
        ended = PointEnd(
            point=planned.id,
            outcome=outcome,
            why=why,
            metrics={"before": tally.before, "after": tally.after},
            swap_s=tally.swap_s,
            wall_s=tally.wall_s,
            client_cpu_s=tally.cpu_s,
            clock_jump_s=tally.jump_s,
            visits=tally.visits,
            disturbed=tally.disturbed,
        )
        self._record(ended)
        return ended

    def wait_idle(self, slot: str) -> None:
        """Wait until the slot's service has no request in flight, as its metrics tell; at most its drain deadline.

        FleetError (exit 5) where others go on asking: nothing is measured beside them.
        """
        _, placed, way = self._there[slot]
        limit = placed.service.deadlines.drain
        until = time.monotonic() + limit
        said = False
        while True:
            flying = exposition.in_flight(exposition.fetch(way.base_url, way.socket), placed.metrics)
            if not flying:
                return
            left = until - time.monotonic()
            text = f"{flying:g} {'request' if flying == 1 else 'requests'} in flight at {placed.service.name}"
            if left <= 0:
                raise refusals.others_ask(f"{text} after {limit:g} s", f"{self._host.name}, slot {slot}")
            self._on_event(
                {"step": "idle", "state": "wait" if said else "begin", "text": text, "left_s": left}
            )
            said = True
            time.sleep(IDLE_EVERY_S)

    def put_back(self) -> list[str]:
        """Bring back what stood in each slot; in words what came of each. FleetError where one fails."""
        words, errors = [], []
        for slot in list(self._before):
            self._leave(slot)
            self._on_event({"step": "put-back", "state": "begin", "text": f"what stood in slot {slot}"})
            with suppress(FleetError):
                self._heed_others(slot)
            try:
                words.append(restore.put_back(self._fleet, self._host, self._before[slot], self._on_event))
                self._on_event({"step": "put-back", "state": "ok", "text": words[-1]})
                del self._before[slot]
                self._standing(slot).forget()
            except FleetError as error:
                errors.append(error)
        if errors and self._interrupt.left and errors[0].exit == Exit.LOCKED:
            raise refusals.left_to_the_host(self._host)
        if errors:
            raise errors[0]
        return words

    def _heed_others(self, slot: str) -> None:
        """What another rollout has put into the slot since this session's own is what is brought back in the end."""
        theirs = restore.put_since(self._host, slot, self._own[slot]) if slot in self._own else None
        if theirs is None:
            return
        self._before[slot] = theirs
        name = theirs.target.service if theirs.target else "nothing"
        text = f"slot {slot}: another rollout has put {name} there, which is what it has in the end"
        self._on_event({"step": "put-back", "state": "info", "text": text})

    def _remember(self, slot: str) -> None:
        if slot not in self._before:
            with open_agent(self._host) as agent:
                now = restore.remember(agent, self._host, slot)
            self._tell(slot)
            self._before[slot] = self._standing(slot).original(now)

    def _tell(self, slot: str) -> None:
        """Let others see that the slot is measured, as long as this session lasts; it is no matter where that fails."""
        by = {
            "operator": getpass.getuser(),
            "from": socket.gethostname(),
            "process": this_process(),
            "what": self._what,
        }
        with suppress(FleetError):
            if self._teller is None:
                self._teller = self._told.enter_context(open_agent(self._host))
            self._teller.call("measuring.begin", slot=slot, by=by)

    def _standing(self, slot: str) -> Standing:
        return Standing(self._fleet, self._host, slot)

    def _leave(self, slot: str) -> None:
        self._there.pop(slot, None)
        if way := self._ways.pop(slot, None):
            way.close()

    async def _requests(
        self,
        planned: Planned,
        suite: Suite,
        asked: Sequence[Prompt],
        rounds: Sequence[int],
        placed: Placed,
        way: Way,
    ) -> list[Request]:
        model = placed.service.model_id
        client = Client(way.base_url, model, self._limits, self._origin, way.socket, way.key)
        trees = TREES if planned.engine == "standalone" else 0
        counted: list[Request] = []
        async with client:
            if planned.context_tokens and model not in self._characters:
                ask = calibration()
                self._characters[model] = characters_a_token(ask, await client.measure(ask))
            whose = Round(planned, suite, asked, self._characters.get(model, 3.5))
            for number in rounds:
                if planned.id not in self._warm:
                    self._warm.add(planned.id)
                    await client.load(whose.warmups(number), 1, on_request=self._took)
                asks = whose.asks(number, trees if number == 1 else 0)
                if self._generator is None:
                    asks = self._while_it_serves(asks, placed)
                    counted += await client.load(asks, planned.concurrency, on_request=self._took)
                else:
                    counted += self._generated(self._generator, way, model, list(asks), planned, suite)
        return counted

    def _generated(
        self,
        generator: LoadGenerator,
        way: Way,
        model: str,
        asks: Sequence[Ask],
        planned: Planned,
        suite: Suite,
    ) -> list[Request]:
        """A round that a load generator makes; the loop has nothing else to do meanwhile."""
        what = (
            "servers behind ssh" if way.socket else "turns that follow an answer" if suite.turns > 1 else ""
        )
        if what or way.key:
            raise FleetError(
                f"{generator.by} knows no {what}"
                if what
                else f"{generator.by} would show the service's key in its command line",
                f"{self._host.name}, {way.base_url}",
                "leave out --by: fleetctl's own client does",
            )
        made = generator.load(way.base_url, model, asks, planned.concurrency, self._origin, self._limits)
        for request in made:
            self._took(request)
        return made

    def _while_it_serves(self, asks: Iterable[Ask], placed: Placed) -> Iterator[Ask]:
        """``asks``, as long as what was put there serves: looked at once a request finds nobody."""
        for ask in asks:
            if self._unanswered:
                with suppress(FleetError):  # the round's end asks again
                    if self._changed(placed):
                        return
                self._unanswered = False
            yield ask

    def _changed(self, placed: Placed, patience_s: float = 0.0) -> Change | None:
        began = placed.filled
        return change_since(began, placed.host, placed.service, patience_s) if began else None

    def _took(self, request: Request) -> None:
        error = request.error
        if error and error.kind in ("refused", "cut") and not request.events:
            self._unanswered = True
        self._record(request)
        self._on_request(request)
