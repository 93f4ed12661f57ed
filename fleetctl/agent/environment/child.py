"""Run the commands of one piece of work: they share its lock, say that they run, and have a deadline."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from fleetctl.agent.environment.staging import REFUSALS
from fleetctl.agent.errors import PREFLIGHT, AgentError

Emit = Callable[[Dict[str, Any]], None]
KEEP_LINES = 400
ENDED_EVERY_S = 0.05
REST_S = 1.0
MARK = "FLEETCTL_STEP"
GUARD = """
exec 3<&0 </dev/null
(read -r line <&3; kill -9 -$$) >/dev/null 2>&1 &
nice -n 10 "$@" 3<&-
status=$?
kill -9 $! 2>/dev/null
exit $status
"""
_ERRNO = re.compile(r"(?:os error |Errno )(\d+)")


class Children:
    """Commands that inherit the lock ``fd``, so that it is held until the last of them has ended.

    Each runs in a session of its own under a guard: a shell whose standard input is a pipe that only this
    process holds open. When this process dies, however it dies, the guard kills the whole session. What a
    command leaves behind is ended with it, also in another session: all of it has ``MARK`` in its environment.
    """

    def __init__(self, fd: int, emit: Emit, environment: Dict[str, str], deadline_s: float) -> None:
        self._fd = fd
        self._emit = emit
        self._environment = environment
        self._deadline_s = deadline_s

    def run(
        self, step: str, argv: List[str], progress: Callable[[], str], deadline_s: Optional[float] = None
    ) -> Tuple[int, List[str]]:
        """The exit status and the last lines printed; ``progress`` words the event sent each second.

        The command's own end counts, not that of what it started. Raises :class:`AgentError` (exit 5) when it
        has not ended within ``deadline_s`` (else the deadline of all); it is killed then.
        """
        start, deadline, mark = time.monotonic(), deadline_s or self._deadline_s, uuid.uuid4().hex
        with subprocess.Popen(
            ["sh", "-c", GUARD, "fleetctl-guard", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**self._environment, MARK: mark},
            pass_fds=(self._fd,),
            start_new_session=True,
        ) as child:
            assert child.stdout is not None
            output, told = _Output(child.stdout.fileno(), child.pid), start
            while not _has_ended(child.pid):
                output.wait(1.0)
                now = time.monotonic()
                if now - start > deadline:
                    output.close()
                    _end(child.pid, mark)
                    raise AgentError(
                        f"{step} ({progress()}) has not ended within {deadline:g} s",
                        where=" ".join(argv[:3]),
                        fix="see whether the host's disk or CPU is overloaded, then run it again",
                        evidence=output.lines()[-10:],
                        exit=PREFLIGHT,
                    )
                if now - told >= 1:
                    told = now
                    left = round(deadline - (now - start))
                    self._emit({"step": step, "state": "wait", "text": progress(), "left_s": left})
            output.rest(time.monotonic() + REST_S)
            output.close()
            _end(child.pid, mark)
        return child.returncode, output.lines()


class _Output:
    """What comes from the pipe of a process, the last of it kept; what others still hold open is not waited for."""

    def __init__(self, fd: int, pid: int) -> None:
        self._fd: Optional[int] = fd
        self._held = bytearray()
        try:
            self._pidfd: Optional[int] = os.pidfd_open(pid)
        except (AttributeError, OSError):  # before Linux 5.3
            self._pidfd = None

    def wait(self, seconds: float) -> None:
        """Until something comes, the process ends, or so long; takes what came."""
        known = [fd for fd in (self._fd, self._pidfd) if fd is not None]
        ready = select.select(known, [], [], seconds if self._pidfd is not None else ENDED_EVERY_S)[0]
        if self._fd in ready:
            self._take()

    def rest(self, until: float) -> None:
        """Take what is in the pipe now; one that is filled without end no longer than ``until``."""
        while self._fd is not None and select.select([self._fd], [], [], 0)[0] and time.monotonic() < until:
            self._take()

    def _take(self) -> None:
        assert self._fd is not None
        chunk = os.read(self._fd, 1 << 16)
        if not chunk:
            self._fd = None
        self._held += chunk
        del self._held[: -KEEP_LINES * 200]

    def close(self) -> None:
        """Give up what it took to wait."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def lines(self) -> List[str]:
        """The last lines."""
        return self._held.decode("utf-8", "replace").splitlines()[-KEEP_LINES:]


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; it is not reaped, so that nobody else gets its number yet."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(pid: int, mark: str) -> None:
    """Kill the child's process group, and what it started that left the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)


def refusal(lines: List[str]) -> Optional[str]:
    """Why the disk refused, read from a command's output; None where it says nothing of the kind."""
    for line in lines:
        for number in _ERRNO.findall(line):
            if int(number) in REFUSALS:
                return REFUSALS[int(number)]
    return None
