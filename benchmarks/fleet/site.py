"""Lab hosts of the benchmark's own, the fleet folder that describes them, and their state before and after a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from fleetctl.inventory.loader import Fleet, load_fleet
from fleetctl.lab import hosts as lab
from fleetctl.lab import inventory, record, system
from fleetctl.lab.inventory import LabHost
from fleetctl.lab.paths import IDENTITY, KNOWN_HOSTS, HostPaths
from fleetctl.services.target import build_target

SERVICE = "standin"
UNIT = "fleet-bench.service"
PORT = 30001
STANDIN = Path(__file__).parents[2] / "tests/rollout_host/standin.py"
TEMPLATE = """[Unit]
Description={{ service }}

[Service]
ExecStart=/usr/bin/python3 -I -S /usr/local/lib/standin.py {{ variables["KNOBS"] | word }}
TimeoutStopSec=4

[Install]
WantedBy=multi-user.target
"""
WATCHERS = Path("/proc/sys/fs/inotify/max_user_instances")
FRESH = f"""
systemctl disable --now --quiet {UNIT} 2>/dev/null
rm -rf /etc/systemd/system/{UNIT} /var/lib/fleetctl/* /tmp/.ansible* /root/.ansible /tmp/pyinfra* /run/fleetctl
systemctl daemon-reload; systemctl reset-failed
"""
STATE = f"""
for turn in $(seq 100); do
  answer=$(curl -s -m 5 -d '{{"prompt": "x", "max_tokens": 2}}' 127.0.0.1:{PORT}/v1/completions) && break; sleep 0.1
done
echo "$(sha256sum < /etc/systemd/system/{UNIT} | cut -c -64) $(stat -c %a:%U /etc/systemd/system/{UNIT})" \
  "$(systemctl is-active {UNIT}) $(systemctl is-enabled {UNIT}) $(systemctl show -P NeedDaemonReload {UNIT})" "$answer"
"""


@dataclass(frozen=True)
class Door:
    """How a host is reached: straight, or through the delaying proxy."""

    name: str
    address: str
    port: int


@dataclass(frozen=True)
class Site:
    """The hosts, up, and the folder with their inventory."""

    folder: Path
    hosts: Sequence[LabHost]

    def doors(self) -> list[Door]:
        """The hosts' own addresses."""
        return [Door(host.name, host.address, 22) for host in self.hosts]

    def describe(self, doors: Sequence[Door], where: str) -> Fleet:
        """Write the inventory folder ``where`` of hosts behind these doors; the fleet it makes."""
        folder = self.folder / where
        folder.mkdir(parents=True, exist_ok=True)
        known = folder / "known_hosts"
        lines = KNOWN_HOSTS.read_text().splitlines()
        keys = {names.partition(",")[0]: key for names, _, key in (line.partition(" ") for line in lines)}
        said = [f"{_known_name(door)} {keys[door.name]}\n" for door in doors]
        known.write_text("".join(said))
        for door in doors:
            (folder / f"{door.name}.yaml").write_text(yaml.safe_dump(_host(door, known), sort_keys=False))
        return load_fleet(self.folder, where)

    def unit_text(self, fleet: Fleet) -> str:
        """The unit that every tool is to put there."""
        host = next(iter(fleet.hosts.values()))
        text = build_target(fleet, host, SERVICE, "/opt/bench", "").unit_text
        assert text is not None
        return text

    def freshen(self) -> None:
        """Take away all that any tool left on the hosts."""
        self._on_all(FRESH)

    def check(self, text: str) -> None:
        """The unit is there as wanted, enabled, active, and its service generates; on every host."""
        wanted = f"{sha256(text.encode()).hexdigest()} 644:root active enabled no"
        for name, said in self._on_all(STATE).items():
            if not said.startswith(wanted) or '"completion_tokens": 2' not in said:
                sys.exit(f"{name} is not as wanted: {said!r}, not {wanted!r}")

    def cpu_s(self) -> float:
        """Seconds of processor time that all hosts together have taken since they booted."""
        top = system.cgroup_root()
        assert top is not None
        total = 0.0
        for host in self.hosts:
            known = record.host_record(host.name)
            assert known is not None
            total += int((top / known.machine / "cpu.stat").read_text().split()[1]) / 1e6
        return total

    def _on_all(self, command: str) -> dict[str, str]:
        with ThreadPoolExecutor(4) as pool:
            done = pool.map(lambda host: lab.run(host, command, 60), self.hosts)
            return {host.name: one.stdout.strip() for host, one in zip(self.hosts, done, strict=True)}


@contextmanager
def booted(folder: Path, count: int) -> Iterator[Site]:
    """``count`` lab hosts without GPUs, with the stand-in and an empty venv, bare of any tool; down at the end."""
    written = folder / "lab"
    written.mkdir(parents=True)
    (folder / "templates/systemd").mkdir(parents=True)
    (folder / "templates/systemd/standin.service.j2").write_text(TEMPLATE)
    for number in range(count):
        door = Door(f"box{number + 1:03}", f"198.18.0.{101 + number}", 22)
        (written / f"{door.name}.yaml").write_text(yaml.safe_dump(_host(door, KNOWN_HOSTS)))
    made = inventory.load(written)
    inotify = WATCHERS.read_text()
    try:
        WATCHERS.write_text(str(max(int(inotify), 16 * count)))
        lab.up(made, lambda line: None)
        for host in made:
            local = HostPaths(host.name).root / "usr/local"
            (local / "lib/standin.py").write_bytes(STANDIN.read_bytes())
            (local / "bin/nvidia-smi").unlink()
        site = Site(folder, made)
        site._on_all("/usr/bin/python3 -m venv --without-pip /opt/bench")
        time.sleep(2)
        yield site
    finally:
        lab.down(lambda line: None)
        WATCHERS.write_text(inotify)


def _known_name(door: Door) -> str:
    return door.address if door.port == 22 else f"[{door.address}]:{door.port}"


def _host(door: Door, known_hosts: Path) -> dict[str, Any]:
    return {
        "host": door.name,
        "ssh": {
            "hostname": door.address,
            "port": door.port,
            "user": "root",
            "identity_file": str(IDENTITY),
            "known_hosts": str(known_hosts),
        },
        "gpus": {"count": 0},
        "slots": {"native": {"gpus": [], "port": PORT}},
        "environments": {"bench": {"path": "/opt/bench"}},
        "models": {"m": {"path": "/etc/hostname"}},
        "services": {
            SERVICE: {
                "slot": "native",
                "engine": "standalone",
                "mode": "autoregressive",
                "environment": "bench",
                "model": "m",
                "unit": UNIT,
                "template": "standin.service.j2",
                "env": {"KNOBS": f'{{"port": {PORT}, "model": "m"}}'},
                "probe": {"prompt": "one", "max_tokens": 8},
                "deadlines": {"drain": 5, "stop": 10, "free": 10, "ready": 60, "generate": 20},
            }
        },
    }
