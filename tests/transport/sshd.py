"""A real sshd of the test's own; what its sessions write in /var/lib/fleetctl stays in its mount namespace."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
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
            "connect_timeout": 5,
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


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for(what, seconds: float = 10.0):  # type: ignore[no-untyped-def]
    """The first true answer of a function, asked every 20 ms for at most ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := what():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")
