"""A folder that is made under another name, and a process that dies while it makes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleetctl.agent.environment.environments import status
from fleetctl.agent.environment.staging import building, free_bytes, leftovers, staged, was_killed

MAKES = """
import signal, sys, time
from pathlib import Path
from fleetctl.agent.environment.staging import staged
signal.signal(signal.SIGINT, signal.default_int_handler)
with staged(Path(sys.argv[1]), 5, print) as staging:
    (staging.path / "deep").mkdir()
    (staging.path / "deep" / "file").write_text("x")
    print("made", flush=True)
    time.sleep(6000)
"""


def wait_until(holds: object) -> None:
    end = time.monotonic() + 120
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_what_a_process_was_making_goes_when_it_dies(tmp_path: Path, number: int) -> None:
    final = tmp_path / "made"
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKES, str(final)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert maker.stdout is not None and maker.stdout.readline() == b"made\n"
    assert leftovers(tmp_path) == [], "it is held"
    os.kill(maker.pid, number)
    maker.wait()
    maker.stdout.close()
    wait_until(lambda: not building(final).exists())
    with staged(final, 5, print) as staging:
        assert staging is not None
        staging.commit()
    assert final.is_dir()
    if number == signal.SIGKILL:
        assert (was_killed(tmp_path), was_killed(tmp_path)) == (True, False)


def test_what_was_committed_stays_and_no_keeper_is_left(tmp_path: Path) -> None:
    with staged(tmp_path / "made", 5, print) as staging:
        assert staging is not None
        staging.commit()
    assert (tmp_path / "made").is_dir() and not was_killed(tmp_path)
    keepers = [path for path in Path("/proc").glob("[0-9]*/cmdline") if said(path, str(tmp_path))]
    assert keepers == []


def said(path: Path, text: str) -> bool:
    try:
        return text in path.read_text(errors="replace")
    except OSError:
        return False


def test_the_free_space_is_that_of_the_environments_own_mount(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    assert other.stat().st_dev != tmp_path.stat().st_dev
    (tmp_path / "envs").symlink_to(other)
    found = status({"root": str(tmp_path), "name": "a", "digest": "0" * 12, "wheels": []}, print)
    assert found["device"] == other.stat().st_dev
    assert abs(found["free_bytes"] - free_bytes(other)) < 1 << 28
