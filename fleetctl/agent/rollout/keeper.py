"""A rollout's process where no systemd keeps one: started apart, and recovered when it ends without a result.

The keeper holds the lock ``<unit>.running`` as long as the rollout lives, so that anyone can tell.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, List, Optional

from fleetctl.agent import paths

FOLDER = Path(paths.LOCKS)
BEGIN_S = 60.0
BUSY = 1
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


def start(unit: str, agent: List[str], folder: Path) -> bool:
    """Start the rollout in ``folder`` apart from this process, and return once anyone can tell that it runs.

    False where one of that unit runs already.
    """
    if pid_of(unit):
        return False
    FOLDER.mkdir(mode=0o755, exist_ok=True)
    with (folder / "keeper.log").open("ab") as log:
        keeper = subprocess.Popen(
            [*agent, "keep", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env={**os.environ, "FLEETCTL_UNIT": unit},
        )
    end = time.monotonic() + BEGIN_S
    while keeper.poll() is None and _said(unit).get("keeper") != keeper.pid and time.monotonic() < end:
        time.sleep(0.02)
    return keeper.returncode != BUSY


def main(folder: str) -> int:
    """Run the rollout, then what settles it, as a unit's ``ExecStopPost`` would; the rollout's exit status."""
    unit = os.environ["FLEETCTL_UNIT"]
    handle = os.open(_lock(unit), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return BUSY
    os.ftruncate(handle, 0)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-900")
    agent = [sys.executable, "-I", "-S", str(Path(sys.argv[0]).resolve())]
    child = subprocess.Popen([*agent, "rollout", folder])
    os.pwrite(handle, json.dumps({"keeper": os.getpid(), "pid": child.pid}).encode(), 0)

    def forward(number: int, _frame: Optional[FrameType]) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)

    for number in SIGNALS:
        signal.signal(number, forward)
    status = child.wait()
    ended = "success" if status == 0 else "signal" if status < 0 else "exit-code"
    how = signal.Signals(-status).name[3:] if status < 0 else str(status)
    said = {"SERVICE_RESULT": ended, "EXIT_CODE": "killed" if status < 0 else "exited", "EXIT_STATUS": how}
    recovered = subprocess.run([*agent, "recover", folder], env={**os.environ, **said}, check=False)
    return recovered.returncode or abs(status)


def pid_of(unit: str) -> int:
    """The rollout's process; 0 where no keeper of that unit lives."""
    said = _said(unit)
    return int(said.get("pid") or said.get("keeper") or 0)


def kill(unit: str, number: int) -> None:
    """Signal the rollout's process."""
    pid = _said(unit).get("pid")
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _lock(unit: str) -> Path:
    return FOLDER / f"{unit}.running"


def _said(unit: str) -> Any:
    try:
        handle = os.open(_lock(unit), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return {}
    except BlockingIOError:
        try:
            return json.loads(os.read(handle, 4096) or b'{"keeper": 1}')
        except ValueError:
            return {"keeper": 1}
    finally:
        os.close(handle)
