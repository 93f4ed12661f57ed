"""What happens to a unit, as it happens: its process's end, its words, and the operator's wish to stop."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, List, Optional

from fleetctl.agent.errors import AgentError
from fleetctl.agent.rollout.signatures import Signature, Signatures
from fleetctl.agent.units import supervised, systemd

KEPT_LINES = 4000
SETTLE_S = 2.0
SETTLE_STEP_S = 0.02
MORE_WORDS_S = 0.1
OF_SYSTEMD = "systemd: "
OF_AN_END = ("exited", "Deactivated", "Succeeded")
FIELDS = "MESSAGE,PRIORITY,_PID,SYSLOG_IDENTIFIER"


class Aborted(Exception):
    """The operator, or systemd, asked the rollout to undo itself."""


class Interrupt:
    """A wish to abort that ends every wait at once; ``disarm`` it where a step must not be left half done."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._armed = False
        self.requested = False

    def listen(self) -> None:
        """Take SIGTERM, SIGINT, SIGHUP and SIGUSR1 as the wish; main thread only."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._ask)
        self._armed = True

    def _ask(self, *_: object) -> None:
        self.requested = True
        self.wake()

    def wake(self) -> None:
        """End the wait in hand; safe from any thread and from a signal's handler."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"!")

    def disarm(self) -> None:
        """From here on the wish is ignored."""
        self._armed = False

    def check(self) -> None:
        """Raise :class:`Aborted` if asked for."""
        if self._armed and self.requested:
            raise Aborted

    def fileno(self) -> int:
        """Readable when woken."""
        return self._read

    def drain(self) -> None:
        """Forget past wakes."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def sleep(self, seconds: float) -> None:
        """Wait, or less when woken; then :meth:`check`."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._read, selectors.EVENT_READ)
            if selector.select(max(seconds, 0.0)):
                self.drain()
        self.check()


def cursor() -> Optional[str]:
    """Where the journal ends now; None for an empty one."""
    if supervised.in_charge():
        return supervised.cursor()
    done = systemd.run(
        ["journalctl", "-q", "-n", "1", "-o", "json", "--output-fields=_BOOT_ID", "--no-pager"]
    )
    try:
        place = json.loads(done.stdout.splitlines()[-1])["__CURSOR"]
    except (ValueError, KeyError, IndexError):
        return None
    return str(place)


def tail(unit: str, lines: int = 20) -> List[str]:
    """The last lines that the journal has of a unit, systemd's own about it included."""
    command = ["journalctl", "-q", "--no-pager", "-o", "cat", "-n", str(lines), "-u", unit]
    if supervised.in_charge():
        command = ["tail", "-n", str(lines), str(supervised.log_of(unit))]
    done = systemd.run(command)
    return done.stdout.splitlines()


class Watch:
    """Follows one unit's journal from a cursor and one process by its pidfd, in the caller's own thread."""

    def __init__(self, unit: str, after: Optional[str], table: Signatures, interrupt: Interrupt) -> None:
        self.lines: Deque[str] = deque(maxlen=KEPT_LINES)
        self.fatal: Optional[Signature] = None
        self.ended = False
        self.poked = False
        self._settled = False
        self._unit = unit
        self._table = table
        self._interrupt = interrupt
        self._pidfd: Optional[int] = None
        self._pid = self._watched = 0
        self._rest = b""
        self._selector = selectors.DefaultSelector()
        fields = f"--output-fields={FIELDS}"
        # --after-cursor loses the unit's first entry where the one at the cursor is another unit's.
        place = f"--cursor={after}" if after else "--boot"
        self._after = after
        self._command = ["journalctl", "-q", "--no-pager", "-o", "json", fields, "-u", unit, place]
        follow = ["-f", "--no-tail"]
        self._plain = supervised.in_charge()
        if self._plain:
            self._command, follow = supervised.since(unit, after), ["-F"]
        self._journal = subprocess.Popen(
            [*self._command, *follow],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._journal.stdout is not None
        self._pipe = self._journal.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._selector.register(self._pipe, selectors.EVENT_READ)
        self._selector.register(interrupt.fileno(), selectors.EVENT_READ)

    def close(self) -> None:
        """End the follower."""
        self._selector.close()
        self._forget_process()
        self._journal.kill()
        self._journal.wait()
        if self._journal.stdout is not None:
            self._journal.stdout.close()

    def process(self, pid: int) -> None:
        """Watch this process's end from now on."""
        self._forget_process()
        self.ended = self._settled = False
        self._pid = self._watched = pid
        try:
            self._pidfd = os.pidfd_open(pid)
            self._selector.register(self._pidfd, selectors.EVENT_READ)
        except ProcessLookupError:
            self.ended = True
        except (OSError, AttributeError):
            self._pidfd = None

    def _forget_process(self) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._pidfd)
            os.close(self._pidfd)
        self._pidfd = None
        self._pid = 0

    def poll(self, seconds: float) -> bool:
        """Wait for the next event, at most so long; True if there was one."""
        woken = self._selector.select(max(seconds, 0.0))
        for key, _ in woken:
            if key.fd == self._pipe:
                self._read()
            elif key.fd == self._interrupt.fileno():
                self._interrupt.drain()
            else:
                self.ended = True
                self._forget_process()
        if self._pid and self._pidfd is None and not os.path.exists(f"/proc/{self._pid}"):  # noqa: PTH110
            self.ended = True
        return bool(woken)

    def settle(self) -> None:
        """Read all that was said until now, and where the process ended, what systemd says of it.

        journald wakes followers up to 250 ms late, so this reads anew, and where it is late itself, until it has
        systemd's word on the end; supervisord has written all once it knows of the end. Bounded; a second call is free.
        """
        if self._settled:
            return
        self._settled = True
        end = time.monotonic() + SETTLE_S
        while True:
            time.sleep(SETTLE_STEP_S if self.ended else MORE_WORDS_S)
            told = self._plain and self._supervisord_knows()
            done = systemd.run(self._command)
            self.lines.clear()
            for raw in done.stdout.splitlines():
                self._line(raw.encode())
            said = [line for line in self.lines if line.startswith(OF_SYSTEMD)]
            told = told or any(word in line for line in said for word in OF_AN_END)
            if told or not self.ended or time.monotonic() >= end:
                return

    def _supervisord_knows(self) -> bool:
        with contextlib.suppress(AgentError):
            return supervised.show([self._unit])[self._unit]["MainPID"] != str(self._watched)
        return False

    def _read(self) -> None:
        try:
            chunk = os.read(self._pipe, 1 << 20)
        except BlockingIOError:
            return
        if not chunk:
            self._selector.unregister(self._pipe)
            return
        *complete, self._rest = (self._rest + chunk).split(b"\n")
        for raw in complete:
            self._line(raw)

    def _line(self, raw: bytes) -> None:
        if self._plain:
            self._said(raw.decode(errors="replace"))
            return
        try:
            entry = json.loads(raw)
        except ValueError:
            return
        if entry.get("__CURSOR") == self._after:
            return
        message = entry.get("MESSAGE")
        if isinstance(message, list):
            message = bytes(message).decode(errors="replace")
        if not isinstance(message, str):
            return
        of_systemd = entry.get("_PID") == "1"
        self.poked = self.poked or of_systemd
        self._said(message, of_systemd)

    def _said(self, message: str, of_systemd: bool = False) -> None:
        for line in message.splitlines():
            self.lines.append(OF_SYSTEMD + line if of_systemd else line)
            if self.fatal is None:
                self.fatal = self._table.fatal(line)


class Asked:
    """A question put in a thread of its own; its answer wakes the one who waits."""

    def __init__(self, question: Callable[[], Any], interrupt: Interrupt) -> None:
        self.answer: Any = None
        self.error = ""
        self.done = False
        self._question = question
        self._interrupt = interrupt
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self.answer = self._question()
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.done = True
            self._interrupt.wake()
