"""``fleetctl report`` as typed: files, numbers as JSON, exit codes, plain lines where piped."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.bench import synthetic
from tests.bench.synthetic import FOUR


def fleetctl(fleet: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The verb, run in the fleet's folder."""
    command = [sys.executable, "-m", "fleetctl", "--fleet", str(fleet), "report", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=fleet)


def test_a_run_becomes_a_page_beside_its_records(tmp_path: Path) -> None:
    (tmp_path / "inventories").mkdir()
    records = synthetic.write(tmp_path)
    done = fleetctl(tmp_path, "five")
    assert done.returncode == 0, done.stderr
    page = records.parent / "report.html"
    assert done.stdout.splitlines()[-1] == str(page)
    assert page.read_text().startswith("<!doctype html>")
    assert "ddtree ◂" in done.stdout and "\x1b" not in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("dflash"))
    assert any(bar in row for bar in "▁▂▃▄▅▆▇█")


def test_two_runs_become_one_page_with_numbers_and_latex(tmp_path: Path) -> None:
    (tmp_path / "inventories").mkdir()
    synthetic.write(tmp_path, identity="20261129T100000Z-a-aaaa")
    other = [replace(spec, digest=f"new-{spec.service}", speed=spec.speed * 1.2) for spec in FOUR]
    synthetic.write(tmp_path, other, identity="20261129T110000Z-b-bbbb")
    done = fleetctl(tmp_path, "aaaa", "last", "-o", "both.html", "--latex", "paper", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["files"] == ["both.html", "paper/report.tex", "paper/report.pdf"], said["latex"]
    assert all((tmp_path / file).is_file() for file in said["files"])
    assert len(said["points"]) == 8 and [run["outcome"] for run in said["runs"]] == ["done", "done"]
    tree = next(point for point in said["points"] if point["name"] == "ddtree (20261129T110000)")
    assert tree["differs"] is True and tree["ratio"]["low"] < tree["ratio"]["mean"] < tree["ratio"]["high"]


def test_wrong_words_end_in_a_message(tmp_path: Path) -> None:
    (tmp_path / "inventories").mkdir()
    synthetic.write(tmp_path, identity="one")
    synthetic.write(tmp_path, [replace(spec, model="qwen3") for spec in FOUR], identity="two")
    broken = tmp_path / "broken.jsonl"
    broken.write_text("hello\n")
    for words, said in (
        (["none"], "no run 'none'"),
        (["one", "two"], "2 different models"),
        (["broken.jsonl"], "no records"),
        (["one", "-o", "no/such/folder/x.html"], "cannot be written"),
        (["one", "--latex", "broken.jsonl"], "cannot be written"),
    ):
        done = fleetctl(tmp_path, *words)
        assert done.returncode == 2 and said in done.stderr, (words, done.stderr)
        assert "Traceback" not in done.stderr and "fix: " in done.stderr
