"""What a tuning announces: the race and the check, and no more of either than comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from json import loads
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fleetctl.bench import tune
from fleetctl.bench.asks import Round
from fleetctl.bench.points import Planned
from fleetctl.bench.prompts import Prompt
from fleetctl.bench.record import Request
from fleetctl.bench.suite import Suite
from fleetctl.cli import bench
from fleetctl.cli.app import whole
from fleetctl.cli.bench_progress import _State
from fleetctl.cli.output import Output
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import load_fleet
from fleetctl.rollout.interrupt import Interrupt
from tests.bench import made

ROOT = Path(__file__).parents[2]
SPEEDS = {"autoregressive": 20.0, "dflash": 5.0, "ddtree": 10.0}


@pytest.fixture(autouse=True)
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A fleet folder with the lab's inventory, and ``autoregressive`` in the slot."""
    for name in ("inventories", "playbooks", "envs", "templates"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.setenv("FLEETCTL_FLEET", str(tmp_path))
    monkeypatch.setenv("FLEETCTL_INVENTORY", "inventories/lab")
    monkeypatch.setattr(tune, "_stands", lambda *_: {"native": "autoregressive"})


def prepared(looks: int | None = None, **changes: Any) -> tune.Prepared:
    job = bench.prepare(load_fleet(), "ct200", [], "tune-lab", None, None, changes)
    return tune.prepare(job, lambda point: (10.0, 1.0), looks=looks)


def test_the_plan_has_the_check_and_both_parts_of_the_prompts() -> None:
    found = prepared()
    race, check = found.job.plan.visits[: 4 * 6], found.job.plan.visits[4 * 6 :]
    assert sum(visit.requests for visit in race) == 6 * (13 + 4)
    assert [visit.rounds for visit in check] == [[number] for number in (5, 6, 7) for _ in range(3)]
    assert len({visit.point.service for visit in check}) == 3, "the choice, what runs, another's best"
    assert all(visit.swap and visit.requests == 7 + 1 for visit in check)
    assert found.job.plan.seconds == (24 + 9) * 10 + 6 * (13 + 4) + 9 * (7 + 1)

    said = CliRunner().invoke(whole(), ["tune", "ct200", "--suite", "tune-lab", "--plan"]).output
    assert said.startswith("tune-lab: 20 prompts, 13 to choose with and 7 to check with, at most 32 tokens")
    (line,) = (line for line in said.splitlines() if line.startswith("the check, at most"))
    assert line.split()[4] == "72" and "33 swaps, 174 requests: about" in said
    assert "4 looks at 3, 3, 4, 3 prompts, then a check of at most 3 candidates" in said
    done = CliRunner().invoke(whole(), ["tune", "ct200", "--suite", "tune-lab", "--plan", "--json"])
    plan = loads(done.output)["plan"]
    assert plan["check"]["requests"] + sum(point["requests"] for point in plan["points"]) == plan["requests"]


def test_a_small_look_keeps_as_many_at_work_as_a_large_one() -> None:
    found = prepared(concurrency=[8])
    assert {point.copies for point in found.job.plan.points} == {6}  # of the 3 prompts of the smallest look
    assert found.job.plan.visits[0].requests == 3 * 6 + 1


def test_more_looks_than_the_prompts_are_enough_for_are_refused() -> None:
    assert len(prepared(looks=4).parts) == len(prepared().parts) == 4
    with pytest.raises(
        FleetError, match="13 prompts to choose with are enough for 4 looks, not for 20"
    ) as caught:
        prepared(looks=20)
    assert caught.value.exit == Exit.INPUT and "--looks 4" in caught.value.fix


class _Session:
    """Answers at once, as quick as ``SPEEDS``."""

    def __init__(self, *of: Any, what: str) -> None:
        self.on_request: Callable[[Request], None] = of[4]

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *of: Any) -> None: ...

    def end(self, *of: Any) -> None: ...

    def measure(
        self, point: Planned, suite: Suite, prompts: Sequence[Prompt], rounds: Sequence[int]
    ) -> list[Request]:
        whose, (number,) = Round(point, suite, prompts), rounds
        found = []
        for ask in [*whose.warmups(number), *whose.asks(number)]:
            record = made.point(point.service, id=point.id)
            speed = SPEEDS[point.service] + (point.varied.get("budget", 0) / 10)
            one = made.request(record, ask.prompt, ask.repeat, speed, round=number, warmup=ask.warmup)
            self.on_request(one)
            found += [] if ask.warmup else [one]
        return found


class _Bar(_State):
    totals: list[int]

    def visited(self, visit: Any) -> None:
        super().visited(visit)
        self.totals.append(self.total)


@contextmanager
def _no_agent(host: Any) -> Iterator[None]:
    yield None


def test_the_bar_never_grows_and_ends_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "Session", _Session)
    monkeypatch.setattr(tune, "open_agent", _no_agent)
    monkeypatch.setattr(tune, "host_facts", lambda agent: {})
    found = prepared()
    bar = _Bar(Output(), found.job.plan)
    bar.totals = [bar.total]
    tuning = tune.run_tune(found, Interrupt(), bar)
    assert tuning.advice == tuning.incumbent == tuning.choice == "ct200/native/autoregressive@c1"
    assert tuning.out, "some left the race early"
    assert bar.totals == sorted(bar.totals, reverse=True) and bar.totals[0] == 174
    assert bar.total == bar.done < 174 and not bar.to_come and bar.left_s() == 0
