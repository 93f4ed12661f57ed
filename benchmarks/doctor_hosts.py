"""``fleetctl doctor`` of one host and of twenty at once, in the lab.

    python -m benchmarks.doctor_hosts [--hosts 20] [--runs 5] [--json FILE]

Boots lab hosts of its own (198.18.0.101 and on; root), each with 8 GPUs on paper, the tests' stand-in stack as its
environment and two services, and takes them down at the end. Figures are medians of whole-process seconds; the first
run, which sends the agent, is told apart.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from fleetctl.lab import hosts as lab
from fleetctl.lab import inventory
from fleetctl.lab.paths import IDENTITY, KNOWN_HOSTS, HostPaths
from tests.standins.stack import archive, reference

VENV = "/root/ml-env"
UNPACK = (
    f"/usr/bin/python3 -m venv --without-pip {VENV} && "
    f"/usr/bin/python3 -m zipfile -e /var/lib/fleetctl/stack.zip $(echo {VENV}/lib/python3.*/site-packages)"
)


def main() -> None:
    """Print the figures; exit 1 where a host could not be looked at."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = [f"box{number:02d}" for number in range(1, args.hosts + 1)]
        with booted(folder, names):
            report = {
                "hosts": len(names),
                "first_s": round(timed(folder, names), 3),
                "one_host": figures([timed(folder, names[:1]) for _ in range(args.runs)]),
                "all_hosts": figures([timed(folder, names) for _ in range(args.runs)]),
            }
    print(json.dumps(report, indent=1))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")


@contextmanager
def booted(folder: Path, names: list[str]) -> Iterator[None]:
    """The hosts of a fleet folder, up, with their environment; down at the end."""
    written = folder / "inventories" / "lab"
    written.mkdir(parents=True)
    for number, name in enumerate(names):
        (written / f"{name}.yaml").write_text(yaml.safe_dump(host(name, f"198.18.0.{101 + number}")))
    made = inventory.load(written)
    packed = archive(reference(), folder / "wheels")
    try:
        lab.up(made, lambda line: None)
        for one in made:
            (HostPaths(one.name).state / "stack.zip").write_bytes(packed)
            done = lab.run(one, UNPACK, 60)
            if done.returncode:
                sys.exit(f"{one.name}: {done.stderr}")
        yield
    finally:
        lab.down(lambda line: None)


def host(name: str, address: str) -> dict[str, Any]:
    """A host's inventory."""
    service = {"slot": "native", "engine": "sglang", "environment": "ml", "model": "m"}
    return {
        "host": name,
        "ssh": {
            "hostname": address,
            "user": "root",
            "identity_file": str(IDENTITY),
            "known_hosts": str(KNOWN_HOSTS),
        },
        "gpus": {"count": 8},
        "slots": {"native": {"gpus": [0], "port": 30001}},
        "environments": {"ml": {"path": VENV}},
        "models": {"m": {"path": "/dev/shm/model"}},
        "services": {
            "plain": {**service, "mode": "autoregressive"},
            "eagle": {**service, "mode": "autoregressive", "args": {"speculative-algorithm": "NGRAM"}},
        },
    }


def timed(folder: Path, names: list[str]) -> float:
    """Seconds of one run over these hosts; every one of them must have been looked at."""
    env = {**os.environ, "FLEETCTL_FLEET": str(folder), "FLEETCTL_INVENTORY": "inventories/lab"}
    begin = time.monotonic()
    command = [sys.executable, "-m", "fleetctl", "doctor", *names, "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    took = time.monotonic() - begin
    found = json.loads(done.stdout)["hosts"]
    failed = [one for one in found if one["error"] or len(one["examined"]) != 2]
    if failed or len(found) != len(names):
        sys.exit(f"exit {done.returncode}: {failed}\n{done.stderr}")
    return took


def figures(taken: list[float]) -> dict[str, float]:
    """Median and extremes."""
    return {
        "median_s": round(statistics.median(taken), 3),
        "min_s": round(min(taken), 3),
        "max_s": round(max(taken), 3),
    }


if __name__ == "__main__":
    main()
