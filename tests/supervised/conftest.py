"""A rented machine: namespaces of its own, no systemd, and a supervisord that runs a real sshd and the services."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Lab
from tests.e2e.conftest import STANDIN, VENV, Site
from tests.transport.sshd import CONFIG, free_port, make_key, wait_for

SUPERVISORD = """
[unix_http_server]
file=/run/supervisor.sock
[supervisord]
nodaemon=true
user=root
logfile={folder}/supervisord.log
pidfile=/run/supervisord.pid
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[program:sshd]
command=/usr/sbin/sshd -D -e -f {folder}/sshd_config
stdout_logfile={folder}/sshd.log
redirect_stderr=true
[supervisorctl]
serverurl=unix:///run/supervisor.sock
[include]
files = {folder}/conf.d/*.conf
"""
DISK = ("/var/lib/fleetctl", "/etc/systemd/system", "/var/log/fleetctl")


class Rented(Lab):
    """The machine, as the tests of a lab's host know one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.identity = folder / "id"
        self.known_hosts = folder / "known_hosts"
        make_key(self.identity)
        make_key(folder / "host_key")
        (folder / "authorized_keys").write_text(self.identity.with_suffix(".pub").read_text())
        key = (folder / "host_key.pub").read_text()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {key}")
        (folder / "sshd_config").write_text(CONFIG.format(port=self.port, folder=folder))
        (folder / "conf.d").mkdir()
        (folder / "supervisord.conf").write_text(SUPERVISORD.format(folder=folder))
        self.boot()

    def boot(self) -> None:
        """Start the machine; its disk stays from one boot to the next, its ``/run`` does not."""
        supervisord = Path(sys.executable).with_name("supervisord")
        disk = "; ".join(
            f"mkdir -p {place} {self.folder}/disk{place}; mount --bind {self.folder}/disk{place} {place}"
            for place in DISK
        )
        script = (
            f"set -e; {disk}; mount -t tmpfs tmpfs /run; mkdir /run/sshd; "
            f"cd {self.folder}; exec {supervisord} -n -c supervisord.conf"
        )
        (self.folder / "sshd.log").unlink(missing_ok=True)
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        log = self.folder / "sshd.log"
        wait_for(lambda: log.is_file() and "listening" in log.read_text(), 120)

    def address(self, name: str) -> str:
        """Where its sshd listens."""
        return "127.0.0.1"

    def run(
        self, name: str, command: str, *, check: bool = True, timeout: float = 180
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the machine by ssh."""
        options = ["-F", "none", "-i", str(self.identity), "-p", str(self.port)]
        options += ["-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "BatchMode=yes"]
        done = subprocess.run(
            ["ssh", *options, "root@127.0.0.1", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stderr}"
        return done

    def supervisorctl(self, words: str) -> str:
        """supervisorctl's own word."""
        program = Path(sys.executable).with_name("supervisorctl")
        done = self.run("", f"{program} -c {self.folder}/supervisord.conf {words}", check=False)
        return done.stdout + done.stderr

    def stop(self) -> None:
        """End the machine at once."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


class RentedSite(Site):
    """A slot of the rented machine, and fleetctl's command line to deploy to it."""

    lab: Rented

    def service(self, name: str, template: str = "standin.service.j2", **knobs: Any) -> None:
        """As any other, with all the time that a stalled machine takes."""
        super().service(name, template, **knobs)
        self.services[name]["deadlines"] = dict.fromkeys(("drain", "stop", "free", "ready", "generate"), 60)
        self.write()

    def active(self, name: str) -> str:
        """supervisord's word on the service, once it is neither starting (its first second) nor stopping."""
        end = time.monotonic() + 60
        while True:
            said = self.lab.supervisorctl(f"status {self.slot}-{name}").split()
            if len(said) < 2 or said[1] not in ("STARTING", "STOPPING") or time.monotonic() > end:
                return said[1] if len(said) > 1 else ""
            time.sleep(0.1)


@pytest.fixture(scope="session")
def rented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rented]:
    """The machine, up."""
    machine = Rented(tmp_path_factory.mktemp("rented"))
    machine.run("", f"/usr/bin/python3 -m venv --without-pip {VENV}")
    machine.run("", f"cp {STANDIN} /var/lib/fleetctl/standin.py")
    yield machine
    machine.stop()


@pytest.fixture
def site(rented: Rented, tmp_path: Path) -> Iterator[RentedSite]:
    """A slot of its own; what ran in it is stopped at the end."""
    site = RentedSite(rented, tmp_path)
    site.ssh |= {"port": rented.port}
    site.write()
    yield site
    names = " ".join(f"{site.slot}-{name}" for name in site.services)
    rented.supervisorctl(f"stop {names}")
    for left in (rented.folder / "conf.d").glob(f"{site.slot}-*"):
        left.unlink()
