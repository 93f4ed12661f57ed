"""What types cannot say of a host: names that must exist, ports, GPUs and units that must be one's own.

Works on the file's plain data, so that these errors are found beside those of its structure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from fleetctl.agent.secrets import is_secret
from fleetctl.inventory.document import Problem
from fleetctl.inventory.models import Mode, default_unit
from fleetctl.inventory.nearest import hint
from fleetctl.inventory.nodes import check_service
from fleetctl.inventory.routers import check_routers

DRAFTING = tuple(mode for mode in get_args(Mode) if mode != "autoregressive")
ROLLOUT_UNITS = "fleetctl-rollout-"


def check_host(data: Any) -> list[Problem]:
    """Every problem of references, ports, GPUs and units; what has the wrong type is passed over."""
    host = _mapping(data)
    return [*_slots(host), *check_routers(host), *_services(host)]


def _slots(host: Mapping[str, Any]) -> Iterator[Problem]:
    slots = _entries(host, "slots")
    count = _mapping(host.get("gpus")).get("count")
    ports: dict[int, str] = {}
    owners: dict[int, str] = {}
    for name, slot in slots.items():
        port = slot.get("port")
        if isinstance(port, int):
            if port in ports:
                yield Problem(
                    ("slots", name, "port"),
                    f"the slots {ports[port]} and {name} are both on port {port}",
                    "give each slot a port of its own",
                )
            ports.setdefault(port, name)
        gpus = slot.get("gpus")
        for index, gpu in enumerate(gpus if isinstance(gpus, list) else []):
            if not isinstance(gpu, int):
                continue
            key = ("slots", name, "gpus", index)
            if gpu in owners:
                whose = "twice in" if owners[gpu] == name else f"in {owners[gpu]} and"
                yield Problem(key, f"GPU {gpu} stands {whose} {name}", "a GPU belongs to one slot")
            owners.setdefault(gpu, name)
            if isinstance(count, int) and gpu >= count:
                known = f"its GPUs are 0 to {count - 1}" if count else "it has none"
                yield Problem(key, f"the host has no GPU {gpu}", f"{known} (gpus.count is {count})")
    default = host.get("default_slot")
    known_slots = host.get("slots")
    if isinstance(default, str) and isinstance(known_slots, dict) and default not in known_slots:
        yield Problem(
            ("default_slot",), f"default_slot: no slot {default}", hint(default, known_slots, "slots")
        )


def _services(host: Mapping[str, Any]) -> Iterator[Problem]:
    units: dict[str, str] = {}
    targets = {
        "slot": ("slots", "slots"),
        "environment": ("environments", "environments"),
        "model": ("models", "models"),
        "drafter": ("models", "models"),
    }
    for name, service in _entries(host, "services").items():
        for field, (mapping, many) in targets.items():
            wanted = service.get(field)
            known = host.get(mapping, {} if mapping != "slots" else None)
            if isinstance(wanted, str) and isinstance(known, dict) and wanted not in known:
                yield Problem(
                    ("services", name, field),
                    f"the service {name} names the {field} {wanted}, which is not in {mapping}",
                    hint(wanted, known, many),
                )
        mode = service.get("mode")
        if mode in DRAFTING and service.get("drafter") is None:
            yield Problem(
                ("services", name, "mode"),
                f"the service {name} has the mode {mode} and no drafter",
                "add drafter: NAME (one of models), or choose the mode autoregressive",
            )
        yield from _unit_source(name, service)
        yield from _secrets(name, service)
        yield from check_service(host.get("host"), name, service)
        unit = service.get("unit", default_unit(name))
        if not isinstance(unit, str):
            continue
        if unit.startswith(ROLLOUT_UNITS):
            yield Problem(
                ("services", name, "unit"),
                f"the service {name} would have the unit {unit}, a name that rollouts use",
                "give it another name, or unit: NAME.service",
            )
        if unit in units:
            yield Problem(
                ("services", name, "unit"),
                f"the services {units[unit]} and {name} have one unit, {unit}",
                "give each service a unit of its own",
            )
        units.setdefault(unit, name)


def _unit_source(name: str, service: Mapping[str, Any]) -> Iterator[Problem]:
    """A unit's text comes from one place; of an ``other`` engine fleetctl has none of its own."""
    keeps, template = service.get("keep_unit") is True, service.get("template")
    if keeps and template:
        yield Problem(
            ("services", name, "keep_unit"),
            f"the service {name} keeps its unit as the host has it, and names a template for it too",
            "take one of the two out",
        )
    key = service.get("api_key")
    if key is not None and key not in _mapping(service.get("secrets")):
        yield Problem(
            ("services", name, "api_key"),
            f"the service {name} has the api_key {key}, which is none of its secrets",
            f"secrets: {{{key}: env:{key}}}, or file:PATH, says where its value comes from",
        )
    if service.get("engine") == "other" and not keeps and not template:
        yield Problem(
            ("services", name, "engine"),
            f"the service {name} has the engine other, of which fleetctl cannot write the unit",
            "add template: FILE, or keep_unit: true for a unit that is on the host",
        )


def _secrets(name: str, service: Mapping[str, Any]) -> Iterator[Problem]:
    """Values that everybody on the host could read in the unit's file or in ``ps``."""
    for part in ("env", "args"):
        for key, value in _mapping(service.get(part)).items():
            if isinstance(value, str) and value and is_secret(key, value):
                yield Problem(
                    ("services", name, part, key),
                    f"the service {name} has a secret in {part}: {key} would stand in the unit for all to read",
                    f"secrets: {{VARIABLE: env:{key.upper().replace('-', '_')}}}, or file:PATH, gives it to the "
                    "server as an environment variable",
                )
    if isinstance(service.get("secrets"), dict) and service["secrets"] and service.get("keep_unit") is True:
        yield Problem(
            ("services", name, "secrets"),
            f"the service {name} keeps its unit as the host has it, which names no secrets of fleetctl's",
            "take one of the two out",
        )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _entries(host: Mapping[str, Any], name: str) -> dict[str, Mapping[str, Any]]:
    return {key: entry for key, entry in _mapping(host.get(name)).items() if isinstance(entry, dict)}
