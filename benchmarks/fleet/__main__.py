"""A unit deployed to many hosts at once, cold and as a no-op: fleetctl beside other tools.

    python -m benchmarks.fleet [--hosts 20] [--runs 3] [--peers VENV] [--only NAME,...] [--delay-ms 20] [--json FILE]

Boots lab hosts of its own (root) and takes them down at the end. ``VENV`` holds ``pyinfra==3.10.*``,
``ansible-core==2.19.*`` and, where wanted, ``mitogen``. Every tool starts from the same bare hosts, and the end state
is checked by one script: the file's digest and rights, enabled, active, read by systemd, and a generation. Runs are
interleaved; figures are medians of whole-process seconds. With ``--delay-ms`` everything again through a proxy that
holds each byte back so long each way. fleetctl alone proves the service by a generation before it says that it is done.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fleet.peers import Tool, tools
from benchmarks.fleet.site import Door, Site, booted

FIRST_PORT = 42001
KINDS = ("cold", "noop")


def main() -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--only", help="names of tools, by commas")
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--no-straight", action="store_true", help="only through the delaying proxy")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    report: dict[str, Any] = {
        "hosts": args.hosts,
        "runs": args.runs,
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
    }
    with tempfile.TemporaryDirectory() as name, booted(Path(name), args.hosts) as site:
        only = args.only.split(",") if args.only else None
        if not args.no_straight:
            report["straight"] = compare(site, site.doors(), "straight", args, only)
        if args.delay_ms:
            with delayed(site.doors(), args.delay_ms / 1000) as doors:
                report[f"delay_{args.delay_ms:g}_ms"] = compare(site, doors, "delayed", args, only)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")


def compare(
    site: Site, doors: Sequence[Door], where: str, args: argparse.Namespace, only: list[str] | None
) -> dict[str, Any]:
    """Each tool's figures, cold and as a no-op."""
    unit = site.unit_text(site.describe(doors, where))
    chosen = [one for one in tools(site, doors, where, args.peers, unit) if only is None or one.name in only]
    taken: dict[str, list[dict[str, Run]]] = {one.name: [] for one in chosen}
    for _ in range(args.runs):
        for tool in [one for one in chosen if one.name in taken]:
            site.freshen()
            runs = {}
            try:
                for kind in KINDS:
                    runs[kind] = timed(tool, site)
                    site.check(unit)
            except Failed as failed:
                if tool.name == "fleetctl":
                    raise
                print(f"  {where} {tool.name} is left out: {failed}", flush=True)
                del taken[tool.name]
                continue
            taken[tool.name].append(runs)
            said = "; ".join(
                f"{kind} {run.seconds:.2f} s, {run.cpu_s:.1f} s of CPU" for kind, run in runs.items()
            )
            print(f"  {where} {tool.name}: {said}", flush=True)
    return {name: _figures(taken, name) for name in taken}


class Failed(Exception):
    """A tool did not do what it was told."""


@dataclass(frozen=True)
class Run:
    """One run: seconds, seconds of processor time here and on all hosts, and the most memory (MiB) of a process."""

    seconds: float
    cpu_here_s: float
    cpu_hosts_s: float
    mib: float

    @property
    def cpu_s(self) -> float:
        """Here and there: what decides where few cores carry all hosts."""
        return self.cpu_here_s + self.cpu_hosts_s


def timed(tool: Tool, site: Site) -> Run:
    """Run a tool to its end; :class:`Failed` where its exit status is not 0."""
    before, begin = site.cpu_s(), time.monotonic()
    process = subprocess.Popen(
        tool.command,
        cwd=tool.folder,
        env={**os.environ, **tool.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Failed(f"{tool.name}: exit {process.returncode}\n{said[-2000:]}")
    return Run(took, usage.ru_utime + usage.ru_stime, site.cpu_s() - before, usage.ru_maxrss / 1024)


@contextmanager
def delayed(doors: Sequence[Door], delay: float) -> Iterator[list[Door]]:
    """The hosts behind the delaying proxy."""
    near = [Door(door.name, "127.0.0.1", FIRST_PORT + number) for number, door in enumerate(doors)]
    pairs = [f"{here.port}={there.address}:{there.port}" for here, there in zip(near, doors, strict=True)]
    command = [sys.executable, "-m", "benchmarks.fleet.delay", str(delay), *pairs]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None and proxy.stdout.readline() == "ready\n"
        try:
            yield near
        finally:
            proxy.kill()


def _figures(taken: dict[str, list[dict[str, Run]]], name: str) -> dict[str, Any]:
    own = taken[name]
    figures: dict[str, Any] = {"mib": round(max(runs["cold"].mib for runs in own), 1)}
    for kind in KINDS:
        seconds = [runs[kind].seconds for runs in own]
        figures[kind] = {
            "median_s": round(statistics.median(seconds), 3),
            "min_s": round(min(seconds), 3),
            "max_s": round(max(seconds), 3),
            "cpu_here_s": round(statistics.median(runs[kind].cpu_here_s for runs in own), 3),
            "cpu_hosts_s": round(statistics.median(runs[kind].cpu_hosts_s for runs in own), 3),
        }
        for figure, of in (("fleetctl_ratio", "seconds"), ("fleetctl_cpu_ratio", "cpu_s")):
            pairs = zip(taken["fleetctl"], own, strict=False) if "fleetctl" in taken else ()
            ratios = [getattr(ours[kind], of) / getattr(theirs[kind], of) for ours, theirs in pairs]
            figures[kind] |= {figure: round(statistics.median(ratios), 3)} if ratios else {}
    return figures


if __name__ == "__main__":
    main()
