"""A lab host with the agent on it: calls over one ssh session, and files through the host's real folders."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

from fleetctl.lab.paths import HostPaths
from fleetctl.transport.payload import payload

STANDIN = Path(__file__).with_name("standin.py")
CALL_S = 300.0


class AgentSaid(Exception):
    """The ``error`` of a call."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["what"])
        self.error = error


class Host:
    """One agent session; calls from many threads at once."""

    def __init__(self, name: str, address: str, identity: Path, known_hosts: Path) -> None:
        self.name = name
        self.state = HostPaths(name).state
        self.root = HostPaths(name).root
        (self.state / "agent").mkdir(exist_ok=True)
        self.program = f"/var/lib/fleetctl/agent/{payload().digest}.pyz"
        (self.state / "agent" / f"{payload().digest}.pyz").write_bytes(payload().data)
        (self.state / "standin.py").write_bytes(STANDIN.read_bytes())
        self.ssh = ["ssh", "-i", str(identity), "-o", f"UserKnownHostsFile={known_hosts}", f"root@{address}"]
        self._session = subprocess.Popen(
            [*self.ssh, "python3", "-I", "-S", self.program, "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._session.stdin is not None
        assert self._session.stdout is not None
        self._stdin, self._stdout = self._session.stdin, self._session.stdout
        self.gpus = threading.Lock()
        """Held by who changes what the host's GPUs say."""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Queue[dict[str, Any]]] = {}
        self._write = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()

    def close(self) -> None:
        """End the session, and the agent with it."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._session.wait(60)

    def call(
        self, name: str, args: dict[str, Any], event: Callable[[dict[str, Any]], None] | None = None
    ) -> Any:
        """One call; its result, or :class:`AgentSaid`."""
        number = next(self._numbers)
        answers = self._waiting[number] = Queue()
        with self._write:
            self._stdin.write(json.dumps({"id": number, "call": name, "args": args}).encode() + b"\n")
            self._stdin.flush()
        while True:
            message = answers.get(timeout=CALL_S)
            if "event" in message:
                if event:
                    event(message["event"])
            elif "error" in message:
                raise AgentSaid(message["error"])
            else:
                return message["result"]

    def run(self, *command: str, check: bool = True) -> str:
        """A command on the host; its output."""
        done = subprocess.run([*self.ssh, " ".join(command)], capture_output=True, text=True, timeout=180)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install(self, unit: str, text: str, enable: bool = False) -> None:
        """A unit that nobody's rollout brought, started."""
        (self.root / "etc/systemd/system" / unit).write_text(text)
        self.run("systemctl daemon-reload;", f"systemctl {'enable --now' if enable else 'start'} {unit}")

    def clean(self) -> None:
        """Take away what the tests' slots left: units, slots, rollouts."""
        self.run(
            "cd /etc/systemd/system;",
            "systemctl disable -q --now t[0-9]*-*.service; rm -f t[0-9]*-*.service; systemctl daemon-reload;",
            "systemctl reset-failed; cd /var/lib/fleetctl; rm -rf slots/t[0-9]*.json rollouts/t[0-9]* gate-t*",
            check=False,
        )

    def _read(self) -> None:
        for line in self._stdout:
            message = json.loads(line)
            if "id" in message:
                self._waiting[message["id"]].put(message)

    def _beat(self) -> None:
        while self._session.poll() is None:
            time.sleep(10)
            try:
                with self._write:
                    self._stdin.write(b"\n")
                    self._stdin.flush()
            except (OSError, ValueError):
                return
