"""``bench run`` before it touches a host: what is asked for is checked, and the plan tells what would happen."""

from __future__ import annotations

from json import loads
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleetctl.cli.app import whole
from fleetctl.errors import Exit, FleetError
from tests.bench import synthetic

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def lab_inventory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A fleet folder with the lab's inventory and no run yet."""
    for name in ("inventories", "playbooks", "envs", "templates"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.setenv("FLEETCTL_FLEET", str(tmp_path))
    monkeypatch.setenv("FLEETCTL_INVENTORY", "inventories/lab")


def plan(*words: str) -> dict[str, object]:
    done = CliRunner().invoke(whole(), ["bench", *words, "--plan", "--json"])
    assert done.exit_code == Exit.PLAN_CHANGES, done.output
    found: dict[str, object] = loads(done.stdout)["plan"]
    return found


def test_a_host_alone_is_run_with_all_services_of_its_default_slot() -> None:
    found = plan("ct200")
    assert found == plan("run", "ct200")
    names = [point["service"] for point in found["points"]]  # type: ignore[attr-defined]
    assert names == ["autoregressive", "dflash", "shadow", "ddtree"]
    assert (found["suite"], found["swaps"], found["requests"]) == ("five-prompts", 12, 4 * 3 * 6)


def test_options_stand_over_the_suites(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("one\ntwo\nthree\n")
    found = plan(
        "ct200", "ddtree", "--prompts", str(tmp_path / "mine.txt"), "--limit", "2", "--repeats", "4",
        "--concurrency", "1", "--concurrency", "8", "--order", "blocks",
    )  # fmt: skip
    points = found["points"]
    assert [(point["concurrency"], point["requests"]) for point in points] == [  # type: ignore[attr-defined]
        (1, 4 * 2 + 1),
        (8, 4 * 16 + 1),
    ]
    assert found["swaps"] == 1


def test_every_suite_can_be_planned_in_words() -> None:
    for suite in sorted((ROOT / "playbooks/bench").glob("*.yaml")):
        done = CliRunner().invoke(whole(), ["bench", "ct200", "--suite", suite.stem, "--plan"])
        assert done.exit_code == Exit.PLAN_CHANGES, done.output
        assert "swaps" in done.stdout and "about" in done.stdout


def test_a_plan_of_own_prompts_names_their_file(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("one\ntwo\n")
    words = ["ct200", "ddtree", "--prompts", str(tmp_path / "mine.txt"), "--plan"]
    said = CliRunner().invoke(whole(), ["bench", *words]).stdout
    assert said.startswith(f"{tmp_path / 'mine.txt'}, by the suite five-prompts: 2 prompts, 3 rounds (")


def test_one_is_one() -> None:
    words = ["ct200", "ddtree", "--repeats", "1", "--limit", "1", "--plan"]
    said = CliRunner().invoke(whole(), ["bench", *words]).stdout
    assert "1 prompt, 1 round (" in said and "1 swap, 2 requests: about" in said


@pytest.mark.parametrize("json", [False, True])
def test_what_will_be_done_is_said_before_it_is(json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    from fleetctl.cli.bench import prepare, watched
    from fleetctl.cli.output import Output
    from fleetctl.inventory.loader import load_fleet

    job = prepare(load_fleet(), "ct200", ["ddtree", "dflash"], "five-prompts", None, None, {"time_limit": 60})
    said = watched(Output(json=json), job, lambda *_: capsys.readouterr())
    assert said.out == ""
    if json:
        assert said.err == ""
        return
    first, second = said.err.splitlines()
    assert first.startswith("ct200: 2 points, 6 swaps, 36 requests: about ")
    assert first.endswith(", cut off after 1 min 0 s")
    assert "^C ends it cleanly" in second and "brings back what stood there" in second


@pytest.mark.parametrize("json", [False, True])
def test_what_was_measured_becomes_latex_too(
    json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fleetctl.bench.report import tex
    from fleetctl.bench.runner import Result
    from fleetctl.cli.bench import measure, prepare
    from fleetctl.cli.output import Output
    from fleetctl.inventory.loader import load_fleet

    monkeypatch.setattr(tex, "compile_pdf", lambda source: (None, "no TeX is here"))
    records = synthetic.write(tmp_path)
    job = prepare(load_fleet(), "ct200", ["ddtree"], "five-prompts", None, None, {})
    paper = tmp_path / "new/paper"
    assert measure(Output(json=json), job, lambda *_: Result(records, "done", "", {}), paper) == 0
    said = capsys.readouterr()
    page, source = records.parent / "report.html", paper / "report.tex"
    assert page.is_file() and "\\documentclass" in source.read_text()
    if json:
        outcome = loads(said.out.splitlines()[-1])["outcome"]
        assert outcome["report"] == str(page) and outcome["latex"] == "no TeX is here"
        assert outcome["files"] == [str(page), str(source)]
        return
    assert said.out.splitlines()[-2:] == [f"report: {page}", f"report: {source}"]
    assert "no TeX is here" in said.err


@pytest.mark.parametrize("json", [False, True])
def test_a_page_that_cannot_be_written_is_said_and_is_no_success(
    json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fleetctl.bench.runner import Result
    from fleetctl.cli import output
    from fleetctl.cli.bench import measure, prepare
    from fleetctl.inventory.loader import load_fleet

    monkeypatch.setattr(output._Steady, "has_lost", False)
    records = synthetic.write(tmp_path)
    (records.parent / "report.html").mkdir()
    job = prepare(load_fleet(), "ct200", ["ddtree"], "five-prompts", None, None, {})
    assert measure(output.Output(json=json), job, lambda *_: Result(records, "done", "", {})) == 0
    said = capsys.readouterr()
    assert output.is_lost(), "main makes that exit 1"
    assert "error: the report cannot be written: Is a directory" in said.err
    assert f"fleetctl report {records.parent.name} -o FILE" in said.err and "report: " not in said.out
    if json:
        assert loads(said.out.splitlines()[-1])["outcome"]["report"] is None


def test_compare_tells_which_run_is_the_baseline() -> None:
    said = CliRunner().invoke(whole(), ["bench", "compare", "--help"]).stdout
    assert "BASELINE <str>" in said and "The run to compare with" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "no host nowhere"),
        (("ct200", "nope"), "no service nope"),
        (("ct200", "ddtree", "dflash", "ddtree"), "ddtree named twice"),
        (("ct200", "--suite", "nope"), "no suite nope"),
        (("ct200", "--order", "sideways"), "--order: order is 'sideways'"),
        (("ct200", "--prompts", "/nowhere.txt"), "No such file"),
        (
            ("ct129", "--suite", "sweep-ddtree"),
            "no service ddtree on ct129, which the suite sweep-ddtree names",
        ),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(whole(), ["bench", *words])
    assert isinstance(done.exception, FleetError)
    assert said in str(done.exception) and done.exception.exit == Exit.INPUT


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "ct200", "--repeats", "1000000000"),
        ("bench", "ct200", "--concurrency", "100000"),
        ("bench", "ct200", "--max-tokens", "1000001"),
        ("sweep", "ct200", "--repeats", "1001"),
        ("tune", "ct200", "--concurrency", "100000"),
    ],
)
def test_what_nobody_waits_for_is_refused_before_it_is_planned(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(whole(), [*words, "--plan"])
    assert done.exit_code == Exit.INPUT and "less than or equal to" in done.output
