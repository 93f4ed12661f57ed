"""What progress says: time that is left, the result so far, plainly where it is piped."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from fleetctl.bench.points import plan_bench
from fleetctl.cli import bench_progress
from fleetctl.cli.output import Output
from fleetctl.errors import FleetError
from tests.bench import made
from tests.bench.test_points import host, suite


def test_time_left_follows_how_right_the_plan_was(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(bench_progress.time, "monotonic", lambda: now)
    plan = plan_bench(host(), suite(repeats=2, warmup=0), ["plain", "ddtree"], 4, lambda point: (10.0, 5.0))
    state = bench_progress._State(Output(), plan)
    assert plan.seconds == 120 and state.left_s() == 120
    first, second, *_ = plan.visits
    state.visit(first)
    now += 500
    assert state.left_s() == 90  # never nothing while three visits are to come
    for number in range(4):
        state.request(made.request(made.point(id=first.point.id), prompt=str(number)))
    state.visited(first)
    now += 100
    assert state.left_s() == pytest.approx(90 * 600 / 30)
    state.failed(second.point, FleetError("no"))
    assert state.left_s() == pytest.approx(30 * 600 / 30)
    assert state.so_far() == "plain 20.0 tok/s"


def test_while_things_are_put_back_no_point_and_no_estimate_is_named() -> None:
    plan = plan_bench(host(), suite(repeats=2, warmup=0), ["plain"], 2)
    live = bench_progress._Live(Output(), plan)
    live.visit(plan.visits[0])

    def shown() -> str:
        console = Console(width=200, file=StringIO())
        console.print(live._view())
        return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]

    assert plan.points[0].id in shown() and " left" in shown()
    live.event({"step": "put-back", "state": "begin", "text": "what stood in slot native"})
    live.event({"step": "health", "state": "wait", "text": "503"})
    assert "0/4 requests · putting back" in shown() and "health: 503" in shown()
    assert plan.points[0].id not in shown() and " left" not in shown()


def test_piped_it_is_one_line_a_visit(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_bench(host(), suite(repeats=1, warmup=0), ["plain"], 2)
    with bench_progress.watching(Output(), plan) as watcher:
        (visit,) = plan.visits
        watcher.visit(visit)
        watcher.event({"step": "health", "state": "wait", "text": "503"})
        point = made.point(id=visit.point.id)
        for request in (made.request(point), made.failed(point, "b")):
            watcher.request(request)
        watcher.visited(visit)
        watcher.failed(visit.point, FleetError("it is gone"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "round 1: 2 requests, 1 failed, 20.0 tok/s · 2 of 2" in lines[0]
    assert lines[1] == "ct200/native/plain@c1 is left out: it is gone"
