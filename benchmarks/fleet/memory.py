"""How much memory and time the controller takes for 25, 50 and 100 hosts.

    python -m benchmarks.fleet.memory [--machines 20] [--json FILE]

Each lab host has five addresses here, and is five hosts with a slot each: to the controller they are 100 connections
and agents. A no-op deploy, and one that starts a service on each, are measured by whole processes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks.fleet.__main__ import timed
from benchmarks.fleet.peers import Tool
from benchmarks.fleet.site import PORT, SERVICE, Site, booted
from fleetctl.lab import hosts as lab
from fleetctl.lab.paths import IDENTITY, KNOWN_HOSTS

EACH = 5
COUNTS = (25, 50, 100)


def main() -> None:
    """Print the figures; exit 1 where a run failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--machines", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, booted(Path(name), args.machines) as site:
        site.describe(site.doors(), "straight")
        names = spread(site)
        for count in [count for count in COUNTS if count <= len(names)]:
            report[str(count)] = {}
            for kind in ("cold", "noop"):
                run = timed(deploy(site, names[:count]), site)
                seen = {"seconds": run.seconds, "cpu_here_s": run.cpu_here_s, "mib": run.mib}
                report[str(count)][kind] = {name: round(value, 2) for name, value in seen.items()}
            print(f"{count} hosts: {report[str(count)]}", flush=True)
            site.freshen()
            clean(site)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")


def spread(site: Site) -> list[str]:
    """Five hosts of each machine, with addresses, slots and ports of their own; their names, machines mixed."""
    folder, known, names = site.folder / "many", site.folder / "many/known_hosts", []
    folder.mkdir()
    keys = {line.split(",")[0]: line.split(maxsplit=1)[1] for line in KNOWN_HOSTS.read_text().splitlines()}
    said = []
    for turn in range(EACH):
        for number, machine in enumerate(site.hosts):
            address = machine.address if not turn else f"198.18.0.{121 + 20 * (turn - 1) + number}"
            lab.run(machine, f"ip addr replace {address}/24 dev eth0")
            name, port = f"{machine.name}-{turn}", PORT + turn
            host = yaml.safe_load((site.folder / f"straight/{machine.name}.yaml").read_text())
            host["host"], host["ssh"]["hostname"], host["ssh"]["known_hosts"] = name, address, str(known)
            host["ssh"]["identity_file"] = str(IDENTITY)
            host["slots"] = {f"slot{turn}": {"gpus": [], "port": port}}
            service = host["services"][SERVICE]
            service["slot"], service["unit"] = f"slot{turn}", f"fleet-bench-{turn}.service"
            service["env"] = {"KNOBS": f'{{"port": {port}, "model": "m"}}'}
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(host))
            said.append(f"{address} {keys[machine.name]}\n")
            names.append(name)
    known.write_text("".join(said))
    return names


def clean(site: Site) -> None:
    """Stop what was started on the hosts."""
    for machine in site.hosts:
        lab.run(
            machine,
            "systemctl disable --now --quiet fleet-bench-{0,1,2,3,4}.service; rm -f /etc/systemd/system/fleet-*",
        )


def deploy(site: Site, names: list[str]) -> Tool:
    """fleetctl on these hosts."""
    command = [sys.executable, "-m", "fleetctl", "deploy", *names, "--service", SERVICE]
    environment = {"FLEETCTL_FLEET": str(site.folder), "FLEETCTL_INVENTORY": "many"}
    return Tool("fleetctl", command, Path.cwd(), environment)


if __name__ == "__main__":
    main()
