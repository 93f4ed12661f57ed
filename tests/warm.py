"""``fleetctl`` in processes that are forked from one that has imported it: half a second less for each command.

``start`` is like ``subprocess.Popen`` with pipes and text: a process of its own, with its own signals, streams,
environment and exit status. What a command does before its ``main`` is what is left out.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "cli",
    "rollout",
    "transport",
    "services",
    "inventory",
    "doctor",
    "environment",
    "adoption",
    "playbook",
)
READY = b"ready"
LARGEST = 1 << 20


class Command:
    """A command that runs: the part of ``subprocess.Popen`` that tests use."""

    def __init__(self, words: Sequence[str], link: socket.socket, out: int, err: int) -> None:
        self.args = ["fleetctl", *words]
        self.stdout: IO[str] = os.fdopen(out, encoding="utf-8", errors="replace")
        self.stderr: IO[str] = os.fdopen(err, encoding="utf-8", errors="replace")
        self.returncode: int | None = None
        self._link = link
        self._said = link.makefile("r")
        self.pid = int(self._said.readline())

    def poll(self) -> int | None:
        """Its exit status, or None while it runs."""
        if self.returncode is None and select.select([self._link], [], [], 0)[0]:
            self.returncode = int(self._said.readline() or -signal.SIGKILL)
            self._said.close()
            self._link.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; ``subprocess.TimeoutExpired`` as Popen."""
        if self.returncode is None and not select.select([self._link], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        status = self.poll()
        assert status is not None
        return status

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it still says on both streams, and then its end."""
        end = time.monotonic() + timeout if timeout is not None else None
        said = ["", ""]

        def read(at: int, stream: IO[str]) -> None:
            said[at] = stream.read()

        readers = [
            threading.Thread(target=read, args=(at, stream), daemon=True)
            for at, stream in enumerate((self.stdout, self.stderr))
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(None if end is None else max(end - time.monotonic(), 0.0))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        self.wait(None if end is None else max(end - time.monotonic(), 0.1))
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        """Signal it, where it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class _Parent:
    """The process that has imported everything; started with the first command, gone with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._address: str | None = None

    def address(self) -> str:
        with self._lock:
            if self._address is None:
                lifeline, kept = os.pipe()
                os.set_inheritable(lifeline, True)
                self._kept = kept
                self._address = f"\0fleetctl-tests-{os.getpid()}-{time.monotonic_ns()}"
                argv = [sys.executable, "-m", "tests.warm", self._address[1:], str(lifeline)]
                env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
                self._process = subprocess.Popen(
                    argv,
                    cwd=ROOT,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    pass_fds=[lifeline],
                )
                os.close(lifeline)
                assert self._process.stdout is not None
                assert self._process.stdout.read(len(READY)) == READY
        return self._address


_PARENT = _Parent()


def start(words: Sequence[str], env: Mapping[str, str]) -> Command:
    """Start ``fleetctl WORDS…`` with these variables, here."""
    out, err = os.pipe(), os.pipe()
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect(_PARENT.address())
    asked = json.dumps({"words": list(words), "env": dict(env), "cwd": str(Path.cwd())}).encode()
    ends = array.array("i", [out[1], err[1]])
    link.sendmsg([len(asked).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, ends)])
    link.sendall(asked)
    for end in (out[1], err[1]):
        os.close(end)
    return Command(words, link, out[0], err[0])


def run(words: Sequence[str], env: Mapping[str, str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run ``fleetctl WORDS…`` to its end; one that takes longer is killed, and ``subprocess.TimeoutExpired``."""
    command = start(words, env)
    try:
        out, err = command.communicate(timeout)
    except subprocess.TimeoutExpired:
        command.kill()
        raise
    assert command.returncode is not None
    return subprocess.CompletedProcess(command.args, command.returncode, out, err)


def _import_all() -> None:
    for package in PACKAGES:
        place = importlib.import_module(f"fleetctl.{package}")
        for module in pkgutil.iter_modules(place.__path__, f"{place.__name__}."):
            importlib.import_module(module.name)
    for name in ("jinja2", "yaml", "rich.live", "rich.table", "fleetctl.transport.connection"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the commands' collectors leave it alone, so it is shared and not copied


def _serve(address: str, lifeline: int) -> None:
    """Fork a command for each connection, and tell its pid and then its status; returns only in the command."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(f"\0{address}")
    listening.listen(64)
    os.write(1, READY)
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([listening, lifeline, *running], [], [])
        for handle in ready:
            if handle == lifeline:
                os._exit(0)
            if handle in running:
                pid, link = running.pop(handle)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.close(handle)
                with contextlib.suppress(OSError):
                    link.sendall(f"{status}\n".encode())
                link.close()
        if listening not in ready:
            continue
        link, _ = listening.accept()
        size, ends, _, _ = socket.recv_fds(link, 4, 2)
        asked = json.loads(link.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
        pid = os.fork()
        if pid == 0:
            for other in (listening, link, *(pair[1] for pair in running.values())):
                other.close()
            for handle in (*running, lifeline):
                os.close(handle)
            return _become(asked, ends)
        for end in ends:
            os.close(end)
        link.sendall(f"{pid}\n".encode())
        running[os.pidfd_open(pid)] = (pid, link)


def _become(asked: dict[str, object], ends: Sequence[int]) -> None:
    for number, end in enumerate(ends, 1):
        os.dup2(end, number)
        os.close(end)
    os.environ.clear()
    os.environ.update(asked["env"])  # type: ignore[call-overload]
    os.chdir(str(asked["cwd"]))
    sys.argv = ["fleetctl", *asked["words"]]  # type: ignore[misc]
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _run() -> int:
    """``python -m fleetctl`` to its end; what an interpreter does beyond that, taking itself apart, is left out."""
    status = 0
    try:
        runpy.run_module("fleetctl", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        traceback.print_exc()
        status = 1
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    _import_all()
    _serve(sys.argv[1], int(sys.argv[2]))
    os._exit(_run())
