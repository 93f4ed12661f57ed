"""A real sshd of the test's own; what its sessions write in /var/lib/fleetctl stays there."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

CONFIG = """
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
LogLevel VERBOSE
PrintMotd no
"""


@dataclass
class SshSettings:
    """The inventory's SSH settings, as the transport reads them."""

    hostname: str | None = None
    user: str | None = None
    port: int | None = None
    identity_file: str | Path | None = None
    known_hosts: str | Path | None = None
    proxy_jump: str | None = None
    connect_timeout: float | None = None
    sudo: bool = False


@dataclass
class TestHost:
    """A host of an inventory."""

    __test__ = False

    name: str
    ssh: SshSettings = field(default_factory=SshSettings)


class Sshd:
    """An sshd on a free port of 127.0.0.1 with its own keys; ``host()`` is the inventory's view of it."""

    def __init__(self, folder: Path, extra: str = "") -> None:
        self.folder, self.port = folder, free_port()
        self.identity, self.known_hosts, self.log = folder / "id", folder / "known_hosts", folder / "sshd.log"
        make_key(self.identity)
        make_key(folder / "host_key")
        (folder / "authorized_keys").write_text(self.identity.with_suffix(".pub").read_text())
        self.trust(folder / "host_key.pub")
        config = folder / "sshd_config"
        config.write_text(extra + CONFIG.format(port=self.port, folder=folder))
        Path("/run/sshd").mkdir(exist_ok=True)
        run = (
            "mkdir -p /var/lib/fleetctl && mount -t tmpfs -o size=8m tmpfs /var/lib/fleetctl "
            f"&& exec /usr/sbin/sshd -D -e -f {config}"
        )
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", run], stderr=log, stdin=subprocess.DEVNULL
            )
        wait_for(lambda: "listening" in self.log.read_text())

    def trust(self, public: Path) -> None:
        """Make a public key the one known host key."""
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public.read_text()}")

    def host(self, **ssh: object) -> TestHost:
        """The host, with settings replaced."""
        settings = {
            "hostname": "127.0.0.1",
            "port": self.port,
            "user": "root",
            "identity_file": self.identity,
            "known_hosts": self.known_hosts,
            "connect_timeout": 60,
        }
        return TestHost("box", SshSettings(**{**settings, **ssh}))  # type: ignore[arg-type]

    def inside(self, command: str) -> str:
        """stdout of a shell command in the sshd's mount namespace."""
        return subprocess.run(
            ["nsenter", "--mount", "--wd=/", "-t", str(self.process.pid), "sh", "-c", command],
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def sessions(self) -> int:
        """Sessions started so far."""
        return self.log.read_text().count("Starting session")

    def descendants(self) -> dict[int, str]:
        """Command lines of all processes below the sshd, by pid."""
        parents: dict[int, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                pid, rest = int(path.parent.name), path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(rest[1]), []).append(pid)
        found, todo = {}, [self.process.pid]
        while todo:
            for pid in parents.get(todo.pop(), []):
                todo.append(pid)
                try:
                    found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
        return found

    def stop(self) -> None:
        """End the sshd and every session below it."""
        for pid in [*self.descendants(), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


def make_key(path: Path, *options: str) -> None:
    """A fresh ed25519 key pair without a passphrase, unless the options say otherwise."""
    options = options or ("-N", "")
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-C", path.name, "-f", str(path), *options]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


@contextmanager
def relay(sshd: Sshd, resets: int = 0, cut_after: int | None = None) -> Iterator[tuple[TestHost, list[int]]]:
    """The sshd behind a port that resets its first connections and cuts the others after so many bytes sent.

    Yields the host as reached through it, and a list with one entry a connection.
    """
    seen: list[int] = []

    def pump(source: socket.socket, sink: socket.socket, left: float) -> None:
        with suppress(OSError):
            while left > 0 and (data := source.recv(65536)):
                sink.sendall(data)
                left -= len(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def run() -> None:
        with suppress(OSError):
            while True:
                near, _ = door.accept()
                seen.append(1)
                if len(seen) <= resets:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", sshd.port))
                up = threading.Thread(target=pump, args=(near, far, cut_after or float("inf")), daemon=True)
                down = threading.Thread(target=pump, args=(far, near, float("inf")), daemon=True)
                up.start()
                down.start()

    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        threading.Thread(target=run, daemon=True).start()
        known = sshd.folder / f"known_hosts_{port}"
        known.write_text(f"[127.0.0.1]:{port} {(sshd.folder / 'host_key.pub').read_text()}")
        yield sshd.host(port=port, known_hosts=known), seen
        door.shutdown(socket.SHUT_RDWR)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on, and that no connection is given by the kernel meanwhile."""
    while True:
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", random.randrange(10_000, 32_000)))
            return int(sock.getsockname()[1])


def wait_for(what: Callable[[], object], seconds: float = 120.0) -> None:
    """Until a function's answer is true; it is asked every 20 ms for at most ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")
