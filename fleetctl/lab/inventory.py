"""The lab's hosts, as far as the lab itself must know them."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fleetctl.errors import FleetError
from fleetctl.inventory.document import GROUP_FILES
from fleetctl.lab.paths import GATEWAY

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_SUBNET = ipaddress.ip_interface(GATEWAY)


@dataclass(frozen=True)
class LabHost:
    """One host of the lab."""

    name: str
    address: str
    gpus: int


def inventory_dir() -> Path:
    """The lab's inventory: of the fleet folder or working directory, else of the checkout fleetctl is in."""
    here = Path(os.environ.get("FLEETCTL_FLEET", "."), "inventories/lab")
    if here.is_dir():
        return here
    return Path(__file__).resolve().parents[2] / "inventories" / "lab"


def load(folder: Path | None = None) -> list[LabHost]:
    """Read every ``*.yaml`` of the lab's inventory but its groups."""
    folder = folder or inventory_dir()
    files = sorted(file for file in folder.glob("*.yaml") if file.name not in GROUP_FILES)
    if not files:
        raise FleetError(
            "no lab host is described",
            where=str(folder),
            fix="run fleetctl from the repository's root, where inventories/lab/ lies",
        )
    hosts = [_read(file) for file in files]
    for attribute in ("name", "address"):
        values = [getattr(host, attribute) for host in hosts]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise FleetError(f"two lab hosts have the {attribute} {twice[0]}", where=str(folder))
    return hosts


def find(name: str, hosts: list[LabHost]) -> LabHost:
    """The host called ``name``."""
    for host in hosts:
        if host.name == name:
            return host
    raise FleetError(
        f"the lab has no host {name!r}", fix="the lab's hosts: " + ", ".join(host.name for host in hosts)
    )


def _read(file: Path) -> LabHost:
    try:
        data: Any = yaml.safe_load(file.read_text())
        name, address = str(data["host"]), str(data["ssh"]["hostname"])
        gpus = int((data.get("gpus") or {}).get("count", 0))
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise FleetError(
            f"not a lab host's inventory: {error!r}", where=str(file), fix="it needs host and ssh.hostname"
        ) from error
    if not _NAME.fullmatch(name):
        raise FleetError(
            f"{name!r} cannot be a host name", where=str(file), fix="use lower case letters, digits and -"
        )
    try:
        inside = ipaddress.ip_address(address) in _SUBNET.network and address != str(_SUBNET.ip)
    except ValueError:
        inside = False
    if not inside:
        raise FleetError(
            f"{address} is no address for a lab host",
            where=str(file),
            fix=f"choose ssh.hostname in {_SUBNET.network}, other than {_SUBNET.ip}",
        )
    return LabHost(name=name, address=address, gpus=gpus)
