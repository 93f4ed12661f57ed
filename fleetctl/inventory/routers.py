"""What an inventory's routers, ``spare`` places and replicas must be to each other and to the rest of the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.inventory.document import Problem
from fleetctl.inventory.models import default_unit, replica_name, replica_unit
from fleetctl.inventory.nearest import hint

SPARE = "-spare"
Entries = dict[str, Mapping[str, Any]]


def spare_unit(unit: str) -> str:
    """The unit's name of a service in its slot's spare place."""
    return f"{unit.removesuffix('.service')}{SPARE}.service"


def check_routers(host: Mapping[str, Any]) -> Iterator[Problem]:
    """Every problem of routers, spare places and replicas, on the file's plain data; wrong types are passed over."""
    slots, routers, services = (_entries(host, name) for name in ("slots", "routers", "services"))
    count = _whole(_mapping(host.get("gpus")).get("count"))
    yield from _ports(slots, routers)
    yield from _router_names(slots, routers, services)
    yield from _behind(slots, routers)
    yield from _spares(slots, routers, count)
    yield from _spare_units(slots, services)
    yield from _replicas(slots, routers, services)


def _ports(slots: Entries, routers: Entries) -> Iterator[Problem]:
    """No port twice among slots, spare places and routers (slots alone: ``check.py``)."""
    taken = {_whole(slot.get("port")): f"slots.{name}" for name, slot in slots.items()}
    others: list[tuple[tuple[str, ...], Any]]
    others = [(("slots", name, "spare", "port"), slot.get("spare")) for name, slot in slots.items()]
    others += [(("routers", name, "port"), router) for name, router in routers.items()]
    for key, place in others:
        port = _whole(_mapping(place).get("port"))
        mine = ".".join(key[:-1])
        if port is None:
            continue
        if port in taken:
            what = f"{taken[port]} and {mine} are both on port {port}"
            yield Problem(key, what, "give each a port of its own: clients use the router's")
        taken.setdefault(port, mine)


def _router_names(slots: Entries, routers: Entries, services: Entries) -> Iterator[Problem]:
    units = _units(services)
    for name in routers:
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


def _behind(slots: Entries, routers: Entries) -> Iterator[Problem]:
    behind: dict[str, str] = {}
    for name, router in routers.items():
        for index, slot in _texts(router.get("slots")):
            key = ("routers", name, "slots", index)
            if slot not in slots:
                yield Problem(key, f"the router {name} names the slot {slot}", hint(slot, slots, "slots"))
            elif slot in behind:
                whose = "twice" if behind[slot] == name else f"behind {behind[slot]} too"
                yield Problem(key, f"the slot {slot} stands {whose}", "a slot stands behind one router, once")
            behind.setdefault(slot, name)


def _spares(slots: Entries, routers: Entries, count: int | None) -> Iterator[Problem]:
    routed = {slot for router in routers.values() for _, slot in _texts(router.get("slots"))}
    owners = {gpu: f"slots.{name}" for name, slot in slots.items() for _, gpu in _gpus(slot)}
    for name, slot in slots.items():
        spare = slot.get("spare")
        if not isinstance(spare, dict):
            continue
        if name not in routed:
            what = f"the slot {name} has a spare place and no router in front of it"
            yield Problem(
                ("slots", name, "spare"), what, f"add routers: {{NAME: {{port: …, slots: [{name}]}}}}"
            )
        for index, gpu in _gpus(spare):
            key = ("slots", name, "spare", "gpus", index)
            if gpu in owners:
                what = f"GPU {gpu} stands in {owners[gpu]} and slots.{name}.spare"
                yield Problem(key, what, "a GPU belongs to one place")
            owners.setdefault(gpu, f"slots.{name}.spare")
            if count is not None and gpu >= count:
                yield Problem(key, f"the host has no GPU {gpu}", f"gpus.count is {count}")


def _spare_units(slots: Entries, services: Entries) -> Iterator[Problem]:
    for name, service in services.items():
        slot = slots.get(str(service.get("slot")), {})
        if not isinstance(slot.get("spare"), dict):
            continue
        other = _units(services).get(spare_unit(_unit(name, service)))
        if other is not None:
            unit = _unit(other, services[other])
            what = f"the service {other} has the unit that {name} has in its spare place, {unit}"
            yield Problem(("services", other), what, "give it another name, or unit: NAME.service")


def _replicas(slots: Entries, routers: Entries, services: Entries) -> Iterator[Problem]:
    """Replicas stand in slots of their own behind one router."""
    front = {slot: name for name, router in routers.items() for _, slot in _texts(router.get("slots"))}
    for name, service in services.items():
        wanted, own = _texts(service.get("replicas")), str(service.get("slot"))
        if wanted and service.get("nodes"):
            what = f"the service {name} has replicas and nodes"
            yield Problem(("services", name, "replicas"), what, "take one of the two out")
        seen = {own}
        for index, slot in wanted:
            key = ("services", name, "replicas", index)
            whose = f"the service {name} has a replica in {slot}"
            if slot in seen:
                yield Problem(key, f"{whose} twice", "each replica has a slot of its own")
                continue
            seen.add(slot)
            if slot not in slots:
                yield Problem(key, f"{whose}, which is no slot", hint(slot, slots, "slots"))
                continue
            if slot not in front or front[slot] != front.get(own):
                fix = f"routers: {{NAME: {{port: …, slots: [{own}, {slot}]}}}}"
                yield Problem(key, f"{whose}, and no router stands in front of both", fix)
            twin = replica_unit(_unit(name, service), slot)
            for what, there in ((replica_name(name, slot), services), (twin, _units(services))):
                if what in there:
                    yield Problem(key, f"{whose}, called {what} as another service is", "rename one of them")


def _units(services: Entries) -> dict[str, str]:
    return {_unit(name, service): name for name, service in services.items()}


def _unit(name: str, service: Mapping[str, Any]) -> str:
    unit = service.get("unit")
    return unit if isinstance(unit, str) else default_unit(name)


def _texts(value: Any) -> list[tuple[int, str]]:
    """The texts of a list, each with its index."""
    entries = value if isinstance(value, list) else []
    return [(index, entry) for index, entry in enumerate(entries) if isinstance(entry, str)]


def _gpus(place: Mapping[str, Any]) -> list[tuple[int, int]]:
    value = place.get("gpus")
    entries = value if isinstance(value, list) else []
    return [(index, entry) for index, entry in enumerate(entries) if _whole(entry) is not None]


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _entries(host: Mapping[str, Any], name: str) -> Entries:
    return {key: entry for key, entry in _mapping(host.get(name)).items() if isinstance(entry, dict)}
