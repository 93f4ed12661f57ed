"""An environment from one lab host to another: through the controller, beside rsync and scp straight between them.

    fleetctl lab up && FLEETCTL_INVENTORY=inventories/lab python -m benchmarks.env_transfer [--runs 5] [--json FILE]

The tree is made on the source: 400 MB in 13,000 files, most of them small. ``first`` is its first copy. ``change``
is the copy of the same tree with one package changed (50 files, 5 MB) into the older copy; ``beside`` leaves the
older copy as it is and makes the new one from it (``--link-dest``), which is what fleetctl does, since an
environment is never changed. ``package`` brings that package's files alone. The peers get for the time of the run
what fleetctl does without: a key of the source on the destination. Runs are interleaved; figures are medians of
seconds, and ratios are medians of the ratio to ``rsync`` in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from fleetctl.inventory.loader import load_fleet
from fleetctl.inventory.models import Host
from fleetctl.lab.paths import HostPaths
from fleetctl.transport.relay import relay
from fleetctl.transport.settings import resolve

SOURCE, DESTINATION = "ct129", "ct200"
BASE = "/var/lib/fleetctl/transfer"
OLD, NEW = f"{BASE}/old", f"{BASE}/new"
FILES, BYTES = 13_000, 400_000_000
PACKAGE, PACKAGE_FILES, PACKAGE_FILE_BYTES = "changed", 50, 100_000
KEY = "/root/.ssh/benchmark"
MARKS = {"first": 1.1, "change": 1.5, "beside": 1.5, "package": 1.5}
Copy = Callable[[str, str], object]


class Bench:
    """The two hosts, the tree on the source, and ways to copy it."""

    def __init__(self) -> None:
        hosts = load_fleet().hosts
        self.source, self.destination = hosts[SOURCE], hosts[DESTINATION]
        address = self.source.ssh.hostname
        self.ssh = f"ssh -i {KEY} -o UserKnownHostsFile={KEY}.known -o BatchMode=yes"
        self.peer = f"root@{address}"

    def prepare(self) -> None:
        """The trees, and the peers' key."""
        make_tree(HostPaths(SOURCE).state / "transfer/old")
        self.on(self.source, f"cp -al {OLD} {NEW} && rm -rf {NEW}/{PACKAGE}")
        make_package(HostPaths(SOURCE).state / "transfer/new" / PACKAGE)
        ssh = self.destination.ssh
        for text, path in (
            (Path(str(ssh.identity_file)).read_bytes(), KEY),
            (Path(str(ssh.known_hosts)).read_bytes(), f"{KEY}.known"),
        ):
            self.on(self.destination, f"umask 077 && cat >{path}", text)

    def tidy(self) -> None:
        """Take all of it away."""
        self.on(self.source, f"rm -rf {BASE}")
        self.on(self.destination, f"rm -rf {BASE} {KEY} {KEY}.known")

    def on(self, host: Host, command: str, stdin: bytes = b"") -> None:
        """Run a command on a host."""
        subprocess.run(
            [*resolve(host).openssh(), host.name, command], input=stdin, check=True, capture_output=True
        )

    def rsync(self, source: str, target: str, *options: str) -> None:
        """rsync on the destination, straight from the source."""
        words = ["rsync", "-a", *options, "-e", self.ssh, f"{self.peer}:{source}/", f"{target}/"]
        self.on(self.destination, f"mkdir -p {target} && {shlex.join(words)}")

    def scp(self, source: str, target: str) -> None:
        """scp on the destination, straight from the source."""
        options = self.ssh.removeprefix("ssh ")
        self.on(self.destination, f"mkdir -p {BASE} && scp -qpr {options} {self.peer}:{source} {target}")

    def scp3(self, source: str, target: str) -> None:
        """scp here, through this machine."""
        self.on(self.destination, f"mkdir -p {BASE}")
        options = resolve(self.source).openssh("scp")
        options = [word for word in options if not word.startswith("HostName=")]
        options = [
            word
            for at, word in enumerate(options)
            if not (word == "-o" and options[at + 1 :][:1] in ([], ["-o"]))
        ]
        ends = [
            f"root@{host.ssh.hostname}:{path}"
            for host, path in ((self.source, source), (self.destination, target))
        ]
        subprocess.run([*options, "-3", "-q", "-p", "-r", *ends], check=True, stdin=subprocess.DEVNULL)

    def relay(self, source: str, target: str, **options: object) -> None:
        """fleetctl's way."""
        relay(self.source, self.destination, source, target, **options)  # type: ignore[arg-type]


def make_tree(root: Path) -> None:
    """Files of log-normal sizes and a few big ones, half text and half noise; the same each time but the noise."""
    chance = random.Random(1)
    sizes = [chance.lognormvariate(8.5, 1.6) for _ in range(FILES - PACKAGE_FILES)]
    sizes[:: len(sizes) // 20] = [8_000_000.0] * len(sizes[:: len(sizes) // 20])
    scale = (BYTES - PACKAGE_FILES * PACKAGE_FILE_BYTES) / sum(sizes)
    noise = os.urandom(1 << 22)
    text = b"".join(
        b"def call_%d(self):\n    return %d\n" % (n, chance.randrange(n + 1)) for n in range(90_000)
    )
    for number, size in enumerate(sizes):
        folder = root / f"lib/python3.12/site-packages/package{number // 52}/part{number % 6}"
        folder.mkdir(parents=True, exist_ok=True)
        pool, left = (noise if number % 2 else text), int(size * scale)
        with (folder / f"module{number}.py").open("wb") as file:
            while left > 0:
                start = chance.randrange(len(pool) // 2)
                left -= file.write(pool[start : start + left])
    make_package(root / PACKAGE)


def make_package(folder: Path) -> None:
    """The package that changes, with content of its own."""
    folder.mkdir()
    for number in range(PACKAGE_FILES):
        (folder / f"{number}.so").write_bytes(os.urandom(PACKAGE_FILE_BYTES))


def rounds(bench: Bench, runs: int, slow_runs: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each way in each case; scp, which takes much longer, runs ``slow_runs`` times."""
    here, package = f"{BASE}/here", [f"{PACKAGE}/{number}.so" for number in range(PACKAGE_FILES)]
    fresh = f"rm -rf {here}"
    older = f"rm -rf {here}/{PACKAGE} && cp -a {OLD}/{PACKAGE} {here}/{PACKAGE}"
    cases: dict[str, tuple[str, dict[str, Callable[[], None]]]] = {
        "first": (
            fresh,
            {
                "rsync": lambda: bench.rsync(OLD, here),
                "relay": lambda: bench.relay(OLD, here),
                "scp": lambda: bench.scp(OLD, here),
                "scp -3": lambda: bench.scp3(OLD, here),
            },
        ),
        "change": (
            older,
            {"rsync": lambda: bench.rsync(NEW, here), "relay": lambda: bench.relay(NEW, here)},
        ),
        "beside": (
            fresh,
            {
                "rsync": lambda: bench.rsync(NEW, here, f"--link-dest={OLD}"),
                "relay": lambda: bench.relay(NEW, here, references=[OLD]),
            },
        ),
        "package": (
            fresh,
            {
                "rsync": lambda: bench.rsync(f"{NEW}/{PACKAGE}", f"{here}/{PACKAGE}"),
                "relay": lambda: bench.relay(NEW, here, files=package),
            },
        ),
    }
    seconds: dict[str, dict[str, list[float]]] = {}
    for case, (before, ways) in cases.items():
        if case == "change":
            bench.rsync(OLD, OLD)
            bench.on(bench.destination, f"rm -rf {here} && cp -a {OLD} {here}")
        for run in range(runs):
            for name, way in ways.items():
                if name.startswith("scp") and run >= slow_runs:
                    continue
                bench.on(bench.destination, f"{before} && sync -f /var/lib/fleetctl")
                begin = time.perf_counter()
                way()
                seconds.setdefault(case, {}).setdefault(name, []).append(time.perf_counter() - begin)
    return seconds


def report(seconds: dict[str, dict[str, list[float]]]) -> dict[str, object]:
    """Medians, extremes, and ratios to rsync in the same round."""
    return {
        case: {
            name: {
                "median_s": statistics.median(taken),
                "min_s": min(taken),
                "max_s": max(taken),
                "of_rsync": statistics.median(t / r for t, r in zip(taken, ways["rsync"], strict=False)),
                **({"mark": MARKS[case]} if name == "relay" else {}),
            }
            for name, taken in ways.items()
        }
        for case, ways in seconds.items()
    }


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scp-runs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    bench = Bench()
    bench.tidy()
    try:
        bench.prepare()
        result = report(rounds(bench, arguments.runs, arguments.scp_runs))
    finally:
        bench.tidy()
    for case, ways in result.items():
        for name, row in ways.items():  # type: ignore[attr-defined]
            mark = f", at most {row['mark']}" if "mark" in row else ""
            print(
                f"{case:8} {name:7} {row['median_s']:7.2f} s ({row['min_s']:.2f} to {row['max_s']:.2f}), "
                f"{row['of_rsync']:.2f} of rsync{mark}"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps({"runs": arguments.runs, **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
