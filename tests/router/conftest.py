"""A fleet folder whose services are stand-ins, deployed with the real command line to the lab's hosts."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.lab.paths import HostPaths
from tests import warm
from tests.conftest import Lab
from tests.warm import Command

STANDIN = Path(__file__).with_name("standin.py")
TEMPLATES = Path(__file__).parents[2] / "templates/systemd"
VENV = "/var/lib/fleetctl/router-venv"
SGLANG = f"""for place in {VENV}/lib/python3*/site-packages; do
mkdir -p $place/sglang-0.5.8.dist-info
printf 'Metadata-Version: 2.1\\nName: sglang\\nVersion: 0.5.8\\n' > $place/sglang-0.5.8.dist-info/METADATA
printf 'sglang-0.5.8.dist-info/METADATA,,\\nsglang-0.5.8.dist-info/RECORD,,\\n' > $place/sglang-0.5.8.dist-info/RECORD
done"""
TEMPLATE = """[Unit]
Description={{ service }}

[Service]
ExecStart={{ (["/usr/bin/python3", "-I", "-S", "/var/lib/fleetctl/router-standin.py"] + command[3:]) | exec }}
{% for name, text in variables.items() %}
Environment={{ (name ~ "=" ~ text) | word }}
{% endfor %}
KillMode=mixed
TimeoutStopSec={{ [deadlines.stop, deadlines.drain] | max }}
Restart=on-failure
RestartSec=300ms

[Install]
WantedBy=multi-user.target
"""
NUMBERS = itertools.count(1)
DEADLINES = {"drain": 60, "stop": 30, "free": 60, "ready": 120, "generate": 60}


class Gate:
    """A file on the host that a stand-in waits for; shut at first."""

    def __init__(self, state: Path, name: str) -> None:
        self.path = f"/var/lib/fleetctl/{name}"
        self._file = state / name
        self._file.unlink(missing_ok=True)

    def open(self) -> None:
        """Let pass who waits."""
        self._file.touch()


class Site:
    """An inventory of the lab's two hosts with names, ports and units that no other test has."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.number = next(NUMBERS)
        self.port = 26000 + 20 * self.number
        self.slot = f"r{self.number}"
        self.hosts: dict[str, dict[str, Any]] = {name: self._host(name) for name in ("ct129", "ct200")}
        (folder / "inventories").mkdir()
        (folder / "templates/systemd").mkdir(parents=True)
        for template in TEMPLATES.glob("*.j2"):
            (folder / "templates/systemd" / template.name).write_text(template.read_text())
        (folder / "templates/systemd/standin.service.j2").write_text(TEMPLATE)

    def _host(self, name: str) -> dict[str, Any]:
        ssh = {"hostname": self.lab.address(name), "user": "root", "identity_file": str(self.lab.identity)}
        return {
            "host": name,
            "ssh": {**ssh, "known_hosts": str(self.lab.known_hosts)},
            "gpus": {"count": 8},
            "slots": {self.slot: {"gpus": [], "port": self.port}},
            "environments": {"standin": {"path": VENV}},
            "models": {"m": {"path": "/etc/hostname"}},
            "services": {},
        }

    def service(
        self, name: str, host: str = "ct200", more: dict[str, Any] | None = None, **knobs: Any
    ) -> None:
        """Add a service, or say anew how it behaves; it answers with its own name."""
        self.hosts[host]["services"][name] = {
            "slot": self.slot,
            "engine": "standalone",
            "mode": "autoregressive",
            "environment": "standin",
            "model": "m",
            "model_id": name,
            "unit": f"{self.slot}-{name}.service",
            "template": "standin.service.j2",
            "env": {"KNOBS": json.dumps(knobs)},
            "probe": {"prompt": "one", "max_tokens": 8},
            "deadlines": DEADLINES,
            **(more or {}),
        }

    def spanning(self, name: str, nodes: list[str], **knobs: Any) -> None:
        """Add a service over several hosts, in the file of the first; KNOBS of a rank alone: ``rank1={…}``."""
        where = {"meet": f"{self.address(nodes[0])}:{self.port + 5}", "tp": 2}
        self.service(name, nodes[0], {"engine": "sglang", "nodes": nodes, **where}, **knobs)

    def routed(self) -> str:
        """Put a router in front of the slot, with a spare place behind it; the router's name."""
        self.hosts["ct200"]["slots"][self.slot] = {
            "gpus": [],
            "port": self.port + 1,
            "spare": {"gpus": [], "port": self.port + 2},
        }
        self.hosts["ct200"]["routers"] = {f"{self.slot}-front": {"port": self.port, "slots": [self.slot]}}
        return f"{self.slot}-front"

    def replicated(self, count: int) -> None:
        """Put a router in front of so many slots, in which each service has a replica."""
        names = [self.slot, *(f"{self.slot}-{number}" for number in range(2, count + 1))]
        places = {name: {"gpus": [], "port": self.port + 1 + at} for at, name in enumerate(names)}
        self.hosts["ct200"]["slots"] = places
        self.hosts["ct200"]["routers"] = {f"{self.slot}-front": {"port": self.port, "slots": names}}
        for service in self.hosts["ct200"]["services"].values():
            service["replicas"] = names[1:]

    def start(self, *words: str) -> Command:
        """Start ``fleetctl`` in this fleet folder, with the inventory as it stands now."""
        for name, host in self.hosts.items():
            (self.folder / f"inventories/{name}.yaml").write_text(yaml.safe_dump(host, sort_keys=False))
        env = {**os.environ, "FLEETCTL_FLEET": str(self.folder), "FLEETCTL_INVENTORY": "inventories"}
        return warm.start(words, env)

    def run(self, *words: str, expect: int = 0) -> str:
        """Run ``fleetctl``; its output, both streams, after checking its exit code."""
        process = self.start(*words)
        out, err = process.communicate(timeout=240)
        assert process.returncode == expect, f"{' '.join(words)}: exit {process.returncode}\n{out}\n{err}"
        assert "Traceback" not in err
        return out + err

    def until(self, process: Command, word: str) -> str:
        """Read the command's progress until a line begins with ``word``."""
        read = []
        for line in process.stderr:
            read.append(line)
            if line.startswith(word):
                return "".join(read)
        raise AssertionError(f"ended before {word!r}:\n{''.join(read)}")

    def status(self, host: str = "ct200", slot: str | None = None) -> dict[str, Any]:
        """What ``fleetctl status`` says of the slot, once its service answers as soon as status wants it."""
        end = time.monotonic() + 60
        while True:
            slots = json.loads(self.run("status", host, "--json"))["hosts"][0]["slots"]
            found = dict(next(one for one in slots if one["slot"] == (slot or self.slot)))
            if found["health"] != "no answer" or time.monotonic() > end:
                return found

    def gate(self, name: str) -> Gate:
        """A gate of the slot's own on ct200."""
        return Gate(self.lab.state("ct200"), f"gate-{self.slot}-{name}")

    def active(self, unit: str, host: str = "ct200") -> str:
        """systemd's word on a unit."""
        return self.lab.run(host, f"systemctl is-active {unit}", check=False).stdout.strip()

    def address(self, host: str = "ct200") -> str:
        """The host's address."""
        return self.lab.address(host)


@pytest.fixture
def site(lab: Lab, tmp_path: Path) -> Iterator[Site]:
    """A slot of its own on both hosts; what ran in it is stopped at the end."""
    site = Site(lab, tmp_path)
    for name in site.hosts:
        lab.run(name, f"test -x {VENV}/bin/python || /usr/bin/python3 -m venv --without-pip {VENV}")
        lab.run(name, SGLANG)
        (HostPaths(name).state / "router-standin.py").write_text(STANDIN.read_text())
    yield site
    mine = f"{site.slot}-*.service' 'fleetctl-{site.slot}-*.service"
    files = " ".join(
        f"/etc/systemd/system/{{,multi-user.target.wants/}}{prefix}{site.slot}-*"
        for prefix in ("", "fleetctl-")
    )
    for name in site.hosts:
        lab.run(name, f"systemctl stop '{mine}'; rm -f {files}; systemctl daemon-reload", check=False)
        lab.run(
            name,
            f"rm -rf /var/lib/fleetctl/slots/{site.slot}* /var/lib/fleetctl/gate-{site.slot}-*",
            check=False,
        )
