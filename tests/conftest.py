"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import fleetctl.standalone  # noqa: F401  says how torch's threads wait, before torch is imported
from fleetctl.lab import gpus, hardware, hosts, inventory, network, record
from fleetctl.lab.inventory import LabHost
from fleetctl.lab.paths import IDENTITY, KNOWN_HOSTS, HostPaths

# How long an example takes says only how busy the machine is.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

LAB_INVENTORY = Path(__file__).parents[1] / "inventories" / "lab"


@pytest.fixture(autouse=True)
def _own_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that runs ``fleetctl --fleet`` in this process leaves the variable behind for nobody."""
    for name in ("FLEETCTL_FLEET", "FLEETCTL_INVENTORY"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
        if not os.environ[name]:
            monkeypatch.delenv(name)


class Lab:
    """The lab's hosts, up."""

    identity = IDENTITY
    known_hosts = KNOWN_HOSTS

    def __init__(self) -> None:
        self.hosts: dict[str, LabHost] = {host.name: host for host in inventory.load(LAB_INVENTORY)}

    def address(self, name: str) -> str:
        """The host's address in the lab's network."""
        return self.hosts[name].address

    def state(self, name: str) -> Path:
        """The host's /var/lib/fleetctl, as a folder here."""
        return HostPaths(name).state

    def run(
        self, name: str, command: str, *, check: bool = True, timeout: float = 180
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host by ssh."""
        done = hosts.run(self.hosts[name], command, timeout)
        assert not check or done.returncode == 0, f"{name}: {command}: {done.returncode}\n{done.stderr}"
        return done

    def reset(self) -> None:
        """Undo what a test did to the hosts from outside: power, cables, GPUs."""
        for host in self.hosts.values():
            found = record.host_record(host.name)
            if found is not None and network.link_exists(found.link):
                hosts.link_up(host)
        hosts.up(list(self.hosts.values()), print)
        for name in self.hosts:
            gpus.reset(name)
            hardware.forget(name)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """The lab, up; at the end as it was found. It fails, and never skips, where the lab cannot start."""
    lab = Lab()
    found_down = all(state.state == "down" for state in hosts.status(list(lab.hosts.values())))
    lab.reset()
    yield lab
    if found_down:
        hosts.down(print)
    else:
        lab.reset()
