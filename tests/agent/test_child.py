"""Commands of a derivation: their own end counts, and nothing that they leave behind stays or is waited for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.agent.environment.checks import Checks
from fleetctl.agent.environment.child import Children
from fleetctl.agent.errors import AgentError
from tests.transport.sshd import wait_for

LEAVES = """
import os, subprocess, sys
for more in ({}, {"start_new_session": True}, {"start_new_session": True, "stdout": subprocess.DEVNULL}):
    print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], **more).pid, flush=True)
sys.exit(3)
"""


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield Children(fd, lambda event: None, {"PATH": os.environ["PATH"]}, 120)
    os.close(fd)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_a_command_leaves_behind_is_ended_and_not_waited_for(children: Children) -> None:
    begin = time.monotonic()
    status, lines = children.run("step", [sys.executable, "-c", LEAVES], lambda: "leave")
    assert time.monotonic() - begin < 60
    assert (status, len(lines)) == (3, 3)
    wait_for(lambda: not any(is_running(pid) for pid in map(int, lines)))


def test_all_that_a_command_says_is_kept_and_a_pipe_that_is_closed_early_is_no_end(
    children: Children,
) -> None:
    code = "import os, time\nfor n in range(399): print(n, flush=True)\nos.close(1); os.close(2); time.sleep(0.3)"
    status, lines = children.run("step", [sys.executable, "-c", code], lambda: "")
    assert (status, lines) == (0, [str(number) for number in range(399)])


def test_a_command_has_a_limit_of_its_own(children: Children) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(AgentError, match=r"step \(sleep\) has not ended within 0.3 s"):
        children.run("step", ["sleep", "600"], lambda: "sleep", 0.3)
    assert set(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize(
    ("check", "limit"), [(["python", "x"], 60.0), ({"argv": ["python"], "seconds": 7}, 7.0)]
)
def test_each_check_has_a_limit(tmp_path: Path, check: Any, limit: float) -> None:
    limits = {}

    class Told:
        def run(self, step: str, argv: list[str], text: Any, seconds: float) -> tuple[int, list[str]]:
            limits[text()] = seconds
            return 0, [f"prefix {tmp_path}"]

    Checks(Told(), str(tmp_path)).run([], [{"name": "tree", "checks": [check]}])  # type: ignore[arg-type]
    assert limits == {"load the modules": 600.0, "check of tree": limit}
