"""A fleet folder of its own whose services are stand-ins, deployed with the real command line to a lab host."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.conftest import Lab
from tests.warm import Command

STANDIN = Path(__file__).parents[1] / "rollout_host" / "standin.py"
TEMPLATE = """[Unit]
Description={{ service }}

[Service]
ExecStart=/usr/bin/python3 -I -S /var/lib/fleetctl/standin.py {{ variables["KNOBS"] | word }}
TimeoutStopSec=4

[Install]
WantedBy=multi-user.target
"""
PORTS = itertools.count(32001)
VENV = "/var/lib/fleetctl/standin-venv"


class Site:
    """One slot on ct200 with services whose stand-ins behave as said; every test has its own."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.port = next(PORTS)
        self.slot = f"e{self.port}"
        self.gate = f"/run/held-{self.slot}"
        self.services: dict[str, dict[str, Any]] = {}
        self.ssh = {
            "hostname": lab.address("ct200"),
            "user": "root",
            "identity_file": str(lab.identity),
            "known_hosts": str(lab.known_hosts),
        }
        (folder / "inventories").mkdir()
        (folder / "templates/systemd").mkdir(parents=True)
        (folder / "templates/systemd/standin.service.j2").write_text(TEMPLATE)
        self.service("good")

    def service(self, name: str, template: str = "standin.service.j2", **knobs: Any) -> None:
        """Add a service, or say anew how it behaves."""
        knobs = {"port": self.port, "model": "m", **knobs}
        self.services[name] = {
            "slot": self.slot,
            "engine": "standalone",
            "mode": "autoregressive",
            "environment": "standin",
            "model": "m",
            "unit": f"{self.slot}-{name}.service",
            "template": template,
            "env": {"KNOBS": json.dumps(knobs)},
            "probe": {"prompt": "one", "max_tokens": 8},
            "deadlines": {"drain": 30, "stop": 30, "free": 60, "ready": 600, "generate": 60},
        }
        self.write()

    def hold(self) -> None:
        """From now on a service with the knob ``shut=site.gate`` is not healthy, until ``release``."""
        self.lab.run("ct200", f"touch {self.gate}")

    def release(self) -> None:
        """Let what is held be healthy."""
        self.lab.run("ct200", f"rm -f {self.gate}")

    def write(self) -> None:
        """Write the inventory."""
        host = {
            "host": "ct200",
            "ssh": self.ssh,
            "gpus": {"count": 8},
            "slots": {self.slot: {"gpus": [], "port": self.port}},
            "environments": {"standin": {"path": VENV}},
            "models": {"m": {"path": "/etc/hostname"}},
            "services": self.services,
        }
        (self.folder / "inventories/ct200.yaml").write_text(yaml.safe_dump(host, sort_keys=False))

    def start(self, *words: str) -> Command:
        """Start ``fleetctl`` in this fleet folder."""
        env = {**os.environ, "FLEETCTL_FLEET": str(self.folder), "FLEETCTL_INVENTORY": "inventories"}
        return warm.start(words, env)

    def run(self, *words: str, expect: int = 0) -> str:
        """Run ``fleetctl``; its output, both streams, after checking its exit code."""
        process = self.start(*words)
        out, err = process.communicate(timeout=280)
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

    def active(self, name: str) -> str:
        """systemd's word on the service's unit."""
        return self.lab.run(
            "ct200", f"systemctl is-active {self.slot}-{name}.service", check=False
        ).stdout.strip()

    def until_on_host(self, look: str) -> None:
        """Until a command on the host succeeds."""
        self.lab.run(
            "ct200", f"for n in $(seq 1200); do {look} && exit 0; sleep 0.1; done; exit 1", timeout=280
        )

    def generates(self) -> bool:
        """Whether the slot answers a generation."""
        body = json.dumps({"prompt": "x", "max_tokens": 2})
        ask = f"curl -s -m 60 -d '{body}' 127.0.0.1:{self.port}/v1/completions"
        return '"completion_tokens": 2' in self.lab.run("ct200", ask, check=False).stdout


@pytest.fixture
def site(lab: Lab, tmp_path: Path) -> Iterator[Site]:
    """A slot of its own; what ran in it is stopped at the end."""
    lab.run("ct200", f"test -x {VENV}/bin/python || /usr/bin/python3 -m venv --without-pip {VENV}")
    (lab.state("ct200") / "standin.py").write_text(STANDIN.read_text())
    site = Site(lab, tmp_path)
    yield site
    ours = f"'{site.slot}-*.service'"
    units = f"/etc/systemd/system/{{,multi-user.target.wants/}}{site.slot}-*"
    lab.run(
        "ct200",
        f"systemctl kill -s KILL {ours}; systemctl stop {ours}; rm -f {site.gate} {units};"
        f"systemctl daemon-reload; systemctl reset-failed {ours}",
        check=False,
    )
