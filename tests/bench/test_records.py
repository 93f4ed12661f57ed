"""Records are read as they were written, cut files up to the cut, and others are refused by name."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.bench import records
from fleetctl.bench.record import Accepted, End, Failure, Point, PointEnd, Record, Request, Run, Tree, encode
from fleetctl.errors import Exit, FleetError
from tests.bench import made

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIMES = st.floats(0, 1e6, allow_nan=False)
POINT = made.point()


def write(folder: Path, written: Sequence[Record]) -> Path:
    first, *rest = written
    assert isinstance(first, Run)
    with records.Writer(folder, first) as writer:
        for record in rest:
            writer.write(record)
    return writer.path


TREES = st.builds(
    Tree, st.integers(0, 9), st.lists(TEXT, max_size=3), st.just([-1, 0]), st.none(), st.just([0])
)
FAILURES = st.builds(Failure, st.sampled_from(["cut", "http"]), st.none() | st.integers(400, 599), TEXT)
REQUESTS = st.builds(
    Request,
    point=st.just(POINT.id), prompt=TEXT, prompt_kind=TEXT, repeat=st.integers(1, 9), round=st.integers(1, 9),
    warmup=st.booleans(), started_s=TIMES, ttft_s=st.none() | TIMES, end_s=TIMES,
    events=st.lists(st.tuples(TIMES, st.integers(0, 9)), max_size=5), tokens=st.integers(0, 999),
    tokens_from=st.sampled_from(["usage", "events", "text"]), prompt_tokens=st.none() | st.integers(0, 9),
    text=TEXT, finish=st.none() | TEXT, usage=st.none() | st.dictionaries(TEXT, st.integers(-9, 9), max_size=2),
    accepted=st.none() | st.builds(Accepted, st.integers(0, 9), st.integers(0, 9)),
    trees=st.none() | st.lists(TREES, max_size=2), error=st.none() | FAILURES,
    warnings=st.lists(TEXT, max_size=2), by=st.none() | TEXT,
)  # fmt: skip


@given(st.lists(REQUESTS, max_size=4))
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, requests: list[Request]) -> None:
    path = write(tmp_path_factory.mktemp("fleet"), made.whole(POINT, *requests))
    recording = records.load(path)
    assert recording.requests == requests
    assert (recording.run, recording.points) == (made.run(), [POINT])
    assert recording.ends == {POINT.id: PointEnd(POINT.id, "done", visits=2)}
    assert recording.end.outcome == "done" and recording.problems == []


@given(st.text(st.characters(categories=["Cs", "Ll"]), max_size=9))
def test_halves_of_surrogate_pairs_are_written(text: str) -> None:
    line = json.loads(encode(made.request(POINT, text, 1, 20.0, text=f"\ud83d\ude00{text}")))
    assert line["text"].startswith("\U0001f600")
    kept = [char for char in text if not "\ud800" <= char <= "\udfff"]
    assert [char for char in line["prompt"] if char in kept] == kept


@given(st.data())
def test_a_file_cut_anywhere_is_read_up_to_the_cut(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = write(
        tmp_path_factory.mktemp("fleet"),
        made.whole(POINT, *(made.request(POINT, repeat=n) for n in range(1, 4))),
    )
    raw = path.read_bytes()
    first = raw.index(b"\n") + 1
    cut = data.draw(st.integers(first, len(raw)))
    path.write_bytes(raw[:cut])
    recording = records.load(path)
    lines = raw[:cut].count(b"\n")
    assert len(recording.hosts) + len(recording.points) + len(recording.requests) == min(lines - 1, 5)
    assert (recording.end.outcome == "done") == (cut == len(raw))
    assert bool(recording.problems) == (raw[cut - 1 : cut] != b"\n")


@given(
    st.lists(
        st.binary(max_size=40)
        | st.sampled_from([b'{"kind":"request",', b'{"kind":"end"}', b"{}", b"[]", b"nul"])
    )
)
def test_any_bytes_are_records_or_an_error_of_the_operator(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    path = write(tmp_path_factory.mktemp("fleet"), [made.run(), POINT])
    path.write_bytes(path.read_bytes() + b"\n".join(lines))
    try:
        recording = records.load(path)
    except FleetError as error:
        assert error.exit == Exit.INPUT and error.fix and str(path) in error.where
    else:
        assert recording.end.outcome in ("interrupted", "done")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "the first line describes no run"),
        (b"no JSON", "the first line describes no run"),
        (b'{"kind": "point"}', "the first line describes no run"),
        (b'{"kind": "run", "schema": 0}', "schema 0, older"),
        (encode(made.run()).replace(b'"schema":1', b'"mood":1'), "name no schema"),
        (b'{"kind": "run", "schema": 7, "fleetctl": "3.1"}', "schema 7, written by a newer fleetctl (3.1)"),
        (b'{"kind": "run", "schema": 1}', "a damaged record"),
    ],
)
def test_what_is_no_run_of_this_schema_is_refused(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(FleetError) as caught:
        records.load(path)
    assert said in caught.value.what and caught.value.exit == Exit.INPUT


def test_lines_that_nobody_knows_are_named_and_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, [made.run(), POINT, made.request(made.point("other")), made.request(POINT)])
    path.write_bytes(path.read_bytes() + b'{"kind":"weather","rain":1}\n' + encode(made.run()) + b"\n")
    recording = records.load(path)
    assert len(recording.requests) == 1
    assert [problem.split()[1] for problem in recording.problems] == ["3", "5", "6"]


def test_another_run_in_the_same_file_is_left_out_whole(tmp_path: Path) -> None:
    path = write(tmp_path, made.whole(POINT, made.request(POINT), made.failed(POINT, "b")))
    lines = path.read_bytes().count(b"\n")
    alone, glanced = records.load(path), records.glance(path)
    path.write_bytes(path.read_bytes() + path.read_bytes().replace(b'"done"', b'"failed"'))
    recording = records.load(path)
    assert recording.requests == alone.requests and recording.end == alone.end
    assert recording.problems == [f"line {lines + 1} begins another run: it and what follows are left out"]
    assert records.glance(path) == glanced


def test_unknown_fields_of_a_line_are_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path, [made.run(), POINT])
    line = {**json.loads(encode(made.request(POINT))), "mood": "good"}
    path.write_bytes(path.read_bytes() + json.dumps(line).encode() + b"\n")
    assert records.load(path).requests == [made.request(POINT)]


def test_one_name_for_two_things_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [made.run(), POINT, replace(POINT, digest="other")])
    with pytest.raises(FleetError, match="two digests") as caught:
        records.load(path)
    assert caught.value.where.endswith(":3")
    assert len(records.load(write(tmp_path, [made.run(id="b"), POINT, POINT])).points) == 1


def test_runs_are_found_by_id_part_of_it_and_path(tmp_path: Path) -> None:
    ids = ["20261129T100000Z-five-aaaa", "20261129T110000Z-smoke-bbbb", "20261130T090000Z-five-cccc"]
    paths = [write(tmp_path, [made.run(id=name)]) for name in ids]
    assert records.recordings(tmp_path) == paths[::-1]
    assert records.find(tmp_path, "last") == paths[2]
    assert records.find(tmp_path, "bbbb") == paths[1] == records.find(tmp_path, ids[1])
    assert records.find(tmp_path, str(paths[0].parent)) == paths[0]
    for word, said in (("five", "part of 2"), ("nothing", "no run")):
        with pytest.raises(FleetError, match=said) as caught:
            records.find(tmp_path, word)
        assert caught.value.exit == Exit.INPUT
    with pytest.raises(FleetError, match="no run"):
        records.find(tmp_path / "empty", "last")


def test_a_record_is_on_the_disk_when_it_is_written(tmp_path: Path) -> None:
    with records.Writer(tmp_path, made.run()) as writer:
        writer.write(POINT)
        writer.write(made.request(POINT))
        assert len(records.load(writer.path).requests) == 1
    with pytest.raises(FleetError, match="cannot be written"):
        records.Writer(tmp_path, made.run())


@contextmanager
def room(size: int) -> Iterator[None]:
    """No file gets larger than this, as on a disk that fills."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_the_disk_does_not_take_is_said_once_and_leaves_whole_lines(tmp_path: Path) -> None:
    with records.Writer(tmp_path, made.run()) as writer:
        writer.write(POINT)
        writer.write(made.request(POINT))
        with room(writer.path.stat().st_size + 200):
            with pytest.raises(FleetError, match="could not be written") as caught:
                writer.write(made.request(POINT))
            writer.write(made.request(POINT))
            writer.write(End("failed", "no room", ""))
    assert (caught.value.exit, caught.value.where) == (Exit.OUTPUT_LOST, str(writer.path))
    recording = records.load(writer.path)
    assert len(recording.requests) == 1 and recording.problems == []
    assert recording.end == End("failed", "no room", "")


def test_a_run_whose_first_line_finds_no_room_leaves_nothing(tmp_path: Path) -> None:
    with room(20), pytest.raises(FleetError, match="could not be written"):
        records.Writer(tmp_path, made.run())
    assert records.recordings(tmp_path) == []


def test_points_of_a_killed_run_have_no_end(tmp_path: Path) -> None:
    recording = records.load(write(tmp_path, [made.run(), POINT, made.request(POINT)]))
    assert recording.ends == {} and recording.end.outcome == "interrupted"
    assert isinstance(recording.point(POINT.id), Point) and len(recording.of(POINT.id)) == 1


def test_a_glance_counts_what_a_whole_reading_does(tmp_path: Path) -> None:
    warm, failed = made.request(POINT, warmup=True), made.failed(POINT, "b")
    path = write(tmp_path, made.whole(POINT, warm, made.request(POINT), failed))
    found = records.glance(path)
    assert (found.hosts, found.points, found.requests, found.failed) == (["ct200"], 1, 2, 1)
    assert (found.run, found.outcome) == (made.run(), "done")
    path.write_bytes(path.read_bytes()[:-20])
    assert records.glance(path).outcome == "interrupted"
