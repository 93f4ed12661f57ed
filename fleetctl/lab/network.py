"""The lab's network: one bridge, and for each host a namespace with one end of a veth pair.

Nothing leaves it: there is no masquerading, and the hosts have no default route.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from pathlib import Path
from typing import Any

from fleetctl.errors import Exit, FleetError
from fleetctl.lab import system
from fleetctl.lab.paths import BRIDGE, GATEWAY
from fleetctl.lab.record import HostRecord

NETNS_DIR = Path("/run/netns")
_IFNAMSIZ = 15
_GATEWAY = ipaddress.ip_interface(GATEWAY)

# A delayed ACK costs an ssh login twice 40 ms: both ends acknowledge at once.
_ROUTE = "route replace {net} dev {dev} src {src} quickack 1"


def link_name(host: str) -> str:
    """The host's end of the cable on the bridge: ``v<host>``, shortened where the kernel needs it."""
    name = f"v{host}"
    if len(name) <= _IFNAMSIZ:
        return name
    return f"v{host[:7]}{hashlib.sha256(host.encode()).hexdigest()[:7]}"


def netns_path(netns: str) -> Path:
    """Where a named namespace is held."""
    return NETNS_DIR / netns


def refuse_strangers(bridge_is_ours: bool, names: list[tuple[str, str]]) -> None:
    """Refuse to start where others already hold the lab's names or addresses."""
    network = _GATEWAY.network
    links: list[dict[str, Any]] = json.loads(system.run("ip", "-json", "addr"))
    for link in links:
        if bridge_is_ours and link["ifname"] == BRIDGE:
            continue
        for held in link.get("addr_info", []):
            if held["family"] == "inet" and ipaddress.ip_address(held["local"]) in network:
                raise FleetError(
                    f"the lab's network {network} is in use here: {held['local']} on {link['ifname']}",
                    fix=f"take that address away: ip addr del {held['local']}/{held['prefixlen']} "
                    f"dev {link['ifname']}",
                    exit=Exit.PREFLIGHT,
                )
    present = {link["ifname"] for link in links}
    wanted = [link for _, link in names] + ([] if bridge_is_ours else [BRIDGE])
    for name in wanted:
        if name in present:
            raise FleetError(
                f"a network link {name} exists that this lab did not make",
                fix=f"if nothing needs it: ip link del {name}",
                exit=Exit.PREFLIGHT,
            )
    for netns, _ in names:
        if netns_path(netns).exists():
            raise FleetError(
                f"a network namespace {netns} exists that this lab did not make",
                fix=f"if nothing needs it: ip netns del {netns}",
                exit=Exit.PREFLIGHT,
            )


def ensure_bridge() -> None:
    """Make the bridge, or what is missing of it."""
    if not link_exists(BRIDGE):
        system.run("ip", "link", "add", BRIDGE, "type", "bridge")
    _batch(
        [
            f"addr replace {_GATEWAY} dev {BRIDGE}",
            f"link set {BRIDGE} up",
            _ROUTE.format(net=_GATEWAY.network, dev=BRIDGE, src=_GATEWAY.ip),
        ]
    )


def connect(record: HostRecord) -> None:
    """Make a host's namespace and put it on the bridge."""
    _batch(
        [
            f"netns add {record.netns}",
            f"link add {record.link} type veth peer name eth0 netns {record.netns}",
            f"link set {record.link} master {BRIDGE} up",
        ]
    )
    _batch(
        [
            "link set lo up",
            f"addr add {record.address}/{_GATEWAY.network.prefixlen} dev eth0",
            "link set eth0 up",
            _ROUTE.format(net=_GATEWAY.network, dev="eth0", src=record.address),
        ],
        netns=record.netns,
    )


def disconnect(record: HostRecord) -> None:
    """Take a host's link and namespace away, whatever of them is there."""
    if link_exists(record.link):
        system.run("ip", "link", "del", record.link)
    if netns_path(record.netns).exists():
        system.run("ip", "netns", "del", record.netns)


def remove_bridge(netns_mount: bool) -> None:
    """Take the bridge away, and iproute2's mount of /run/netns where the lab caused it."""
    if link_exists(BRIDGE):
        system.run("ip", "link", "del", BRIDGE)
    if netns_mount and netns_is_mounted() and not any(NETNS_DIR.iterdir()):
        system.run("umount", str(NETNS_DIR))


def set_link(record: HostRecord, state: str) -> None:
    """Plug a host's cable in (``up``) or out (``down``)."""
    system.run("ip", "link", "set", record.link, state)


def link_exists(name: str) -> bool:
    """Whether this machine has the link."""
    return any(link["ifname"] == name for link in json.loads(system.run("ip", "-json", "link")))


def netns_is_mounted() -> bool:
    """Whether /run/netns is a mount already (``ip netns add`` makes it one)."""
    return any(mount.path == str(NETNS_DIR) for mount in system.mounts())


def _batch(lines: list[str], netns: str | None = None) -> None:
    inside = ["-n", netns] if netns else []
    system.run("ip", *inside, "-batch", "-", stdin="\n".join(lines) + "\n")
