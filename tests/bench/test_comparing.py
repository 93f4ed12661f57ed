"""Two runs: what got slower is said, different models never are; records as tables."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

from fleetctl.bench import comparing, export
from fleetctl.bench.exposition import added, fetch, in_flight, mean_accepted, parse
from fleetctl.bench.figures import speed
from fleetctl.bench.naming import Name
from fleetctl.bench.pointsummary import Visit, summarize_point
from fleetctl.bench.record import Accepted, Point, PointEnd, Record
from fleetctl.bench.records import Recording, Writer, load
from fleetctl.bench.report.terminal import document
from fleetctl.bench.summary import summarize
from fleetctl.cli.app import whole
from fleetctl.errors import Exit, FleetError
from tests.bench import made

PROMPTS = "abcde"


def recorded(
    folder: Path,
    name: str,
    speed: float,
    point: Point | None = None,
    run: dict[str, Any] | None = None,
    **fields: Any,
) -> Recording:
    """A run whose answers come at ``speed``, a little different for each prompt and repeat."""
    point = point or made.point()
    requests = [
        made.request(point, prompt, repeat, speed * (1 + 0.01 * ((ord(prompt) + repeat) % 3)), **fields)
        for prompt in PROMPTS
        for repeat in (1, 2, 3)
    ]
    _, *rest = made.whole(point, *requests, made.failed(point, "a", 4))
    return written(folder, name, *rest, **(run or {}))


def written(folder: Path, name: str, *records: Record, **run: Any) -> Recording:
    """A run of just these records."""
    with Writer(folder, made.run(id=name, **run)) as writer:
        for record in records:
            writer.write(record)
    return load(writer.path)


def test_slower_same_and_faster(tmp_path: Path) -> None:
    before = recorded(tmp_path, "one", 20.0)
    verdicts = {}
    for name, rate in (("half", 10.0), ("little", 19.5), ("same", 20.0), ("twice", 40.0)):
        (change,) = comparing.compare(before, recorded(tmp_path, name, rate), 0.05)
        verdicts[name] = change.verdict
        assert change.ratio and change.ratio.mean == pytest.approx(rate / 20, rel=0.01)
        assert change.failed == (1, 1) and not change.broke and change.worse == (name == "half")
    assert verdicts == {"half": "slower", "little": "same", "same": "same", "twice": "faster"}


def test_one_round_is_never_sure(tmp_path: Path) -> None:
    before = recorded(tmp_path, "one", 20.0)
    for name, rate, said in (("half", 10.0, "unsure"), ("same", 20.0, "same"), ("twice", 40.0, "unsure")):
        (change,) = comparing.compare(before, recorded(tmp_path, name, rate, round=1), 0.05)
        assert change.verdict == said


def test_what_only_noise_makes_slower_is_the_same(tmp_path: Path) -> None:
    point = made.point()
    rates = {"a": 5.0, "b": 30.0, "c": 18.0}
    for name, factors in (("one", (1, 1, 1)), ("two", (2.0, 0.4, 0.9))):
        with Writer(tmp_path, made.run(id=name)) as writer:
            writer.write(point)
            for (prompt, rate), factor in zip(rates.items(), factors, strict=True):
                writer.write(made.request(point, prompt, 1, rate * factor))
    one, two = (load(tmp_path / ".fleetctl/bench" / name) for name in ("one", "two"))
    (change,) = comparing.compare(one, two, 0.05)
    assert change.ratio and change.ratio.mean < 0.95 and change.verdict == "same"


def test_answers_that_changed_are_named(tmp_path: Path) -> None:
    before = recorded(tmp_path, "one", 20.0, text="the same words")
    (change,) = comparing.compare(before, recorded(tmp_path, "two", 20.0, text="the sane words"), 0.05)
    assert change.first == ("a", 6)


def test_an_answer_that_some_repeat_of_the_baseline_gave_has_not_changed(tmp_path: Path) -> None:
    def run(name: str, *texts: str) -> Recording:
        requests = [made.request(made.point(), "a", at, text=text) for at, text in enumerate(texts, 1)]
        return written(tmp_path, name, made.point(), *requests)

    before = run("one", "one two", "one too")
    said = {
        name: comparing.compare(before, run(name, *texts), 0.05)[0].first
        for name, texts in (("again", ("one two", "one too")), ("turned", ("one too", "one too")),
                            ("other", ("one too", "one tow")))
    }  # fmt: skip
    assert said == {"again": None, "turned": None, "other": ("a", 6)}


LOST = made.point("dflash", mode="linear")


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ([], "it was not measured"),
        ([replace(LOST, digest=""), PointEnd(LOST.id, "failed", "did not come up")], "did not come up"),
        ([LOST, made.failed(LOST), PointEnd(LOST.id, "failed", "all 1 requests")], "all 1 requests"),
        ([LOST, made.failed(LOST)], "no answer to the same prompts"),
        ([LOST, made.request(LOST), PointEnd(LOST.id, "failed", "it died")], "it died"),
    ],
)
def test_a_point_of_the_baseline_that_is_gone_is_lost(tmp_path: Path, now: list[Record], why: str) -> None:
    here = made.point()
    before = written(tmp_path, "one", here, made.request(here), LOST, made.request(LOST))
    kept, lost = comparing.compare(before, written(tmp_path, "two", here, made.request(here), *now), 0.05)
    assert (kept.verdict, kept.worse) == ("same", False)
    assert (lost.point, lost.verdict, lost.worse) == (LOST.id, "lost", True) and why in lost.why


def test_a_point_that_only_the_new_run_has_is_named_and_no_failure(tmp_path: Path) -> None:
    here = made.point()
    more = [LOST, made.request(LOST)]
    before = written(tmp_path, "one", here, made.request(here), LOST, made.failed(LOST))
    after = written(tmp_path, "two", here, made.request(here), *more)
    _, new = comparing.compare(before, after, 0.05)
    assert (new.point, new.verdict, new.worse) == (LOST.id, "new", False)
    assert new.why == "the baseline has no answer of it"
    _, neither = comparing.compare(before, before, 0.05)
    assert not neither.worse and neither.why == "neither run has an answer of it"


def test_a_request_that_fails_now_and_did_not_before_is_worse(tmp_path: Path) -> None:
    here = made.point()
    good = [made.request(here, prompt) for prompt in "abc"]
    before = written(tmp_path, "one", here, *good, made.failed(here, "d"))
    for name, failed, broke in (("same", "d", []), ("other", "e", ["e #1"]), ("more", "de", ["e #1"])):
        after = written(tmp_path, name, here, *good, *(made.failed(here, one) for one in failed))
        (change,) = comparing.compare(before, after, 0.05)
        assert change.failed == (1, len(failed)) and change.verdict == "same"
        assert (change.broke, change.worse) == (broke, bool(broke))


@pytest.mark.parametrize(
    ("point", "run", "said"),
    [
        ({"model": {"id": "other", "digest": None}}, {}, "different models: smol and other"),
        ({"model": {"id": "smol", "digest": "beef"}}, {}, "different models: 426610c8a5b8 and beef"),
        ({}, {"prompts_digest": "2" * 16}, "different prompts"),
        ({}, {"suite": {"suite": "made", "max_tokens": 99, "turns": 1}}, "different max_tokens: 16 and 99"),
        ({"service": "dflash"}, {}, "no point was measured in both"),
    ],
)
def test_what_says_nothing_about_each_other_is_refused(
    tmp_path: Path, point: dict[str, Any], run: dict[str, Any], said: str
) -> None:
    before = recorded(tmp_path, "one", 20.0)
    after = recorded(tmp_path, "two", 20.0, made.point(**point), run)
    with pytest.raises(FleetError) as caught:
        comparing.compare(before, after, 0.05)
    assert said in caught.value.what and caught.value.exit == Exit.INPUT


def test_compare_fails_for_what_is_lost_or_broke_and_names_it(tmp_path: Path) -> None:
    one, other = made.point(), made.point("other")
    alone, else_ = (written(tmp_path, of.service, of, made.request(of)) for of in (one, other))
    both = [one, made.failed(one), other, made.failed(other, "b"), made.request(other)]
    after = written(tmp_path, "both", *both)

    def compared(before: Recording, after: Recording) -> tuple[int, str]:
        done = CliRunner().invoke(whole(), ["bench", "compare", str(before.path), str(after.path)])
        return done.exit_code, done.stdout

    code, said = compared(alone, after)
    assert code == Exit.PREFLIGHT and f"lost: {one.id}: it has no answer" in said
    assert f"new: {other.id}: " in said
    code, said = compared(else_, after)
    assert code == Exit.PREFLIGHT
    assert f"{other.id}: 1 request failed that did not in the baseline: b #1" in said
    assert compared(after, else_)[0] == 0


def test_compare_says_that_the_hosts_differ(tmp_path: Path) -> None:
    old = recorded(tmp_path, "old", 20.0)
    new = recorded(tmp_path, "new", 20.0, made.point(id="ct129/native/ddtree@c1", host="ct129"))

    def compared(*words: str) -> str:
        return CliRunner().invoke(whole(), ["bench", "compare", *words]).stdout

    said = "the hosts differ: ct200 in the baseline, ct129 now"
    assert said in compared(str(old.path), str(new.path)).splitlines()
    assert "differ" not in compared(str(old.path), str(old.path))
    told = json.loads(compared(str(old.path), str(new.path), "--json"))
    assert told["hosts"] == {"before": ["ct200"], "after": ["ct129"]} and told["hosts_differ"]


def test_exit_codes_of_compare_and_what_the_verbs_print(tmp_path: Path) -> None:
    (tmp_path / "inventories").mkdir()
    recorded(tmp_path, "20261129T100000Z-made-aaaa", 20.0)
    recorded(tmp_path, "20261129T110000Z-made-bbbb", 12.0)

    def fleetctl(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fleetctl", "--fleet", str(tmp_path), "bench", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=280)

    slower = fleetctl("compare", "aaaa", "last", "--json")
    assert slower.returncode == Exit.PREFLIGHT and json.loads(slower.stdout)["slower"]
    assert fleetctl("compare", "aaaa", "bbbb", "--tolerance", "50%").returncode == 0
    assert fleetctl("compare", "bbbb", "aaaa").returncode == 0
    wrong = fleetctl("compare", "aaaa", "bbbb", "--tolerance", "many")
    assert wrong.returncode == Exit.INPUT and "no share" in wrong.stderr and "Traceback" not in wrong.stderr
    listed = json.loads(fleetctl("list", "--json").stdout)["runs"]
    assert [(one["points"], one["requests"], one["failed"]) for one in listed] == [(1, 16, 1), (1, 16, 1)]
    assert re.search(r"(?m)^ddtree.* 1[12]\.\d ", fleetctl("show").stdout)
    lines = list(csv.DictReader(io.StringIO(fleetctl("export", "aaaa").stdout)))
    assert len(lines) == 16 and {line["prompt"] for line in lines} == set(PROMPTS)
    assert fleetctl("export", "aaaa", "--format", "xls").returncode == Exit.INPUT
    assert fleetctl("show", "nothing").returncode == Exit.INPUT


def test_an_export_that_finds_no_room_is_said(tmp_path: Path) -> None:
    (tmp_path / "inventories").mkdir()
    recorded(tmp_path, "20261129T100000Z-made-aaaa", 20.0)
    verb = f"{sys.executable} -m fleetctl --fleet {tmp_path} bench export last"
    full = subprocess.run(["bash", "-c", f"{verb} > /dev/full"], capture_output=True, text=True, timeout=280)
    assert (full.returncode, full.stderr) == (1, "error: the output is lost: No space left on device\n")
    left = f"{verb} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", left], capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("run,point,")


def test_both_tables_say_the_same(tmp_path: Path) -> None:
    point = made.point()
    accepted = {"accepted": Accepted(5, 10), "text": 'with "quotes", commas\nand lines'}
    recording = recorded(tmp_path, "one", 20.0, point, **accepted)
    export.write_csv(recording, tmp_path / "x.csv")
    export.write_parquet(recording, tmp_path / "x.parquet")
    lines = list(csv.DictReader((tmp_path / "x.csv").open(newline="")))
    rows = parquet.read_table(tmp_path / "x.parquet").to_pylist()  # type: ignore[no-untyped-call]
    assert len(lines) == len(rows) == 16 and list(rows[0]) == list(export.COLUMNS) == list(lines[0])
    for line, row in zip(lines, rows, strict=True):
        assert line["text"] == row["text"] and float(line["end_s"]) == row["end_s"]
    assert rows[0]["accepted_length"] == 3.0 and rows[-1]["error"] == "http" and rows[-1]["ttft_s"] is None
    assert json.loads(rows[0]["events"])[0] == [pytest.approx(1 / 20, rel=0.03), 1]
    with pytest.raises(FleetError, match="cannot be written"):
        export.write_csv(recording, tmp_path / "nowhere" / "x.csv")


def test_the_speed_so_far_leaves_out_what_does_not_count() -> None:
    point = made.point()
    answers = [made.request(point, "a", 1, 10.0), made.request(point, "b", 1, 40.0)]
    others = [made.failed(point), made.request(point, "a", 2, 99.0, warmup=True)]
    assert speed(answers + others, 1) == pytest.approx(32 / 2.0)
    assert speed(answers, 2) == pytest.approx(32 / 1.6)
    assert speed(others, 1) is None


@pytest.mark.parametrize("engine", ["sglang", "standalone"])
def test_json_and_tables_say_what_the_report_says(tmp_path: Path, engine: str) -> None:
    """SGLang's accepted length is of a whole point; the other server's is of each answer."""
    point = made.point(engine=engine)
    passes = {"a": Accepted(4, 8), "b": Accepted(2, 1)} if engine == "standalone" else {}
    answers = [
        made.request(point, prompt, at, rate, accepted=passes.get(prompt))
        for prompt, at, rate in (("a", 1, 10.0), ("b", 1, 40.0), ("b", 2, 60.0))
    ]
    gauge = {"sglang:mean_spec_accept_length": 2.25} if engine == "sglang" else {}
    end = PointEnd(point.id, "done", metrics={"after": gauge}, swap_s=3.5)
    rest = [made.request(point, "a", 9, 99.0, warmup=True), made.failed(point, "b", 3)]
    recording = written(tmp_path, "one", point, *answers, *rest, end)
    done = CliRunner().invoke(whole(), ["bench", "show", str(recording.path), "--json"])
    (shown,) = json.loads(done.stdout)["points"]
    (said,) = document(summarize([recording]))["points"]
    assert shown["tokens_per_second"] == said["speed"]["mean"] == pytest.approx((10 + 50) / 2)
    length = 2.25 if engine == "sglang" else (3 + 1.5) / 2
    assert shown["accepted_length"] == said["accepted"]["mean"] == pytest.approx(length)
    assert shown["first_token_s"] == said["first_s"]["p50"] == pytest.approx(1 / 40)
    assert shown["throughput"] == said["throughput"]["mean"]
    assert (shown["requests"], shown["failed"], shown["swap_s"]) == (4, 1, 3.5)
    rows = list(export.rows(recording))
    assert {row["point_accepted_length"] for row in rows} == {shown["accepted_length"]}
    assert rows[0]["accepted_length"] == (None if engine == "sglang" else 3.0)


def test_metrics() -> None:
    text = """# HELP x y
x_total{mode="a b",name="q\\"}"} 3
x_total{mode="c"} 4 1700000000
running 2.0
h_bucket{le="1"} 9
h_sum 1.5
bad NaN
worse
"""
    found = parse(text)
    assert found == {"x_total": 7.0, "running": 2.0, "h_sum": 1.5}
    assert in_flight(found, {"running": "running", "queued": "queued"}) == 2.0
    assert in_flight(found, {"running": "other"}) is None is in_flight({}, {})
    assert added({"x_total": 1, "running": 9}, found) == {"x_total": 8.0, "running": 2.0, "h_sum": 1.5}


class SglangSays(BaseHTTPRequestHandler):
    """Two pages of an SGLang server that drafts."""

    def log_message(self, *words: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        pages = {
            "/metrics": 'sglang:num_running_reqs{m="x"} 0\nsglang:spec_accept_length{m="x"} 2.5\n',
            "/server_info": '{"tp_size": 1, "internal_states": [{"avg_spec_accept_length": 3.75, "x": [1]}]}',
        }
        body = pages[self.path].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_the_accepted_length_of_sglang_is_the_mean_since_its_start() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SglangSays) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        after = fetch(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    one = made.point(engine="sglang")
    requests = [made.request(one, "a", 1, 20.0, accepted=None)]
    visits = [Visit("run", ("a", 1), request) for request in requests]
    for metrics, wanted in (({}, None), ({"sglang:spec_accept_length": 2.5}, 2.5), (after, 3.75)):
        ends = [PointEnd(one.id, "done", metrics={"after": metrics})]
        found = summarize_point(one, Name("x", "x", "x"), visits, ends).accepted
        assert (found and found.mean) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "[]", "no", '{"internal_states": [{}]}', '{"internal_states": [{"avg_spec_accept_length": "x"}]}'],
)
def test_what_says_no_accepted_length_is_passed_over(text: str) -> None:
    assert mean_accepted(text) is None
