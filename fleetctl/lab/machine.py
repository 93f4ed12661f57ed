"""Booting one lab host and ending it.

Each host has a cgroup of its own, made before its first process. All its processes are in it and
nothing else is, so ending the host is one write to ``cgroup.kill``: no process is looked for by name,
and a recycled pid is never hit.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from fleetctl.errors import Exit, FleetError
from fleetctl.lab import keys, network, root, system
from fleetctl.lab.inventory import LabHost
from fleetctl.lab.paths import HostPaths
from fleetctl.lab.record import HostRecord

READY_S = 90.0
_BEGIN_S = 10.0
_END_S = 30.0
_TICK_S = 0.02
_WAIT_MULTI_USER = "until systemctl is-active --quiet multi-user.target; do sleep 0.02; done"


def boot(host: LabHost, record: HostRecord, say: Callable[[str], None]) -> None:
    """Boot the host's root and wait until sshd takes the lab's key and multi-user.target is reached."""
    paths = HostPaths(host.name)
    root.require_own_overlay(paths)
    cgroup = _cgroup(record)
    try:
        cgroup.mkdir(exist_ok=True)
    except OSError as error:
        raise FleetError(
            f"cannot make a cgroup for the host: {error.strerror}", where=str(cgroup), exit=Exit.PREFLIGHT
        ) from error
    _start(paths, record, cgroup)
    _wait_ready(host, record, say)
    record.pid = supervisor(record)
    record.pid_start = start_time(record.pid)
    record.ready = True
    record.save()


def end(record: HostRecord) -> None:
    """End every process of the host at once, as a power cut does, and remove its cgroup."""
    cgroup = _cgroup(record)
    if cgroup.exists():
        (cgroup / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + _END_S
        while populated(record):
            if time.monotonic() > deadline:
                raise FleetError(
                    f"processes of the host do not end: {_pids(cgroup)}",
                    where=str(cgroup),
                    exit=Exit.PREFLIGHT,
                )
            time.sleep(_TICK_S)
    for folder in _cgroups_named(record.machine):
        _remove_cgroup(folder)
    _forget_machine(record)


def populated(record: HostRecord) -> bool:
    """Whether any process of the host lives."""
    try:
        events = (_cgroup(record) / "cgroup.events").read_text()
    except OSError:
        return False
    return "populated 1" in events


def supervisor(record: HostRecord) -> int:
    """The pid of the host's systemd-nspawn, 0 where it is gone."""
    pids = _pids(_cgroup(record) / "supervisor")
    return pids[0] if pids else 0


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; with the pid it names the process for good."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def alive(record: HostRecord) -> bool:
    """Whether the host runs, carried by the process that was recorded."""
    return populated(record) and record.pid_start != 0 and start_time(record.pid) == record.pid_start


def console_tail(paths: HostPaths, lines: int = 12) -> list[str]:
    """The last lines of the host's console."""
    try:
        text = paths.console.read_text(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()][-lines:]


def _start(paths: HostPaths, record: HostRecord, cgroup: Path) -> None:
    nspawn = [
        system.tool("systemd-nspawn") or "systemd-nspawn",
        f"--directory={paths.root}",
        "--boot",
        f"--machine={record.machine}",
        f"--hostname={record.host}",
        "--register=no",
        "--keep-unit",
        "--console=pipe",
        "--link-journal=no",
        "--resolv-conf=off",
        "--timezone=off",
        "--capability=CAP_NET_ADMIN",
        f"--network-namespace-path={network.netns_path(record.netns)}",
        f"--bind={paths.state}:/var/lib/fleetctl",
    ]
    enter = 'echo $$ > "$0/cgroup.procs" && exec env SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 "$@"'
    with paths.console.open("ab") as console:
        subprocess.run(
            ["setsid", "--fork", "sh", "-c", enter, str(cgroup), *nspawn],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            check=True,
        )


def _wait_ready(host: LabHost, record: HostRecord, say: Callable[[str], None]) -> None:
    started = time.monotonic()
    deadline = started + READY_S
    told = started
    seen = False
    while not _sshd_answers(host.address):
        now = time.monotonic()
        seen = seen or populated(record)
        if (seen or now > started + _BEGIN_S) and not populated(record):
            raise _not_booted(record, "its systemd ended while booting")
        if now > deadline:
            raise _not_booted(record, f"sshd does not answer after {READY_S:.0f} s")
        if now > told + 1:
            say(f"{host.name}: waits for sshd, {deadline - now:.0f} s left")
            told = now
        time.sleep(_TICK_S)
    say(f"{host.name}: sshd answers; waits for multi-user.target, {deadline - time.monotonic():.0f} s left")
    problem = login(host, _WAIT_MULTI_USER, timeout=max(1.0, deadline - time.monotonic()))
    if problem:
        raise _not_booted(record, f"no login that sees multi-user.target: {problem}")
    say(f"{host.name}: up at {host.address} in {time.monotonic() - started:.1f} s")


def login(host: LabHost, command: str, timeout: float) -> str:
    """Run a command on the host by ssh; the reason it failed, empty when it did not."""
    try:
        done = subprocess.run(
            keys.ssh_command(host, command, connect_timeout=max(1, int(timeout))),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer after {timeout:.0f} s"
    if done.returncode:
        return done.stderr.strip() or f"status {done.returncode}"
    return ""


def _sshd_answers(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=0.5) as connection:
            return connection.recv(8).startswith(b"SSH-2.0-")
    except OSError:
        return False


def _not_booted(record: HostRecord, why: str) -> FleetError:
    tail = console_tail(HostPaths(record.host))
    fix = "see the console's last lines; fleetctl lab up tries again with a fresh host"
    if any("Too many open files" in line or "inotify" in line for line in tail):
        fix = "allow more inotify instances: sysctl -w fs.inotify.max_user_instances=1024"
    return FleetError(
        f"the host did not boot: {why}", where=record.host, fix=fix, evidence=tail, exit=Exit.UNREACHABLE
    )


def _cgroup(record: HostRecord) -> Path:
    mounted = system.cgroup_root()
    if mounted is None:
        raise FleetError("cgroup v2 is not mounted on this machine", exit=Exit.PREFLIGHT)
    return mounted / record.machine


def _pids(cgroup: Path) -> list[int]:
    try:
        return [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _cgroups_named(machine: str) -> list[Path]:
    """The host's folder in every hierarchy: systemd keeps a copy in the v1 one where both are mounted."""
    mounted = {Path(mount.path) for mount in system.mounts() if mount.fstype in ("cgroup", "cgroup2")}
    return [folder / machine for folder in mounted if (folder / machine).is_dir()]


def _remove_cgroup(folder: Path) -> None:
    for child in folder.iterdir():
        if child.is_dir():
            _remove_cgroup(child)
    deadline = time.monotonic() + _END_S
    while True:
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_TICK_S)
        else:
            return


def _forget_machine(record: HostRecord) -> None:
    """Remove what a systemd-nspawn that was killed leaves in /run."""
    nspawn = Path("/run/systemd/nspawn")
    system.unmount(nspawn / "unix-export" / record.machine)
    for kind in ("propagate", "unix-export"):
        shutil.rmtree(nspawn / kind / record.machine, ignore_errors=True)
    root_of = HostPaths(record.host).root
    if root_of.is_mount():
        status = root_of.stat()
        (nspawn / "locks" / f"inode-{status.st_dev}:{status.st_ino}").unlink(missing_ok=True)
