"""A patched environment proves itself in its own Python: byte code, imports, checks; nothing is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetctl.agent.environment.proving import prove
from fleetctl.agent.errors import AgentError

NAMES = ["engine/info.py", "engine/note.txt"]


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    venv = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (folder,) = venv.glob("lib/python3*/site-packages")
    (folder / "engine").mkdir()
    (folder / "engine" / "info.py").write_text("A = 1\n")
    (folder / "engine" / "note.txt").write_text("note\n")
    compiled(folder)
    return folder


def compiled(packages: Path, *options: str) -> None:
    argv = [
        sys.executable,
        "-m",
        "compileall",
        "-q",
        "-f",
        *options,
        "-s",
        str(packages),
        "-p",
        "",
        str(packages),
    ]
    subprocess.run(argv, check=True)


def ask(packages: Path, imports: tuple[str, ...] = (), *checks: dict[str, Any]) -> dict[str, Any]:
    args = {
        "path": str(packages.parents[2]),
        "sources": NAMES,
        "imports": list(imports),
        "checks": list(checks),
    }
    return prove(args, lambda event: None)


def python(what: str, code: str) -> dict[str, Any]:
    return {"what": what, "argv": ["python", "-I", "-B", "-c", code]}


def test_proven(packages: Path) -> None:
    before = sorted(path.name for path in packages.rglob("*"))
    where = f"import sys, engine.info; assert sys.prefix == {str(packages.parents[2])!r}"
    answer = ask(packages, ("engine.info",), python("its own Python", where))
    assert (answer["stale"], answer["failed"], answer["ran"]) == ([], [], 2)
    assert sorted(path.name for path in packages.rglob("*")) == before


def test_what_fails_says_its_last_lines(packages: Path) -> None:
    check = python("A is 2", "import engine.info as i; assert i.A == 2, f'A is {i.A}'")
    answer = ask(packages, ("engine.none", "engine.info"), check)
    assert [entry["what"] for entry in answer["failed"]] == ["import engine.none", "A is 2"]
    assert answer["failed"][0]["lines"][-1] == "ModuleNotFoundError: No module named 'engine.none'"
    assert answer["failed"][1]["lines"][-1] == "AssertionError: A is 1"
    assert answer["ran"] == 3


def stale(packages: Path) -> list[str]:
    return [entry["why"] for entry in ask(packages)["stale"]]


def test_byte_code_that_is_stale(packages: Path) -> None:
    source = packages / "engine" / "info.py"
    state = source.stat()
    assert stale(packages) == []
    source.write_text("A = 2\n")
    os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert stale(packages) == ["byte code of another source that looks as old and as long"]
    source.write_text("A = 33\n")
    assert stale(packages) == ["byte code older than the source"]
    compiled(packages, "--invalidation-mode", "unchecked-hash")
    assert stale(packages) == []
    source.write_text("A = 44\n")
    assert stale(packages) == ["byte code of another source (by its hash)"]
    (kept,) = (packages / "engine" / "__pycache__").iterdir()
    kept.write_bytes(b"odd!" + kept.read_bytes()[4:])
    assert stale(packages) == ["byte code of another Python"]
    kept.unlink()
    assert stale(packages) == ["no byte code"]


def test_byte_code_that_is_damaged_is_stale(packages: Path) -> None:
    (kept,) = (packages / "engine" / "__pycache__").iterdir()
    whole = kept.read_bytes()
    for size in (0, 10, 20, len(whole) - 3):
        kept.write_bytes(whole[:size])
        assert len(stale(packages)) == 1


def test_a_source_that_is_not_there_or_no_python(packages: Path) -> None:
    source = packages / "engine" / "info.py"
    source.write_text("A = (\n")
    assert len(stale(packages)) == 1
    source.unlink()
    assert stale(packages) == ["not there"]


def test_a_skeleton_is_refused(packages: Path) -> None:
    venv = packages.parents[2]
    for path in venv.glob("bin/python*"):
        path.unlink()
    (venv / "bin" / "python").symlink_to("/nowhere/python3")
    with pytest.raises(AgentError, match="no Python that is there"):
        ask(packages)


def test_only_the_environments_python_is_run(packages: Path) -> None:
    with pytest.raises(AgentError, match="not the environment's Python: sh"):
        ask(packages, (), {"what": "shell", "argv": ["sh", "-c", "true"]})
