"""The two places of a slot with a router: its own, and the spare one where ``--blue-green`` starts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetctl.inventory.models import Host, Spare
from fleetctl.inventory.routers import SPARE, spare_unit

BACKEND = "slots"
FOLDER = "/run/fleetctl-router-"
"""Of each router: its admin socket, and what it was told, for its restart. Gone after a reboot, when only the
enabled service starts and the health checks find it."""


def on_spare(host: Host, slot: str) -> Host:
    """The host as services see it that run in the slot's spare place: other port, GPUs and unit names.

    ``spare`` of that slot is then its own place.
    """
    place = host.slots[slot]
    assert place.spare is not None
    first = Spare(gpus=place.gpus, port=place.port)
    moved = place.model_copy(update={"gpus": place.spare.gpus, "port": place.spare.port, "spare": first})
    moved._in_spare = True
    services = {
        name: entry.model_copy(update={"unit": spare_unit(entry.unit)}) if entry.slot == slot else entry
        for name, entry in host.services.items()
    }
    return host.model_copy(update={"slots": {**host.slots, slot: moved}, "services": services})


def as_recorded(host: Host, slot: str, state: Mapping[str, Any] | None) -> Host:
    """The host on the side that a slot's record (``slots/<slot>.json``) names; without one its own place."""
    spare = host.slots[slot].spare
    return on_spare(host, slot) if spare and state and state.get("port") == spare.port else host


def as_filled(host: Host, facts: Mapping[str, Any]) -> Host:
    """The host with each slot on the side that is in use."""
    for name, slot in host.slots.items():
        if slot.spare:
            host = as_recorded(host, name, (facts["slots"].get(name) or {}).get("state"))
    return host


def asked_slots(host: Host) -> dict[str, Any]:
    """``slots`` of the agent's calls: each slot's place, its spare one, and the router in front of it."""
    found: dict[str, Any] = {}
    for name, slot in host.slots.items():
        found[name] = {"port": slot.port, "gpus": slot.gpus}
        if slot.spare:
            found[name]["spare_port"] = slot.spare.port
        if router := routing(host, host, name):
            found[name]["router"] = router
    return found


def is_spare(host: Host, slot: str) -> bool:
    """Whether ``host`` shows the slot's spare place."""
    return host.slots[slot]._in_spare


def other_side(own: Host, filled: Host, slot: str) -> Host:
    """The side that is not in use; ``own`` is the inventory's host, ``filled`` the one in use."""
    return own if is_spare(filled, slot) else on_spare(own, slot)


def server(host: Host, slot: str) -> str:
    """What the slot's place is called in its router."""
    return f"{slot}{SPARE}" if is_spare(host, slot) else slot


def routing(new: Host, old: Host, slot: str) -> dict[str, Any] | None:
    """``router`` of a plan: where the router is told, and of which servers; None without a router."""
    router = new.router_of(slot)
    if router is None:
        return None
    folder = f"{FOLDER}{router.name}"
    return {
        "service": router.name,
        "unit": new.services[router.name].unit,
        "port": router.port,
        "socket": f"{folder}/admin.sock",
        "kept": f"{folder}/servers",
        "backend": BACKEND,
        "alone": len(router.slots) == 1,
        "other_port": spare.port if (spare := new.slots[slot].spare) else None,
        "new": server(new, slot),
        "old": server(old, slot),
    }


def router_context(host: Host, name: str) -> dict[str, Any]:
    """What the router's template needs: its folder, balance, and a server for each place behind it."""
    router = host.routers[name]
    servers = []
    for slot in router.slots:
        shown, other = host.slots[slot].port, host.slots[slot].spare
        ports = [shown] if other is None else [shown, other.port]
        named = zip(
            (slot, f"{slot}{SPARE}"), reversed(ports) if is_spare(host, slot) else ports, strict=False
        )
        servers += [{"name": server, "port": port} for server, port in named]
    return {
        "folder": f"{FOLDER}{name}",
        "backend": BACKEND,
        "balance": router.balance,
        "slots": router.slots,
        "servers": servers,
    }
