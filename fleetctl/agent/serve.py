"""The agent's loop: one JSON object a line on stdin, answers on stdout, each call in its own thread.

The agent lives as long as its controller: it ends, and its children with it, when stdin ends or when nothing
(not even the controller's empty heartbeat lines) was heard for ``SILENCE_S``. Rollouts go on: they are units
of their own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NoReturn

from fleetctl.agent.calls import find
from fleetctl.agent.errors import PREFLIGHT, AgentError

SILENCE_S = 60.0
KEEP_AGENTS = 3
KEEP_S = 86400.0
BUG = 1
INPUT = 2


def serve() -> int:
    """Answer calls until stdin ends; never returns while calls run, they end with the process."""
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin"
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    out = _Output(sys.stdout.fileno())
    program = Path(sys.argv[0])
    out.send(
        {
            "hello": {
                "agent": program.stem,
                "python": ".".join(map(str, sys.version_info[:3])),
                "hostname": socket.gethostname(),
                "uid": os.getuid(),
            }
        }
    )
    if program.suffix == ".pyz":
        threading.Thread(target=_settle, args=(program,), daemon=True).start()
    for line in _lines(sys.stdin.fileno()):
        if line.strip():
            threading.Thread(target=_answer, args=(line, out), daemon=True).start()
    return _end()


def _end() -> NoReturn:
    """End this process and every child that a call has started."""
    os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)


class _Output:
    """Whole lines to one descriptor from many threads; a closed one ends the process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, message: Dict[str, Any]) -> None:
        data = memoryview(json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n")
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]


def _lines(fd: int) -> Iterator[bytes]:
    """Lines until the descriptor ends or stays silent for too long."""
    held: List[bytes] = []
    while select.select([fd], [], [], SILENCE_S)[0]:
        chunk = os.read(fd, 1 << 20)
        if not chunk:
            return
        *complete, rest = chunk.split(b"\n")
        if complete:
            yield b"".join([*held, complete[0]])
            yield from complete[1:]
            held = []
        held.append(rest)


def _answer(line: bytes, out: _Output) -> None:
    """Run one call and send its result or its error."""
    number = None
    try:
        try:
            message = json.loads(line)
            number, name = message["id"], message["call"]
        except (ValueError, KeyError, TypeError) as error:
            raise AgentError(f"not a call: {line[:200]!r}", evidence=[repr(error)]) from error
        result = find(name)(message.get("args", {}), lambda event: out.send({"id": number, "event": event}))
        out.send({"id": number, "result": result})
    except AgentError as error:
        out.send({"id": number, "error": error.to_dict()})
    except BrokenPipeError:
        _end()
    except PermissionError as error:
        out.send({"id": number, "error": _forbidden(error).to_dict()})
    except BaseException as error:
        import traceback

        out.send({"id": number, "error": _bug(error, traceback.format_exc())})


def _forbidden(error: PermissionError) -> AgentError:
    """What this user may not do there: of a host that is worked on without root, no bug."""
    path = error.filename if isinstance(error.filename, str) else ""
    is_root = os.getuid() == 0
    return AgentError(
        f"{error.strerror}" if is_root else f"needs root: {error.strerror} for user {os.getuid()}",
        where=path,
        fix="see what keeps root from it: a read-only mount, or `lsattr`"
        if is_root
        else "`ssh: {sudo: true}` in the host's file of the inventory, or log in as root: `ssh: {user: root}`",
        evidence=[str(error)],
        exit=PREFLIGHT,
    )


def _bug(error: BaseException, trace: str) -> Dict[str, Any]:
    return {
        "what": f"bug in the agent: {type(error).__name__}: {error}",
        "where": "",
        "fix": "report it with the lines below",
        "evidence": trace.splitlines(),
        "exit": BUG,
    }


def _settle(program: Path) -> None:
    """Unpack this agent, once, where its bytecode is of another Python; remove old ones. A refusal is none's fault."""
    try:
        os.utime(program)
        unpacked = program.with_suffix("")
        if not __file__.endswith(".pyc") and not unpacked.is_dir():
            _unpack(program, unpacked)
        _prune(program.parent)
    except OSError:
        return


def _unpack(program: Path, folder: Path) -> None:
    """Python keeps bytecode of modules in folders, not of those in archives: a third of the next start."""
    import shutil
    import zipfile

    part = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(program) as archive:
            archive.extractall(part)
        part.rename(folder)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)


def _prune(folder: Path) -> None:
    """Remove agents that nobody started for a day, but the newest few; rollouts run from theirs for hours."""
    known = sorted(folder.glob("*.pyz"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in known[KEEP_AGENTS:]:
        if path.stat().st_mtime < time.time() - KEEP_S:
            import shutil

            path.unlink()
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
