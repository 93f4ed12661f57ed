"""A real supervisord, as the agent finds and asks it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.agent.errors import AgentError
from fleetctl.agent.units.supervisord import Supervisord
from tests.transport.sshd import wait_for

CONFIG = """
[unix_http_server]
file=%(here)s/socket
[supervisord]
nodaemon=true
logfile=%(here)s/log
pidfile=%(here)s/pid
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[program:deaf]
command=sh -c 'trap "" TERM; touch %(here)s/deaf; while :; do sleep 0.1; done'
startsecs=0
stopwaitsecs=60
killasgroup=true
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisord in ``tmp_path``, whose only program does not hear SIGTERM."""
    (tmp_path / "supervisord.conf").write_text(CONFIG)
    program = Path(sys.executable).with_name("supervisord")
    process = subprocess.Popen(
        [program, "-c", "supervisord.conf"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for((tmp_path / "deaf").exists, 60)
        yield process
    finally:
        for pid in _children(process.pid):
            os.killpg(pid, signal.SIGKILL)
        process.terminate()
        process.wait(60)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_one_that_shuts_down_says_so(running: subprocess.Popen[bytes], tmp_path: Path) -> None:
    server = Supervisord(tmp_path / "supervisord.conf")
    assert server.process("deaf")["statename"] == "RUNNING"  # type: ignore[index]
    running.terminate()

    def refuses() -> bool:
        try:
            server.process("deaf")
        except AgentError as error:
            assert error.what == "supervisord is shutting down"
            assert error.where == str(tmp_path / "supervisord.conf")
            return True
        return False

    wait_for(refuses, 60)
