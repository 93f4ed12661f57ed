"""What fills each slot of a host, read from its facts. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from fleetctl.agent.paths import SLOTS
from fleetctl.agent.rollout.vacant import is_vacant
from fleetctl.inventory.models import Host, Service, Slot
from fleetctl.rollout.current import DAMAGED, filling, rollout_words, unrecorded_unit
from fleetctl.rollout.measured import measured_words
from fleetctl.services.sides import as_filled, asked_slots

Facts = dict[str, Any]


@dataclass(frozen=True)
class SlotStatus:
    """One slot: who fills it since when, and how it is.

    ``health`` is ``ready``, ``not ready`` (503), ``HTTP <status>``, ``no answer`` (the port is open),
    ``starting`` (the unit is up, the port is not open), ``node`` (of a service that another host leads), ``down``
    or ``empty``. ``managed`` is false where fleetctl never filled the slot; then ``unit`` holds the port. ``notes``
    are what an operator must know.
    """

    host: str
    slot: str
    port: int
    service: str | None
    mode: str | None
    since: str | None
    health: str
    models: list[str]
    running: float | None
    queued: float | None
    environment: str | None
    environment_digest: str | None
    unit: str | None
    unit_state: str | None
    restarts: int
    enabled: bool
    managed: bool
    rollout: str | None
    remedies: list[str]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """One JSON object; ``since`` in ISO 8601, UTC."""
        return asdict(self)


def facts_arguments(host: Host) -> dict[str, Any]:
    """The arguments of the ``facts`` call that :func:`slot_statuses` needs."""
    units = [service.unit for service in host.services.values()]
    return {"slots": asked_slots(host), "units": units, "gpus": False}


def slot_statuses(host: Host, facts: Facts) -> list[SlotStatus]:
    """The status of each of the host's slots, in the inventory's order."""
    host = as_filled(host, facts)
    return [_status(host, slot, facts) for slot in host.slots.values()]


def _status(host: Host, slot: Slot, facts: Facts) -> SlotStatus:
    found = facts["slots"][slot.name]
    state = filling(facts, slot.name) or {}
    owner = facts["ports"].get(str(slot.port))
    unit = state.get("unit") or (owner or {}).get("unit") or unrecorded_unit(host, slot.name, facts)
    properties = facts["units"].get(unit) or {}
    known = None if state else _service_of(host, slot, unit)
    health = found["health"]
    return SlotStatus(
        host=host.name,
        slot=slot.name,
        port=slot.port,
        service=state.get("service") or (known.name if known else None),
        mode=state.get("mode") or (known.mode if known else None),
        since=_since(found["state"] or {}, properties),
        health=_silent_health(state, properties) or _health(health, owner, properties),
        models=health["models"],
        running=health["running"],
        queued=health["queued"],
        environment=state.get("environment"),
        environment_digest=state.get("environment_digest"),
        unit=unit,
        unit_state=_unit_state(properties),
        restarts=properties.get("NRestarts") or 0,
        enabled=properties.get("UnitFileState") == "enabled",
        managed=bool(found["state"]),
        rollout=(found["locked_by"] or {}).get("rollout"),
        remedies=_remedies(state),
        notes=[
            *_notes(slot, state, owner, found, unit, facts),
            *_left(host, slot, found, owner),
            *_routed(host, slot, facts),
        ],
    )


def _routed(host: Host, slot: Slot, facts: Facts) -> list[str]:
    """Where the clients of a slot behind a router, or of several nodes, ask, and whether the router runs."""
    state = facts["slots"][slot.name]["state"] or {}
    if nodes := state.get("nodes"):
        return [f"node {state.get('rank', 0)} of {len(nodes)}: {', '.join(nodes)}; {nodes[0]} serves"]
    router = host.router_of(slot.name)
    if router is None:
        return []
    said = f"behind the router {router.name}, port {router.port}"
    if facts["units"].get(host.services[router.name].unit, {}).get("ActiveState") != "active":
        said += f", which does not run: `fleetctl deploy {host.name} --service {router.name}`"
    routed = facts["slots"][slot.name].get("routed")
    if (
        routed
        and not routed.startswith("UP")
        and filling(facts, slot.name)
        and not facts["slots"][slot.name]["locked_by"]
    ):
        said += f", which sends it nothing: it is {routed} there"
    return [said]


def _left(host: Host, slot: Slot, found: Facts, owner: Facts | None) -> list[str]:
    """What stood in a slot that was emptied, and how it comes back."""
    before = (found["state"] or {}).get("previous") if is_vacant(found["state"]) else None
    if not before or owner or is_vacant(before):
        return []
    return [
        f"emptied; `fleetctl rollback {host.name} --slot {slot.name}` brings {before.get('service')} back"
    ]


def _remedies(state: Facts) -> list[str]:
    """What doctor added to the service that fills the slot: ``pkg-structural-tag: --grammar-backend none``."""
    if not state.get("remedies"):
        return []
    from fleetctl.doctor.remedies import Applied

    return [Applied.from_dict(one).words for one in state["remedies"]]


def _service_of(host: Host, slot: Slot, unit: str | None) -> Service | None:
    """The inventory's service of a unit that fleetctl has not deployed, such as one that adopt found."""
    fitting = (entry for entry in host.services.values() if entry.unit == unit and entry.slot == slot.name)
    return next(fitting, None) if unit else None


def _since(state: Facts, properties: Facts) -> str | None:
    if state.get("since"):
        return datetime.fromtimestamp(state["since"], UTC).isoformat(timespec="seconds")
    try:
        entered = datetime.strptime(properties["ActiveEnterTimestamp"], "%a %Y-%m-%d %H:%M:%S UTC")
    except (KeyError, ValueError):
        return None
    return entered.replace(tzinfo=UTC).isoformat(timespec="seconds")


def _health(health: Facts, owner: Facts | None, properties: Facts) -> str:
    status = health["status"]
    if status == 200:
        return "ready"
    if status is not None:
        return "not ready" if status == 503 else f"HTTP {status}"
    if owner:
        return "no answer"
    if not properties:
        return "empty"
    return "starting" if properties.get("ActiveState") in ("active", "activating", "reloading") else "down"


def _silent_health(state: Facts, properties: Facts) -> str | None:
    """Of what answers nobody: a node but the first."""
    if not state.get("rank"):
        return None
    return "node" if properties.get("ActiveState") == "active" else "down"


def _unit_state(properties: Facts) -> str | None:
    if not properties:
        return None
    if properties.get("LoadState") == "not-found":
        return "not found"
    return f"{properties.get('ActiveState')} ({properties.get('SubState')})"


def _notes(
    slot: Slot, state: Facts, owner: Facts | None, found: Facts, unit: str | None, facts: Facts
) -> list[str]:
    lock = found["locked_by"] or {}
    notes = [f"{rollout_words(lock)} is at work"] if lock else []
    if measured := measured_words(facts, slot.name):
        notes.append(measured)
    notes += [
        f"rollout {rollout} was cut short: the next deploy settles it"
        for rollout in found.get("unfinished") or []
    ]
    unread = facts["errors"].get(f"slots.{slot.name}")
    if unread:
        path = f"{SLOTS}/{slot.name}.json"
        way_on = (
            f" (`rm {path}` there; the next deploy adopts the unit that serves)" if DAMAGED in unread else ""
        )
        notes.append(unread + way_on)
    if owner and not lock and is_vacant(found["state"]):
        held = owner["unit"] or f"{owner['command']} (pid {owner['pid']})"
        notes.append(f"port {slot.port} is held by {held}, started since the slot was emptied")
    else:
        notes += _holder(slot, state, owner, None if lock.get("unit") == unit else unit, lock, bool(unread))
    if state and not lock:
        notes += _drift(state, found, facts["units"].get(unit) or {})
    if remedies := _remedies(state):
        notes.append(f"remedies in force: {'; '.join(remedies)}")
    errors = [facts["errors"].get(part) for part in ("units", "ports")]
    return notes + [error for error in errors if error]


def _holder(
    slot: Slot, state: Facts, owner: Facts | None, unit: str | None, lock: Facts, unread: bool
) -> list[str]:
    """Who has the slot beside what fleetctl recorded; the rollout's own new service is none of them."""
    if owner and owner["unit"] and owner["unit"] == lock.get("unit"):
        return []
    if owner and state and owner["unit"] != state.get("unit"):
        held = f"{owner['command']} (pid {owner['pid']}, {owner['unit'] or 'no unit'})"
        return [f"port {slot.port} is held by a stranger: {held}"]
    if state or unread:
        return []
    if owner:
        held = owner["unit"] or f"{owner['command']} (pid {owner['pid']})"
        return [f"not managed by fleetctl: port {slot.port} is held by {held}"]
    return [f"not managed by fleetctl: {unit} runs, and no record names it"] if unit else []


def _drift(state: Facts, found: Facts, properties: Facts) -> list[str]:
    """What is no longer as the slot's last commit left it."""
    unit, notes = state.get("unit"), []
    if properties.get("UnitFileState") not in ("enabled", None):
        notes.append(f"{unit} is {properties['UnitFileState'] or 'not enabled'}: not started at boot")
    text, sha = properties.get("text"), state.get("unit_sha256")
    if text is not None and sha and hashlib.sha256(text.encode()).hexdigest() != sha:
        notes.append(
            f"the file of {unit} was changed since it was deployed: `fleetctl deploy --plan` shows it"
        )
    if found.get("environment_there") is False:
        notes.append(f"{state.get('environment')} is not there: {unit} could not be started again")
    return notes
