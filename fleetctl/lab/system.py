"""The machine that carries the lab: what it must have, its mounts, and running its commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import Exit, FleetError

INSTALL = "apt-get install -y systemd-container openssh-server iproute2 rsync"
_SBIN = os.pathsep.join(("/usr/local/sbin", "/usr/sbin", "/sbin"))
_NEEDED = {
    "systemd-nspawn": "systemd-container",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "rsync": "rsync",
}
_BUSY_S = 2.0
_JOURNALD = ("/usr/lib/systemd/systemd-journald", "/lib/systemd/systemd-journald")


@dataclass(frozen=True)
class Mount:
    """One line of /proc/self/mountinfo."""

    path: str
    device: int
    fstype: str
    options: dict[str, str]


def tool(name: str) -> str | None:
    """The path of a command, the administrator's folders included."""
    path = os.environ.get("PATH", "")
    return shutil.which(name, path=path + os.pathsep + _SBIN if path else _SBIN)


def require() -> None:
    """Refuse a machine that cannot carry a lab, saying what it lacks and what brings it."""
    if os.geteuid() != 0:
        raise FleetError("the lab needs root: it mounts, makes network namespaces and boots systemd")
    missing = [name for name in _NEEDED if shutil.which(name) is None and tool(name) is None]
    if not any(Path(path).exists() for path in _JOURNALD):
        missing.append("systemd-journald")
    if missing:
        packages = sorted({_NEEDED.get(name, "systemd") for name in missing})
        raise FleetError(
            f"not installed here: {', '.join(missing)} (packages: {', '.join(packages)})",
            fix=INSTALL,
        )
    if not Path("/usr/bin/python3").exists():
        raise FleetError(
            "there is no /usr/bin/python3, which the lab's hosts share", fix="apt-get install -y python3"
        )
    if cgroup_root() is None:
        raise FleetError(
            "cgroup v2 is not mounted on this machine",
            where="/proc/self/mountinfo",
            fix="mount it: mount -t cgroup2 cgroup2 /sys/fs/cgroup",
            exit=Exit.PREFLIGHT,
        )


def run(*argv: str, stdin: str | None = None, timeout: float = 60) -> str:
    """Run a command of this machine to its end and return what it printed."""
    try:
        done = subprocess.run(
            [tool(argv[0]) or argv[0], *argv[1:]],
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FleetError(f"no end after {timeout:.0f} s: {' '.join(argv)}", exit=Exit.PREFLIGHT) from error
    if done.returncode:
        raise FleetError(
            f"failed with status {done.returncode}: {' '.join(argv)}",
            evidence=[line for line in (done.stderr + done.stdout).splitlines() if line][-5:],
            exit=Exit.PREFLIGHT,
        )
    return done.stdout


def mounts() -> list[Mount]:
    """The mounts this process sees, in the order they were made."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        fstype, _, options = after.split(" ", 2)
        words = before.split(" ")
        major, _, minor = words[2].partition(":")
        device = os.makedev(int(major), int(minor))
        found.append(Mount(_unescape(words[4]), device, fstype, _options(options)))
    return found


def mounted_below(folder: Path) -> list[Path]:
    """The mount points at or below a folder that can be reached (others may lie hidden under them)."""
    paths = {Path(mount.path) for mount in mounts()}
    return sorted(path for path in paths if path.is_relative_to(folder) and path.is_mount())


def unmount(path: Path) -> None:
    """Take away every mount at a path; one that stays busy is detached."""
    deadline = time.monotonic() + _BUSY_S
    while path.is_mount():
        try:
            run("umount", str(path))
        except FleetError:
            if time.monotonic() > deadline:
                run("umount", "--lazy", str(path))
            time.sleep(0.05)


def cgroup_root() -> Path | None:
    """Where cgroup v2 is mounted."""
    for mount in mounts():
        if mount.fstype == "cgroup2":
            return Path(mount.path)
    return None


def _options(text: str) -> dict[str, str]:
    pairs = (_unescape(part).partition("=") for part in text.split(","))
    return {key: value for key, _, value in pairs}


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)
