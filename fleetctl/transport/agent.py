"""The agent on a host, from the controller's side: started in one SSH session, asked by JSON lines."""

from __future__ import annotations

import itertools
import json
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from fleetctl.errors import Exit, FleetError
from fleetctl.transport.payload import Payload, payload
from fleetctl.transport.settings import Host, Settings, place, resolve

if TYPE_CHECKING:
    import paramiko

FOLDER = "/var/lib/fleetctl/agent"
HELLO_S = 30.0
HEARTBEAT_S = 10.0
NOISE_LIMIT = 64 * 1024
WORD = "fleetctl-agent "

START = """
echo;
f={folder}/{digest}.pyz;
is_whole() {{ [ "$(sha256sum <$1)" = "{sha256}  -" ]; }};
fail() {{ rm -f $f.$$; echo fleetctl-agent $1; exit 3; }};
p=/usr/bin/python3;
[ -x $p ] || p=$(command -v python3) || fail no-python;
[ -f $f ] && is_whole $f || {{
  mkdir -p {folder} && true >$f.$$ || fail no-room;
  echo fleetctl-agent send;
  head -c {size} >$f.$$ && is_whole $f.$$ && mv $f.$$ $f || fail no-room;
}};
exec $p -I -S $f serve
"""
"""Sent as one line: csh takes no newline in quotes. The first echo ends what a start-up file printed."""

STABLE = "is the host up and the network stable?"
AFTERWARDS = {
    "rollout.": "A rollout goes on there by itself; `fleetctl attach {host}` follows it",
    "environment.build": "What was being made is removed there; run it again",
    "environment.derive": "What was being made is removed there; run it again",
    "environment.prune": "What is left to be removed goes when it is run again",
    "model.commit": "Run it again: it goes on where it stopped",
}
"""What a lost link leaves of a call, by its name or its name's start; others only look."""

OnEvent = Callable[[dict[str, Any]], None]


@contextmanager
def open_agent(host: Host) -> Iterator[Agent]:
    """The agent of one host over one connection and one session; both end on leaving.

    :class:`FleetError` with exit 3 where the host is not reached or cannot run the agent.
    """
    settings = resolve(host)
    from fleetctl.transport.connection import connect

    with connect(settings) as transport:
        agent = Agent(settings, _session(transport, settings))
        try:
            agent.start(payload())
            yield agent
        finally:
            agent.close()


def _session(transport: paramiko.Transport, settings: Settings) -> paramiko.Channel:
    from fleetctl.transport.quick import paramiko

    try:
        return transport.open_session(timeout=HELLO_S)
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise FleetError(
            f"the host opens no session: {error}",
            where=place(settings),
            fix="see sshd's journal there: `journalctl -u ssh`",
            exit=Exit.UNREACHABLE,
        ) from None


class Agent:
    """An open agent. Calls may be made from several threads at once; each gets its own answer.

    ``hello`` is the agent's first line: ``{"agent", "python", "hostname", "uid"}``.
    """

    def __init__(self, settings: Settings, channel: paramiko.Channel) -> None:
        self.hello: dict[str, Any] = {}
        self._settings = settings
        self._channel = channel
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any] | None]] = {}
        self._lock = threading.Lock()
        self._stderr: deque[str] = deque(maxlen=40)
        self._ended = threading.Event()

    def call(
        self, name: str, /, *, on_event: OnEvent | None = None, timeout: float | None = 60.0, **args: Any
    ) -> Any:
        """Ask one call and return its result; its events go to ``on_event``, in this thread.

        ``timeout`` bounds the whole call in seconds; ``None`` waits as long as the link lives. An error
        object becomes a :class:`FleetError` with the agent's exit code; a lost link or no answer in time
        is exit 3.
        """
        number = next(self._numbers)
        answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._waiting[number] = answers
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            self._send(json.dumps({"id": number, "call": name, "args": args}).encode() + b"\n", name)
            while True:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                try:
                    answer = None if self._ended.is_set() and answers.empty() else answers.get(timeout=left)
                except queue.Empty:
                    raise self._error(f"no answer to {name} within {timeout:g} s") from None
                if answer is None:
                    raise self._lost(name)
                if "event" in answer:
                    if on_event:
                        on_event(answer["event"])
                elif "error" in answer:
                    raise self._from_host(answer["error"])
                else:
                    return answer["result"]
        finally:
            self._waiting.pop(number, None)

    def start(self, agent: Payload) -> None:
        """Start the agent, sending it first where the host lacks it, and read its hello."""
        script = START.format(folder=FOLDER, digest=agent.digest, size=len(agent.data), sha256=agent.sha256)
        script = script.strip().replace("\n", " ")
        from fleetctl.transport.quick import paramiko

        self._channel.settimeout(HELLO_S)
        try:
            self._channel.exec_command(self._settings.shell(script))
            rest = self._greet(agent, time.monotonic() + HELLO_S)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._error(f"the agent did not start: {error or 'the link was lost'}") from None
        self._channel.settimeout(None)
        for work in (lambda: self._read(rest), self._read_stderr, self._beat):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        """End the session, and the agent with it."""
        self._ended.set()
        from fleetctl.transport.quick import paramiko

        for end in (self._channel.shutdown_write, self._channel.close):
            with suppress(OSError, EOFError, paramiko.SSHException):
                end()

    def _greet(self, agent: Payload, deadline: float) -> bytes:
        """Read up to the hello line, past what a login shell prints first; return what came behind it."""
        noise, held = b"", b""
        while True:
            while b"\n" in held:
                line, held = held.split(b"\n", 1)
                words = line.decode(errors="replace")
                if words.startswith('{"hello"'):
                    self.hello = json.loads(words)["hello"]
                    return held
                if words.strip() == WORD + "send":
                    with suppress(OSError):  # a host that refuses closes its end, and says why
                        self._channel.sendall(agent.data)
                elif words.startswith(WORD):
                    raise self._refusal(words.removeprefix(WORD).split())
                else:
                    noise += line + b"\n"
            if len(noise) + len(held) > NOISE_LIMIT:
                raise self._noisy("the host printed too much before the agent's hello", noise + held)
            if time.monotonic() > deadline:
                raise self._noisy(f"no hello from the agent within {HELLO_S:g} s", noise + held)
            chunk = self._channel.recv(65536)
            if not chunk:
                raise self._noisy("the session ended before the agent's hello", noise + held)
            held += chunk

    def _refusal(self, words: list[str]) -> FleetError:
        if words[:1] == ["no-room"]:
            what = f"cannot write the agent to {FOLDER}"
            fix = "the line below says why: space, or the user's rights"
        else:
            what = "the host has no python3" if words == ["no-python"] else "the host's python3 is too old"
            fix = "install Python 3.9 or later there: `apt-get install python3`"
        error = self._error(what)
        error.evidence = [" ".join(words), *self._drained_stderr()]
        if not self._settings.sudo and any("Permission denied" in line for line in error.evidence):
            fix = "it needs root: `ssh: {sudo: true}` in the host's file of the inventory, or `ssh: {user: root}`"
        error.fix = fix
        return error

    def _noisy(self, what: str, noise: bytes) -> FleetError:
        error = self._error(what)
        error.fix = "the host's shell start-up files must not print, nor exit, without a terminal"
        error.evidence = [*noise.decode(errors="replace").splitlines()[-10:], *self._drained_stderr()]
        refused = next((line for line in error.evidence if "sudo: " in line), None)
        if self._settings.sudo and refused:
            user = self._settings.user
            error.what = f"{user} does not become root there: {refused.partition('sudo: ')[2]}"
            error.fix = (
                f"`{user} ALL=(root) NOPASSWD: ALL` in /etc/sudoers.d/fleetctl there; or log in as root"
            )
        return error

    def _drained_stderr(self) -> list[str]:
        """stderr of a session that just ended, before its reader runs."""
        text = b""
        self._channel.settimeout(1.0)
        with suppress(OSError):
            while chunk := self._channel.recv_stderr(65536):
                text += chunk
        return text.decode(errors="replace").splitlines()[-10:]

    def _send(self, line: bytes, name: str) -> None:
        try:
            with self._lock:
                self._channel.sendall(line)
        except (OSError, EOFError):
            raise self._lost(name) from None

    def _read(self, held: bytes) -> None:
        """Hand each line to the call that waits for it, until the channel ends."""
        parts = [held]
        with suppress(OSError, EOFError):
            while True:
                while b"\n" in parts[-1]:
                    line, rest = b"".join(parts).split(b"\n", 1)
                    parts = [rest]
                    self._deliver(line)
                chunk = self._channel.recv(1 << 20)
                if not chunk:
                    break
                parts.append(chunk)
        self._ended.set()
        for answers in list(self._waiting.values()):
            answers.put(None)

    def _deliver(self, line: bytes) -> None:
        try:
            answer = json.loads(line)
            waiting = self._waiting.get(answer["id"])
        except (ValueError, KeyError, TypeError):
            self._stderr.append(line.decode(errors="replace"))
            return
        if waiting:
            waiting.put(answer)

    def _read_stderr(self) -> None:
        with suppress(OSError, EOFError):
            while chunk := self._channel.recv_stderr(65536):
                self._stderr.extend(chunk.decode(errors="replace").splitlines())

    def _beat(self) -> None:
        """Empty lines tell the agent that its controller lives; it ends after a minute without."""
        while not self._ended.wait(HEARTBEAT_S):
            with suppress(OSError, EOFError), self._lock:
                self._channel.sendall(b"\n")

    def _from_host(self, error: dict[str, Any]) -> FleetError:
        where = f"{self._settings.name}: {error['where']}" if error["where"] else self._settings.name
        return FleetError(error["what"], where, error["fix"], error["evidence"], Exit(error["exit"]))

    def _lost(self, name: str) -> FleetError:
        error = self._error(f"link to {self._settings.name} lost during {name}")
        error.fix = f"{STABLE} {_afterwards(name).format(host=self._settings.name)}".strip()
        return error

    def _error(self, what: str) -> FleetError:
        return FleetError(
            what,
            where=place(self._settings),
            fix=STABLE,
            evidence=list(self._stderr),
            exit=Exit.UNREACHABLE,
        )


def _afterwards(call: str) -> str:
    return next((said for start, said in AFTERWARDS.items() if call.startswith(start)), "")
