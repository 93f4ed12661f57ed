"""What reaching a host costs, against OpenSSH's own ``ssh HOST true`` in the same run.

    fleetctl lab up && FLEETCTL_INVENTORY=inventories/lab python benchmarks/transport.py ct200

Prints the medians and their ratios to ``ssh HOST true``; with ``--json`` one document.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fleetctl.inventory.loader import load_fleet
from fleetctl.inventory.models import Host
from fleetctl.inventory.select import select_host
from fleetctl.rollout.status import facts_arguments
from fleetctl.transport.agent import open_agent
from fleetctl.transport.connection import connect
from fleetctl.transport.settings import resolve

ROUNDTRIPS = 500
Times = dict[str, list[float]]


@contextmanager
def timed(times: Times, name: str, share: int = 1) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    times.setdefault(name, []).append((time.perf_counter() - begin) / share)


def measure(host: Host, runs: int) -> Times:
    """Seconds of each step, ``runs`` times each, the steps in turn so that load falls on all of them."""
    times: Times = {}
    facts = facts_arguments(host)
    with open_agent(host):
        pass
    for _ in range(runs):
        settings = resolve(host)
        with timed(times, "ssh HOST true"):
            subprocess.run([*settings.openssh(), host.name, "true"], check=True, stdin=subprocess.DEVNULL)
        with timed(times, "connect"), connect(settings):
            pass
        with timed(times, "connect to hello"):
            opened = open_agent(host)
            agent = opened.__enter__()
        with timed(times, "first facts, without gpus"):
            agent.call("facts", **facts)
        with timed(times, "facts again, without gpus"):
            agent.call("facts", **facts)
        with timed(times, "facts with gpus"):
            agent.call("facts", **{**facts, "gpus": True})
        with timed(times, "message there and back", ROUNDTRIPS):
            for _ in range(ROUNDTRIPS):
                agent.call("history", limit=0)
        with timed(times, "close"):
            opened.__exit__(None, None, None)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("host", nargs="?")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    times = measure(select_host(load_fleet(), arguments.host), arguments.runs)
    medians = {name: statistics.median(values) for name, values in times.items()}
    base = medians["ssh HOST true"]
    if arguments.json:
        steps = {name: {"seconds": value, "of_ssh_true": value / base} for name, value in medians.items()}
        print(json.dumps({"runs": arguments.runs, "steps": steps}, indent=2))
        return
    for name, value in medians.items():
        print(f"{name:28} {1000 * value:9.2f} ms  {value / base:7.3f} × ssh HOST true")


if __name__ == "__main__":
    main()
