"""Runs Python in a terminal or in a pipe, and gives what it wrote."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from dataclasses import dataclass

TIMEOUT_S = 240


@dataclass(frozen=True)
class Said:
    """An exit status with what went to stdout and stderr (in a terminal both are ``out``)."""

    code: int
    out: str
    err: str = ""


def piped(code: str, *arguments: str, **variables: str) -> Said:
    """Run ``python -c code`` with pipes."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=_environment(variables),
        timeout=TIMEOUT_S,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def in_terminal(code: str, *arguments: str, columns: int = 200, **variables: str) -> Said:
    """Run ``python -c code`` in a terminal of that many columns."""
    main, other = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=other,
        stdout=other,
        stderr=other,
        env=_environment({"COLUMNS": str(columns), "TERM": "xterm-256color", **variables}),
    )
    os.close(other)
    out = b""
    end = time.monotonic() + TIMEOUT_S
    with contextlib.suppress(OSError):  # Linux says EIO where the other side is closed
        while time.monotonic() < end:
            if select.select([main], [], [], 0.2)[0]:
                chunk = os.read(main, 65536)
                if not chunk:
                    break
                out += chunk
    os.close(main)
    return Said(child.wait(timeout=60), out.decode().replace("\r\n", "\n"))


def _environment(variables: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLEETCTL_")}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM"):
        kept.pop(name, None)
    return {**kept, **variables}
