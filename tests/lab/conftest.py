"""A private place for tests that bring a lab up and down: its own mounts, network and lab folder."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
_ENTER = """\
umount --recursive --lazy /var/lib/fleetctl-lab 2>/dev/null; umount --recursive --lazy /run/netns 2>/dev/null
ip link set lo up && mkdir -p /var/lib/fleetctl-lab &&
mount -t tmpfs tmpfs /run && mount --bind "$0" /var/lib/fleetctl-lab &&
echo ready && exec sleep infinity
"""


class Place:
    """Mount and network namespaces in which a whole lab can come and go unseen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", _ENTER, str(folder)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"

    def run(
        self, *argv: str, env: dict[str, str] | None = None, timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in this place, from the repository's root."""
        enter = ["nsenter", "--mount", "--net", f"--wd={REPOSITORY}", "--target", str(self._holder.pid)]
        return subprocess.run(
            [*enter, *argv], capture_output=True, text=True, timeout=timeout, check=False, env=env
        )

    def lab(self, *words: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        """Run ``fleetctl lab WORDS…``."""
        done = self.run(sys.executable, "-m", "fleetctl", "lab", *words)
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    def python(self, code: str) -> subprocess.CompletedProcess[str]:
        """Run Python code in this place."""
        return self.run(sys.executable, "-c", code)

    def seen(self) -> dict[str, list[str]]:
        """What a lab could leave here: mounts, links, files in /run (network namespaces among them)."""
        mounts = [
            line.split(" ", 4)[4] for line in self.run("cat", "/proc/self/mountinfo").stdout.splitlines()
        ]
        links = [link["ifname"] for link in json.loads(self.run("ip", "-json", "link").stdout)]
        files = self.run("find", "/run", "-type", "f", "-o", "-name", "*ct*").stdout.splitlines()
        return {"mounts": mounts, "links": links, "files": files}

    def machines(self) -> list[str]:
        """The names of the cgroups that the recorded hosts of this place live in."""
        records = (json.loads(file.read_text()) for file in self.folder.glob("*/record.json"))
        return [str(record["machine"]) for record in records]

    def close(self) -> None:
        """End what is still here; not by way of the command line, which a test may have found broken."""
        machines = self.machines()
        done = self.python("from fleetctl.lab import hosts; hosts.down()")
        self._holder.kill()
        self._holder.wait()
        assert ended(machines), f"hosts of this place outlive it: {machines}\n{done.stderr}"


def processes_of(machines: list[str]) -> list[str]:
    """The processes that run for these hosts, by cgroup or by command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "cgroup").read_text() + (process / "cmdline").read_text()
        except OSError:
            continue
        if any(machine in text for machine in machines):
            found.append(f"{process.name}: {text}")
    return found


def ended(machines: list[str]) -> bool:
    """Whether no process of these hosts is left; init may take a moment to reap the last ones."""
    deadline = time.monotonic() + 30
    while processes_of(machines):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def folders_of(machines: list[str]) -> list[Path]:
    """The folders that these hosts left in the cgroup hierarchies."""
    roots = [
        Path(line.split()[1])
        for line in Path("/proc/mounts").read_text().splitlines()
        if re.match(r"\S+ \S+ cgroup2? ", line)
    ]
    return [root / machine for root in roots for machine in machines if (root / machine).exists()]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A private place, empty."""
    place = Place(tmp_path)
    yield place
    place.close()
