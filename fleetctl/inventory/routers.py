"""What an inventory's ``routers`` and ``spare`` places must be to each other and to the rest of the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.inventory.document import Problem
from fleetctl.inventory.models import default_unit, replica_name, replica_unit
from fleetctl.inventory.nearest import hint

SPARE = "-spare"


def spare_unit(unit: str) -> str:
    """The unit's name of a service in its slot's spare place."""
    return f"{unit.removesuffix('.service')}{SPARE}.service"


def check_routers(host: Mapping[str, Any]) -> Iterator[Problem]:
    """Every problem of routers and spare places, on the file's plain data; wrong types are passed over."""
    slots, routers = _entries(host, "slots"), _entries(host, "routers")
    yield from _ports(slots, routers)
    yield from _names(host, slots, routers)
    yield from _spares(host, slots, routers)
    yield from _replicas(host, slots, routers)


def _ports(slots: Mapping[str, Any], routers: Mapping[str, Any]) -> Iterator[Problem]:
    """No port twice among slots, spare places and routers (slots alone: ``check.py``)."""
    taken = {slot.get("port"): f"slots.{name}" for name, slot in slots.items()}
    others: list[tuple[tuple[str, ...], Any]]
    others = [(("slots", name, "spare", "port"), slot.get("spare")) for name, slot in slots.items()]
    others += [(("routers", name, "port"), router) for name, router in routers.items()]
    for key, place in others:
        port = place.get("port") if isinstance(place, dict) else None
        if not isinstance(port, int):
            continue
        mine = ".".join(key[:-1])
        if port in taken:
            what = f"{taken[port]} and {mine} are both on port {port}"
            yield Problem(key, what, "give each a port of its own: clients use the router's")
        taken.setdefault(port, mine)


def _names(
    host: Mapping[str, Any], slots: Mapping[str, Any], routers: Mapping[str, Any]
) -> Iterator[Problem]:
    services = _entries(host, "services")
    units = {service.get("unit", default_unit(name)): name for name, service in services.items()}
    behind: dict[str, str] = {}
    for name, router in routers.items():
        for kind, known in (("slot", slots), ("service", services)):
            if name in known:
                yield Problem(
                    ("routers", name),
                    f"the router {name} has the name of a {kind}",
                    "a router is a service in a slot of its own: give it another name",
                )
        if default_unit(name) in units:
            what = f"the service {units[default_unit(name)]} has the unit of the router {name}"
            yield Problem(("routers", name), what, "give one of them another name")
        wanted = router.get("slots")
        for index, slot in enumerate(wanted if isinstance(wanted, list) else []):
            key = ("routers", name, "slots", index)
            if not isinstance(slot, str):
                continue
            if slot not in slots:
                yield Problem(key, f"the router {name} names the slot {slot}", hint(slot, slots, "slots"))
            elif slot in behind:
                whose = "twice" if behind[slot] == name else f"behind {behind[slot]} too"
                yield Problem(key, f"the slot {slot} stands {whose}", "a slot stands behind one router, once")
            behind.setdefault(slot, name)


def _spares(
    host: Mapping[str, Any], slots: Mapping[str, Any], routers: Mapping[str, Any]
) -> Iterator[Problem]:
    wanted = [router.get("slots") for router in routers.values()]
    routed = {slot for names in wanted if isinstance(names, list) for slot in names if isinstance(slot, str)}
    owners = {
        gpu: f"slots.{name}"
        for name, slot in slots.items()
        for gpu in (slot.get("gpus") if isinstance(slot.get("gpus"), list) else [])
    }
    count = _mapping(host.get("gpus")).get("count")
    for name, slot in slots.items():
        spare = slot.get("spare")
        if not isinstance(spare, dict):
            continue
        if name not in routed:
            yield Problem(
                ("slots", name, "spare"),
                f"the slot {name} has a spare place and no router in front of it",
                "add routers: {NAME: {port: …, slots: [" + name + "]}}",
            )
        gpus = spare.get("gpus")
        for index, gpu in enumerate(gpus if isinstance(gpus, list) else []):
            key = ("slots", name, "spare", "gpus", index)
            if gpu in owners:
                what = f"GPU {gpu} stands in {owners[gpu]} and slots.{name}.spare"
                yield Problem(key, what, "a GPU belongs to one place")
            owners.setdefault(gpu, f"slots.{name}.spare")
            if isinstance(count, int) and isinstance(gpu, int) and gpu >= count:
                yield Problem(key, f"the host has no GPU {gpu}", f"gpus.count is {count}")
    yield from _spare_units(host, slots)


def _spare_units(host: Mapping[str, Any], slots: Mapping[str, Any]) -> Iterator[Problem]:
    services = _entries(host, "services")
    units = {name: str(service.get("unit", default_unit(name))) for name, service in services.items()}
    for name, service in services.items():
        slot = slots.get(str(service.get("slot")), {})
        if not isinstance(slot.get("spare"), dict):
            continue
        for other, unit in units.items():
            if unit == spare_unit(units[name]):
                what = f"the service {other} has the unit that {name} has in its spare place, {unit}"
                yield Problem(("services", other), what, "give it another name, or unit: NAME.service")


def _replicas(
    host: Mapping[str, Any], slots: Mapping[str, Any], routers: Mapping[str, Any]
) -> Iterator[Problem]:
    """Replicas stand in slots of their own behind one router."""
    services = _entries(host, "services")
    units = {str(service.get("unit", default_unit(name))): name for name, service in services.items()}
    front = {str(slot): name for name, router in routers.items() for slot in router.get("slots") or []}
    for name, service in services.items():
        wanted = service.get("replicas")
        own = service.get("slot")
        for index, slot in enumerate(wanted if isinstance(wanted, list) else []):
            key = ("services", name, "replicas", index)
            if not isinstance(slot, str):
                continue
            whose = f"the service {name} has a replica in {slot}"
            if slot not in slots:
                yield Problem(key, f"{whose}, which is no slot", hint(slot, slots, "slots"))
                continue
            if slot == own or slot in (wanted or [])[:index]:
                yield Problem(key, f"{whose} twice", "each replica has a slot of its own")
            if slot not in front or front[slot] != front.get(str(own)):
                fix = f"routers: {{NAME: {{port: …, slots: [{own}, {slot}]}}}}"
                yield Problem(key, f"{whose}, and no router stands in front of both", fix)
            for what, there in (
                (replica_name(name, slot), services),
                (_replica_unit(name, service, slot), units),
            ):
                if what in there:
                    yield Problem(key, f"{whose}, called {what} as another service is", "rename one of them")
        if wanted and service.get("nodes"):
            what = f"the service {name} has replicas and nodes"
            yield Problem(("services", name, "replicas"), what, "take one of the two out")


def _replica_unit(name: str, service: Mapping[str, Any], slot: str) -> str:
    return replica_unit(str(service.get("unit", default_unit(name))), slot)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _entries(host: Mapping[str, Any], name: str) -> dict[str, Mapping[str, Any]]:
    return {key: entry for key, entry in _mapping(host.get(name)).items() if isinstance(entry, dict)}
