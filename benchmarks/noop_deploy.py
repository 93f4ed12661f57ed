"""A deploy that changes nothing, on two hosts: fleetctl beside pyinfra and ansible with the same unit.

    python -m benchmarks.noop_deploy --peers VENV [--runs 7] [--json FILE]

``VENV`` holds ``pyinfra==3.10.*`` and ``ansible-core==2.19.*`` (an environment of their own, since neither is needed
by fleetctl). The lab must be up and ``--service`` deployed on both hosts. Each peer does what a deploy tool does
there: the unit's file as wanted, the unit enabled and running. ``floor`` is what no tool built of fleetctl's
libraries can be quicker than: it imports them, connects to both hosts at once, runs ``python3 -c pass`` there, and
ends. Runs are interleaved; figures are medians of whole-process seconds, and ratios within this run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fleetctl.inventory.loader import load_fleet
from fleetctl.inventory.models import Host

HOSTS = ("ct200", "ct129")
FLOOR = """
import sys, threading
import jinja2, paramiko, pydantic, typer, yaml

def ask(address, user, key, known_hosts):
    client = paramiko.SSHClient()
    client.load_host_keys(known_hosts)
    client.connect(address, username=user, key_filename=key, look_for_keys=False, allow_agent=False)
    ended = client.exec_command("python3 -c pass")[1].channel.recv_exit_status()
    client.close()
    if ended:
        raise SystemExit(f"{address}: python3 ended with {ended}")

threads = [threading.Thread(target=ask, args=host.split(",")) for host in sys.argv[1:]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def main() -> None:
    """Print the table; exit 1 where a peer's run was not a no-op."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, required=True, help="venv with pyinfra and ansible-core")
    parser.add_argument("--service", default="dflash")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    fleet = load_fleet()
    hosts = [fleet.hosts[name] for name in HOSTS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unit = hosts[0].services[args.service].unit
        for host in hosts:
            ask = [*_ssh(host), f"cat /etc/systemd/system/{unit}"]
            text = subprocess.run(ask, check=True, capture_output=True).stdout
            (folder / f"{host.ssh.hostname}.service").write_bytes(text)
        commands = {
            "fleetctl": [sys.executable, "-m", "fleetctl", "deploy", *HOSTS, "--service", args.service],
            "pyinfra": _pyinfra(args.peers, folder, hosts, unit),
            "ansible": _ansible(args.peers, folder, hosts, unit),
            "floor": _floor(hosts),
        }
        seconds = _interleaved(commands, args.runs, folder)
    report = {
        name: {
            "median_s": statistics.median(taken),
            "min_s": min(taken),
            "max_s": max(taken),
            "fleetctl_ratio": statistics.median(
                f / t for f, t in zip(seconds["fleetctl"], taken, strict=True)
            ),
        }
        for name, taken in seconds.items()
    }
    for name, row in report.items():
        print(
            f"{name:10} {row['median_s']:7.3f} s ({row['min_s']:.3f} to {row['max_s']:.3f}), "
            f"fleetctl takes {row['fleetctl_ratio']:.3f} of it"
        )
    if args.json:
        args.json.write_text(
            json.dumps({"runs": args.runs, "service": args.service, **report}, indent=1) + "\n"
        )


def _interleaved(commands: dict[str, list[str]], runs: int, folder: Path) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for run in range(runs + 1):
        for name, command in commands.items():
            started = time.perf_counter()
            where = None if name == "fleetctl" else folder
            done = subprocess.run(command, capture_output=True, text=True, cwd=where, timeout=120)
            took = time.perf_counter() - started
            if done.returncode:
                sys.exit(f"{name}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
            if run:
                seconds[name].append(took)
            elif name == "ansible" and "changed=0" not in done.stdout:
                sys.exit(f"ansible's first run changed something; run again\n{done.stdout}")
    return seconds


def _ssh(host: Host) -> list[str]:
    ssh = host.ssh
    return [
        *("ssh", "-o", "BatchMode=yes", "-i", str(ssh.identity_file)),
        *("-o", f"UserKnownHostsFile={ssh.known_hosts}", f"{ssh.user}@{ssh.hostname}"),
    ]


def _floor(hosts: list[Host]) -> list[str]:
    places = [(h.ssh.hostname, h.ssh.user, h.ssh.identity_file, h.ssh.known_hosts) for h in hosts]
    return [sys.executable, "-c", FLOOR, *(",".join(map(str, place)) for place in places)]


def _pyinfra(peers: Path, folder: Path, hosts: list[Host], unit: str) -> list[str]:
    rows = [
        (host.ssh.hostname, {"ssh_user": host.ssh.user, "ssh_key": host.ssh.identity_file,
                             "ssh_known_hosts_file": host.ssh.known_hosts})
        for host in hosts
    ]  # fmt: skip
    (folder / "hosts.py").write_text(f"hosts = {rows!r}\n")
    (folder / "deploy.py").write_text(
        "from pyinfra import host\nfrom pyinfra.operations import files, systemd\n"
        f"unit = files.put(src=f'{{host.name}}.service', dest='/etc/systemd/system/{unit}', mode='644')\n"
        f"systemd.service(service={unit!r}, running=True, enabled=True)\n"
    )
    return [str(peers / "bin/pyinfra"), "-y", "hosts.py", "deploy.py"]


def _ansible(peers: Path, folder: Path, hosts: list[Host], unit: str) -> list[str]:
    lines = [
        f"{host.name} ansible_host={host.ssh.hostname} ansible_user={host.ssh.user} "
        f"ansible_ssh_private_key_file={host.ssh.identity_file} ansible_python_interpreter=/usr/bin/python3 "
        f"ansible_ssh_common_args='-o UserKnownHostsFile={host.ssh.known_hosts}'"
        for host in hosts
    ]
    (folder / "hosts.ini").write_text("[all]\n" + "\n".join(lines) + "\n")
    play = [
        {
            "hosts": "all",
            "gather_facts": False,
            "tasks": [
                {
                    "ansible.builtin.copy": {
                        "src": "{{ ansible_host }}.service",
                        "dest": f"/etc/systemd/system/{unit}",
                        "mode": "0644",
                    }
                },
                {"ansible.builtin.systemd_service": {"name": unit, "state": "started", "enabled": True}},
            ],
        }
    ]
    (folder / "play.yml").write_text(json.dumps(play))
    (folder / "ansible.cfg").write_text("[ssh_connection]\npipelining = True\n")
    return [str(peers / "bin/ansible-playbook"), "-i", "hosts.ini", "play.yml"]


if __name__ == "__main__":
    main()
