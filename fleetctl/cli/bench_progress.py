"""Progress of a benchmark on stderr: what runs, what is left, and the result so far."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fleetctl.bench.figures import speed
from fleetctl.cli.output import Output
from fleetctl.cli.progress import describe
from fleetctl.words import counted, duration

if TYPE_CHECKING:
    from rich.console import Group

    from fleetctl.bench.points import BenchPlan, Planned, Visit
    from fleetctl.bench.record import Request
    from fleetctl.bench.runner import Watcher
    from fleetctl.errors import FleetError

PLAIN_EVENTS = ("fail", "info")


@contextmanager
def watching(output: Output, plan: BenchPlan) -> Iterator[Watcher]:
    """The watcher that fits where the output goes: a live bar, plain lines, or JSON lines on stdout."""
    if output.json:
        yield _Json(output, plan)
    elif output.progress.is_terminal:
        with _Live(output, plan) as live:
            yield live
    else:
        yield _Plain(output, plan)


class _State:
    """What a plan has come to so far."""

    def __init__(self, output: Output, plan: BenchPlan) -> None:
        self.output = output
        self.plan = plan
        self.began = time.monotonic()
        self.requests: defaultdict[str, list[Request]] = defaultdict(list)
        self.done = 0
        self.planned_s = 0.0
        self.to_come = list(plan.visits)
        self.putting_back = False
        self.now: Visit | None = None
        self.here = 0

    def event(self, event: dict[str, Any]) -> None:
        """Notice that all is measured, and what stood in the slots comes back."""
        if event["step"] == "put-back" and event["state"] == "begin":
            self.putting_back = True

    def visit(self, visit: Visit) -> None:
        """Remember what runs."""
        self.now = visit
        if visit in self.to_come:
            self.to_come.remove(visit)
        self.here = 0

    def request(self, request: Request) -> None:
        """Count it."""
        self.requests[request.point].append(request)
        self.done += 1
        self.here += 1

    def visited(self, visit: Visit) -> None:
        """Count what its estimate was, to scale the rest by."""
        self.planned_s += visit.seconds
        self.now = None

    def failed(self, point: Planned, error: FleetError) -> None:
        """Its other visits are not made."""
        self._leave_out(point)

    def stopped(self, point: Planned, why: str) -> None:
        """Its other visits are not made; the reason is told as an event."""
        self._leave_out(point)
        self.event({"step": "stop", "state": "info", "text": f"{short(point)}: {why}"})

    def ahead(self, visits: Sequence[Visit]) -> None:
        """Other visits than were planned."""
        self.to_come = list(visits)

    def left_s(self) -> float:
        """Seconds that are left: the plan's own, scaled by how right it was so far."""
        to_come = sum(visit.seconds for visit in self.to_come)
        elapsed = time.monotonic() - self.began
        now = self.now
        now_s, requests = (now.seconds, now.requests) if now else (0.0, 0)
        share = min(1.0, self.here / requests) if requests else 0.0
        made = self.planned_s + share * now_s
        if made <= 0:
            return max(to_come + now_s - elapsed, to_come)
        return (to_come + (1 - share) * now_s) * elapsed / made

    @property
    def total(self) -> int:
        """Requests in all: those made, and those of the visits that are still to come."""
        now = self.now
        here = max(0, now.requests - self.here) if now else 0
        return self.done + here + sum(visit.requests for visit in self.to_come)

    def _leave_out(self, point: Planned) -> None:
        self.to_come = [visit for visit in self.to_come if visit.point.id != point.id]
        if self.now and self.now.point.id == point.id:
            self.now = None

    def so_far(self) -> str:
        """``autoregressive 17.2 · ddtree 33.1 tok/s``"""
        words = []
        for point in self.plan.points:
            found = speed(self.requests[point.id], point.concurrency)
            if found is not None:
                words.append(f"{short(point)} {found:.1f}")
        return f"{' · '.join(words)} tok/s" if words else ""


def short(point: Planned) -> str:
    """A point's name without its host and slot."""
    name = point.id.rpartition("/")[2]
    return name.removesuffix("@c1")


def _is_back(event: dict[str, Any]) -> bool:
    return bool(event["step"] == "put-back" and event["state"] == "ok")


class _Json(_State):
    def event(self, event: dict[str, Any]) -> None:
        super().event(event)
        self.output.event(event)

    def visited(self, visit: Visit) -> None:
        super().visited(visit)
        found = speed(self.requests[visit.point.id], visit.point.concurrency)
        self.output.event(
            {
                "step": "measure",
                "state": "ok",
                "text": visit.point.id,
                "rounds": visit.rounds,
                "tokens_per_second": found,
                "requests": self.done,
                "of": self.total,
                "left_s": round(self.left_s(), 1),
            }
        )

    def failed(self, point: Planned, error: FleetError) -> None:
        super().failed(point, error)
        self.output.event({"step": "measure", "state": "fail", "text": f"{point.id}: {error}"})


class _Plain(_State):
    def event(self, event: dict[str, Any]) -> None:
        super().event(event)
        if event["state"] in PLAIN_EVENTS or _is_back(event):
            self._say(describe(event))

    def visited(self, visit: Visit) -> None:
        super().visited(visit)
        mine = [one for one in self.requests[visit.point.id] if one.round in visit.rounds and not one.warmup]
        wrong = sum(one.error is not None for one in mine)
        found = speed(mine, visit.point.concurrency)
        rounds = f"round {visit.rounds[0]}" if len(visit.rounds) == 1 else f"{len(visit.rounds)} rounds"
        figures = f"{found:.1f} tok/s" if found is not None else "no answer"
        failed = f", {wrong} failed" if wrong else ""
        self._say(
            f"{visit.point.id} {rounds}: {counted(len(mine), 'request')}{failed}, {figures} "
            f"· {self.done} of {self.total}, {duration(self.left_s())} left"
        )

    def failed(self, point: Planned, error: FleetError) -> None:
        super().failed(point, error)
        self._say(f"{point.id} is left out: {error}")

    def _say(self, text: str) -> None:
        self.output.progress.print(text, markup=False, highlight=False)


class _Live(_State):
    def __init__(self, output: Output, plan: BenchPlan) -> None:
        super().__init__(output, plan)
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        self._text = ""
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("requests · {task.fields[left]}"),
            console=output.progress,
        )
        self._task = self._bar.add_task("", total=plan.requests, left="")
        self._live = Live(
            console=output.progress, transient=True, refresh_per_second=4, get_renderable=self._view
        )

    def __enter__(self) -> _Live:
        self._live.__enter__()
        return self

    def __exit__(self, *of: Any) -> None:
        self._live.__exit__(*of)

    def event(self, event: dict[str, Any]) -> None:
        super().event(event)
        self._text = describe(event)
        if event["state"] == "fail":
            self._keep(f"✗ {describe(event)}", "bold red")
        elif event["state"] == "info" or _is_back(event):
            self._keep(f"· {describe(event)}", "cyan")

    def request(self, request: Request) -> None:
        super().request(request)
        wrong = f"failed: {request.error.what}" if request.error else counted(request.tokens, "token")
        warm = " (warm-up)" if request.warmup else ""
        self._text = f"{request.prompt}{warm}: {wrong}"
        if request.error:
            self._keep(f"✗ {request.point} {request.prompt}: {request.error.what}", "red")

    def visited(self, visit: Visit) -> None:
        super().visited(visit)
        mine = [one for one in self.requests[visit.point.id] if one.round in visit.rounds]
        found = speed(mine, visit.point.concurrency)
        rounds = ", ".join(map(str, visit.rounds))
        figures = f"{found:.1f} tok/s" if found is not None else "no answer"
        self._keep(f"✓ {visit.point.id} round {rounds}: {figures}", "green")

    def failed(self, point: Planned, error: FleetError) -> None:
        super().failed(point, error)
        self._keep(f"✗ {point.id} is left out: {error}", "bold red")

    def _keep(self, text: str, style: str) -> None:
        from rich.text import Text

        from fleetctl.cli.output import clean

        self._live.console.print(Text(clean(text), style=style))

    def _view(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        from fleetctl.cli.output import clean

        left = "putting back" if self.putting_back else f"{duration(self.left_s())} left"
        self._bar.update(self._task, total=self.total, completed=self.done, left=left)
        where = f"{self.now.point.id}  " if self.now and not self.putting_back else ""
        lines = [Text(clean(f"{where}{self._text}"), no_wrap=True, overflow="ellipsis")]
        if words := self.so_far():
            lines.append(Text(f"so far: {words}", style="dim", overflow="ellipsis", no_wrap=True))
        return Group(self._bar, *lines)
