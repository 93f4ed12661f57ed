"""What counts as measured before, what as clearly worse, and what stood in a slot before a run that was killed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.bench.measured import measured_before, speeds
from fleetctl.bench.placing import overridden
from fleetctl.bench.points import Planned
from fleetctl.bench.record import End, Point, PointEnd, Record
from fleetctl.bench.records import Writer
from fleetctl.bench.restore import Before
from fleetctl.bench.standing import FOLDER, Put, Standing
from fleetctl.bench.suite import Suite
from fleetctl.bench.sweep import clearly_worse
from fleetctl.inventory.loader import Fleet, load_fleet
from fleetctl.services.target import Target, build_target
from tests.bench.made import failed, point, request, run

ROOT = Path(__file__).parents[2]
PROMPTS = "1" * 16
ONCE, TWICE = (Suite(suite="made", repeats=repeats, warmup=1) for repeats in (1, 2))


def _write(root: Path, name: str, *records: Record, prompts: str = PROMPTS, warmup: int = 1) -> None:
    suite = {"suite": "made", "warmup": warmup}
    with Writer(root, run(id=name, prompts_digest=prompts, suite=suite)) as writer:
        for record in records:
            writer.write(record)


def _whole(one: Point, rounds: int = 2, outcome: str = "done") -> list[Record]:
    requests = [request(one, prompt, repeat) for repeat in range(1, rounds + 1) for prompt in "abc"]
    return [one, *requests, PointEnd(one.id, outcome)]  # type: ignore[arg-type]


def test_only_what_was_measured_whole_here_with_these_prompts_counts(tmp_path: Path) -> None:
    done, stopped, cut, short, other = (point(name) for name in ("done", "stopped", "cut", "short", "other"))
    _write(
        tmp_path, "20261129T1-x-0001", *_whole(done), *_whole(stopped, 1, "stopped"), *_whole(cut, 2, "interrupted"),
        *_whole(short, 1), *_whole(replace(other, host="ct129")), End("done", "", ""),
    )  # fmt: skip
    _write(tmp_path, "20261129T2-x-0002", *_whole(cut), prompts="2" * 16)
    found = measured_before(tmp_path, "ct200", PROMPTS, TWICE)
    assert {known.point.service for known in found.values()} == {"done", "stopped"}


def test_what_was_measured_behind_less_warm_up_does_not_count(tmp_path: Path) -> None:
    cold, warm = point("cold"), point("warm")
    _write(tmp_path, "20261129T1-smoke-0001", *_whole(cold), *_whole(warm), warmup=0)
    _write(tmp_path, "20261129T2-x-0002", *_whole(warm), warmup=2)
    (known,) = measured_before(tmp_path, "ct200", PROMPTS, TWICE).values()
    assert (known.point.service, known.run) == ("warm", "20261129T2-x-0002")
    assert len(measured_before(tmp_path, "ct200", PROMPTS, TWICE.with_(warmup=0))) == 2


def test_a_point_that_a_kill_left_without_its_end_does_not_count(tmp_path: Path) -> None:
    one = point("ddtree")
    _write(tmp_path, "20261129T1-x-0001", *_whole(one)[:-1])
    assert measured_before(tmp_path, "ct200", PROMPTS, ONCE) == {}
    _write(tmp_path, "20261129T2-x-0002", one, failed(one), PointEnd(one.id, "done"))
    assert measured_before(tmp_path, "ct200", PROMPTS, ONCE) == {}


def test_the_newest_measurement_is_taken_and_says_where_from(tmp_path: Path) -> None:
    one = point("ddtree")
    for name in ("20261129T1-x-0001", "20261129T2-x-0002"):
        _write(tmp_path, name, *_whole(one))
    (known,) = measured_before(tmp_path, "ct200", PROMPTS, TWICE).values()
    assert known.run == "20261129T2-x-0002"
    other = Planned("ct200/native/ddtree?budget=15@c1", "ct200", "native", "ddtree", "tree", "sglang",
                    {"budget": 15}, {}, 1, 1)  # fmt: skip
    copied = known.records(other, "sweep-ddtree")
    assert {getattr(record, "id", None) or getattr(record, "point", None) for record in copied} == {other.id}
    assert copied[0] == replace(one, id=other.id, varied={"budget": 15}, suite_part="sweep-ddtree")
    assert copied[-1] == replace(known.end, point=other.id, why="measured before, in run 20261129T2-x-0002")
    _write(tmp_path, "20261129T3-x-0003", *copied)
    (again,) = measured_before(tmp_path, "ct200", PROMPTS, TWICE).values()
    assert again.records(other, "sweep-ddtree")[-1].why == copied[-1].why  # type: ignore[union-attr]


def test_a_damaged_run_is_passed_over(tmp_path: Path) -> None:
    _write(tmp_path, "20261129T1-x-0001", *_whole(point("ddtree")))
    for name, text in (("20261129T2-x-0002", "no records\n"), ("20261129T3-x-0003", "")):
        folder = tmp_path / ".fleetctl/bench" / name
        folder.mkdir()
        (folder / "records.jsonl").write_text(text)
    assert len(measured_before(tmp_path, "ct200", PROMPTS, TWICE)) == 1


def test_failed_and_warm_up_requests_have_no_speed() -> None:
    one = point("ddtree")
    requests = [request(one, "a", 1), failed(one, "b"), request(one, "c", 1, warmup=True)]
    assert speeds(requests) == {("a", 1): pytest.approx(20.0)}


@pytest.mark.parametrize(
    ("mine", "prompts", "worse"), [(10.0, 5, True), (17.9, 5, True), (19.0, 5, False), (10.0, 1, False)]
)
def test_clearly_worse_is_surely_below_the_margin_on_several_prompts(
    mine: float, prompts: int, worse: bool
) -> None:
    best = {(f"p{number}", 1): 20.0 * (1 + number) for number in range(prompts)}
    noise = [1.0, 1.001, 0.999, 1.0, 1.0]
    own = {key: mine / 20 * value * noise[number] for number, (key, value) in enumerate(best.items())}
    assert (clearly_worse(own, best, 0.9) is not None) == worse
    assert clearly_worse(own, best, 0.0) is None
    assert clearly_worse(own, {("other", 1): 1.0}, 0.9) is None


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    for folder in ("inventories", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return load_fleet(tmp_path, "inventories/lab")


def _target(fleet: Fleet, service: str, **args: int) -> Target:
    host = overridden(fleet.hosts["ct200"], service, args)
    return build_target(fleet, host, service, "/var/lib/fleetctl/envs/standalone-0", "0" * 12)


def test_what_a_killed_run_left_is_told_from_what_somebody_deployed(fleet: Fleet) -> None:
    host = fleet.hosts["ct200"]
    first = Before("native", _target(fleet, "autoregressive"), True)
    Standing(fleet, host, "native").note(first, Put("ddtree", {"budget": 8}, None))
    Standing(fleet, host, "native").note(first, Put("ddtree", {"budget": 32}, None))
    for left in ({"budget": 8}, {"budget": 32}):
        now = Before("native", _target(fleet, "ddtree", **left), True)
        assert Standing(fleet, host, "native").original(now) == first
    for service, args in (("ddtree", {"budget": 16}), ("dflash", {})):
        deployed = Before("native", _target(fleet, service, **args), True)
        assert Standing(fleet, host, "native").original(deployed) == deployed
    empty = Before("native", None, False)
    assert Standing(fleet, host, "native").original(empty) == empty
    assert Standing(fleet, host, "wrapper").original(empty) == empty


def test_a_slot_that_was_put_back_has_nothing_to_remember(fleet: Fleet) -> None:
    standing = Standing(fleet, fleet.hosts["ct200"], "native")
    first = Before("native", _target(fleet, "autoregressive"), True)
    standing.note(first, Put("ddtree", {"budget": 8}, None))
    standing.forget()
    now = Before("native", _target(fleet, "ddtree", budget=8), True)
    assert standing.original(now) == now
    standing.note(now, Put("ddtree", {"budget": 8}, None))
    (file,) = (fleet.root / FOLDER).iterdir()
    file.write_text("{")
    assert standing.original(now) == now
