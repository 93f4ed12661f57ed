"""Run the commands of one piece of work: they share its lock, say that they run, and have a deadline."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.staging import REFUSALS

Emit = Callable[[Dict[str, Any]], None]
KEEP_LINES = 400
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
    process holds open. When this process dies, however it dies, the guard kills the whole session.
    """

    def __init__(self, fd: int, emit: Emit, environment: Dict[str, str], deadline_s: float) -> None:
        self._fd = fd
        self._emit = emit
        self._environment = environment
        self._deadline_s = deadline_s

    def run(self, step: str, argv: List[str], progress: Callable[[], str]) -> Tuple[int, List[str]]:
        """The exit status and the last lines printed; ``progress`` words the event sent each second.

        Raises :class:`AgentError` (exit 5) when the command has not ended within the deadline; it is
        killed then.
        """
        start = time.monotonic()
        with subprocess.Popen(
            ["sh", "-c", GUARD, "fleetctl-guard", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            pass_fds=(self._fd,),
            start_new_session=True,
        ) as child:
            assert child.stdout is not None
            output, told = bytearray(), start
            while True:
                if select.select([child.stdout], [], [], 1.0)[0]:
                    chunk = os.read(child.stdout.fileno(), 1 << 16)
                    if not chunk:
                        break
                    output += chunk
                    del output[: -KEEP_LINES * 200]
                now = time.monotonic()
                if now - start > self._deadline_s:
                    os.killpg(child.pid, signal.SIGKILL)
                    raise AgentError(
                        f"{step} has not ended within {self._deadline_s:g} s",
                        where=" ".join(argv[:3]),
                        fix="see whether the host's disk or CPU is overloaded, then run it again",
                        evidence=_lines(output)[-10:],
                        exit=PREFLIGHT,
                    )
                if now - told >= 1:
                    told = now
                    left = round(self._deadline_s - (now - start))
                    self._emit({"step": step, "state": "wait", "text": progress(), "left_s": left})
        return child.returncode, _lines(output)


def refusal(lines: List[str]) -> Optional[str]:
    """Why the disk refused, read from a command's output; None where it says nothing of the kind."""
    for line in lines:
        for number in _ERRNO.findall(line):
            if int(number) in REFUSALS:
                return REFUSALS[int(number)]
    return None


def _lines(output: bytearray) -> List[str]:
    return output.decode("utf-8", "replace").splitlines()[-KEEP_LINES:]
