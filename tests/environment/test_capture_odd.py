"""Environments that are odd in every way that a file system allows: said, never waited for, never a crash."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.agent.capture import reader
from fleetctl.agent.capture.bom import capture
from fleetctl.agent.capture.reader import ALONE_COST, Answer, Job, read_all
from fleetctl.agent.capture.verify import _records
from fleetctl.environment.bom_text import screen
from tests.environment.venvs import bom_by_agent, bom_of, distribution, make_venv, problems, site
from tests.environment.wheels import make_wheel

NOBODY = 65534


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    return make_venv(folder / "venv", make_wheel(folder, "alpha", blob=2000))


@pytest.fixture
def venv(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "venv", symlinks=True)


def rewrite_record(venv: Path, *lines: bytes) -> None:
    record = site(venv) / "alpha-1.0.dist-info" / "RECORD"
    record.write_bytes(record.read_bytes() + b"\n".join(lines) + b"\n")


def test_names_that_cannot_be_printed(venv: Path) -> None:
    for name in (b"new\nline.py", b"caf\xe9.py", b"\x1b[31mred.py"):
        (site(venv) / os.fsdecode(name)).touch()
    bom = bom_of(venv)
    names = {path.rpartition("/")[2] for path in bom["unowned"]["files"]}
    assert names == {"new\\nline.py", "caf\\xe9.py", "\\x1b[31mred.py"}
    assert problems(bom).count("an odd name") == 3
    json.dumps(bom, ensure_ascii=False).encode()


def test_links_that_lead_nowhere_round_or_out(venv: Path, tmp_path: Path) -> None:
    packages = site(venv)
    (packages / "loop").symlink_to("loop")
    (packages / "round").symlink_to(packages)
    (packages / "gone.py").symlink_to("/no/such/file.py")
    (tmp_path / "elsewhere.py").write_text("x = 1\n")
    (packages / "out.py").symlink_to(tmp_path / "elsewhere.py")
    bom = bom_of(venv)
    said = problems(bom)
    assert "loop: a loop of links" in said
    assert "round: a link to a folder that it is in" in said
    assert "gone.py: a link to /no/such/file.py: no such file" in said
    assert f"out.py: a link out of the environment, to {tmp_path}/elsewhere.py" in said
    assert bom["problems_count"] == 4


def test_fifos_and_sockets_are_never_opened(venv: Path) -> None:
    packages = site(venv)
    os.mkfifo(packages / "pipe.py")
    (packages / "alpha" / "__init__.py").unlink()
    os.mkfifo(packages / "alpha" / "__init__.py")
    (packages / "alpha-1.0.dist-info" / "INSTALLER").unlink()
    os.mkfifo(packages / "alpha-1.0.dist-info" / "INSTALLER")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(packages)
        listening.bind("talk")
        os.chdir(here)
        begin = time.monotonic()
        bom = bom_of(venv)
    assert time.monotonic() - begin < 120
    assert "pipe.py: is a fifo" in problems(bom)
    assert "talk: is a socket" in problems(bom)
    assert distribution(bom, "alpha")["missing_count"] == 2


def test_a_file_that_changes_meanwhile_is_named(venv: Path) -> None:
    blob = site(venv) / "alpha" / "blob.bin"

    def emit(event: dict[str, Any]) -> None:
        if (event["step"], event["state"]) == ("capture-hash", "begin"):
            with blob.open("ab") as file:
                file.write(b"more")

    bom = capture({"path": str(venv)}, emit)
    assert "blob.bin: changed while the environment was captured" in problems(bom)


def test_a_file_that_goes_meanwhile_is_named(venv: Path) -> None:
    blob = site(venv) / "alpha" / "blob.bin"

    def emit(event: dict[str, Any]) -> None:
        if (event["step"], event["state"]) == ("capture-hash", "begin"):
            blob.unlink()

    assert "blob.bin: cannot be read: No such file" in problems(capture({"path": str(venv)}, emit))


def test_records_that_point_outside(venv: Path) -> None:
    rewrite_record(
        venv, b"/etc/passwd,,", b"../../../../../escape.py,,", b"../../../bin/alpha-cmd,,", b"a//b/../c,,"
    )
    alpha = distribution(bom_of(venv), "alpha")
    assert alpha["outside"] == ["/etc/passwd", "../../../../../escape.py"]
    assert alpha["record"]["state"] == "ok"
    assert [path.rpartition("/")[2] for path in alpha["missing"]] == ["c"]


def test_records_of_every_broken_kind(venv: Path) -> None:
    rewrite_record(venv, b"only a path")
    record = distribution(bom_of(venv), "alpha")["record"]
    assert record["state"] == "malformed" and "1 fields" in record["why"]
    path = site(venv) / "alpha-1.0.dist-info" / "RECORD"
    path.unlink()
    bom = bom_of(venv)
    assert distribution(bom, "alpha")["record"] == {
        "state": "missing",
        "sha256": None,
        "why": "there is no RECORD",
    }
    assert [file.rpartition("/")[2] for file in bom["unowned"]["files"]] == [
        "alpha-cmd",
        "__init__.py",
        "blob.bin",
    ]
    path.symlink_to("RECORD")
    assert distribution(bom_of(venv), "alpha")["record"]["state"] == "missing"


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that everybody may enter."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_unreadable_files_are_named_and_are_no_drift(readable: Path, template: Path) -> None:
    venv = shutil.copytree(template, readable / "venv", symlinks=True)
    (site(venv) / "alpha" / "blob.bin").chmod(0)
    hidden = site(venv) / "hidden"
    hidden.mkdir(mode=0o700)
    bom = bom_by_agent(readable, "/usr/bin/python3", venv, NOBODY if os.getuid() == 0 else None)
    assert "blob.bin: cannot be read: Permission denied" in problems(bom)
    assert "hidden: the folder cannot be read: Permission denied" in problems(bom)
    alpha = distribution(bom, "alpha")
    assert (alpha["changed_count"], alpha["missing_count"]) == (0, 0)


def test_a_record_that_this_user_may_not_read_is_not_missing(readable: Path, template: Path) -> None:
    venv = shutil.copytree(template, readable / "venv", symlinks=True)
    (site(venv) / "alpha-1.0.dist-info" / "RECORD").chmod(0)
    bom = bom_by_agent(readable, "/usr/bin/python3", venv, NOBODY if os.getuid() == 0 else None)
    record = distribution(bom, "alpha")["record"]
    assert (record["state"], record["why"]) == ("unreadable", "RECORD cannot be read: Permission denied")
    assert any(line.startswith("RECORD") and "unreadable: alpha" in line for line in screen(bom)[0])
    bom["distributions"] = [distribution(bom, "alpha")]
    said = [found["what"] for found in _records(bom)]
    assert said == ["the RECORD of alpha cannot be read, so its files are not checked"]


def test_children_hash_as_this_process_does(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number}").write_bytes(os.urandom(number * 50))
    (tmp_path / "big").write_bytes(os.urandom(2 * ALONE_COST))
    jobs = [Job(str(path), "sha256", path.stat().st_size) for path in sorted(tmp_path.iterdir())]
    jobs.append(Job(str(tmp_path / "absent"), "sha512", 0))
    alone = [reader.read_one(job.path, job.algorithm) for job in jobs]
    assert read_all(jobs, lambda done, total: None) == alone
    assert alone[-1] == Answer(None, -1, -1, "No such file or directory")


def test_a_killed_child_costs_its_batch_and_not_the_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "big").write_bytes(b"x" * 2 * ALONE_COST)
    monkeypatch.setattr(reader, "CHILD", "import os; os.kill(os.getpid(), 9)")
    (answer,) = read_all([Job(str(tmp_path / "big"), "sha256", 2 * ALONE_COST)], lambda done, total: None)
    assert answer.digest is None and "killed" in answer.error
