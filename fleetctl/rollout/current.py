"""What fills a slot now, read from the host's facts. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fleetctl.agent.paths import SLOTS
from fleetctl.agent.rollout.vacant import is_vacant
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import Host
from fleetctl.services.target import Target, recorded_target

RUNNING = {"active", "activating", "reloading", "deactivating"}
PARTS = ("ports", "units")
DAMAGED = ".json is damaged"

Facts = dict[str, Any]


def current_target(host: Host, slot: str, facts: Facts) -> Target | None:
    """The service that a rollout in ``slot`` takes the place of, or None where the slot is empty.

    It is the unit that owns the slot's port, adopted where fleetctl did not deploy it; where nobody owns the
    port, the unit of the slot's last commit, or that one of its services which runs without a record. Raises
    ``FleetError``: exit 4 where a rollout is at work there; exit 5 where a process outside any service unit holds
    the port (nothing could bring that one back), and where the host could not say what is there.
    """
    unread = [
        f"{part}: {facts['errors'][part]}" for part in (f"slots.{slot}", *PARTS) if part in facts["errors"]
    ]
    if unread:
        path = f"{SLOTS}/{slot}.json"
        fix = f"see {path} and systemd there; nothing was changed"
        if "PermissionError" in unread[0]:
            fix = "it needs root: `ssh: {sudo: true}` in the host's file of the inventory, or `ssh: {user: root}`"
        if DAMAGED in unread[0]:
            fix = f"remove it: `rm {path}` there; the next deploy adopts the unit that serves, and only what was "
            fix += "there before it is forgotten"
        what = "the host could not say what fills the slot"
        if "PermissionError" in unread[0]:
            what = "needs root: this user may not read what fills the slot"
            fix = "`ssh: {sudo: true}` in the host's file of the inventory, or log in as root: `ssh: {user: root}`"
        raise FleetError(
            what,
            where=f"{host.host}, slot {slot}",
            fix=fix,
            evidence=unread,
            exit=Exit.PREFLIGHT,
        )
    if lock := facts["slots"][slot]["locked_by"]:
        raise FleetError(
            f"slot {slot} is locked by {rollout_words(lock)}",
            where=f"{host.host}, slot {slot}",
            fix=f"follow it: `fleetctl attach {host.host} --slot {slot}`; or have it undo itself: "
            f"`fleetctl abort {host.host} --slot {slot}`",
            exit=Exit.LOCKED,
        )
    state = filling(facts, slot)
    owner = facts["ports"].get(str(host.slots[slot].port))
    if facts["slots"][slot].get("unfinished"):
        # Settled first: then it is what the last commit left.
        return recorded_target(host, slot, state, adopted=bool(state.get("adopted"))) if state else None
    if owner and not str(owner["unit"] or "").endswith(".service"):
        raise FleetError(
            f"port {host.slots[slot].port} is held by pid {owner['pid']} ({owner['command']}), "
            "which no service unit owns",
            where=f"{host.host}, slot {slot}",
            fix=f"stop that process on {host.host}, or give the slot another port; fleetctl stops only units, "
            "which it can start again",
            exit=Exit.PREFLIGHT,
        )
    if owner and (state is None or owner["unit"] != state["unit"]):
        return recorded_target(host, slot, {"unit": owner["unit"]}, adopted=True)
    if state is not None:
        return recorded_target(host, slot, state, adopted=bool(state.get("adopted")))
    unit = unrecorded_unit(host, slot, facts)
    return recorded_target(host, slot, {"unit": unit}, adopted=True) if unit else None


def unrecorded_unit(host: Host, slot: str, facts: Facts) -> str | None:
    """The unit of one of the slot's services that runs (or crashes again and again) where no record names any."""
    names = [service.unit for service in host.services.values() if service.slot == slot]
    running = [name for name in names if is_running(facts, name)]
    return running[0] if len(running) == 1 and filling(facts, slot) is None else None


def filling(facts: Facts, slot: str) -> Facts | None:
    """What the slot's record says fills it; None where it has none, or says that the slot was emptied."""
    state: Facts | None = facts["slots"][slot]["state"]
    return None if is_vacant(state) else state


def spans(state: Facts | None) -> list[str]:
    """The hosts that the service of a slot's record spans; empty for a service of one host."""
    return list((state or {}).get("nodes") or [])


def rollout_words(lock: Facts) -> str:
    """The rollout that holds a slot: its id, what it does, by whom, from where and since when (local time)."""
    what = f" ({lock['kind']} of {lock.get('service')})" if lock.get("kind") else ""
    by = f" of {lock['operator']}" if lock.get("operator") else ""
    by += f" from {lock['from']}" if lock.get("from") else ""
    since = f" since {datetime.fromtimestamp(lock['since']):%H:%M:%S}" if lock.get("since") else ""
    return f"rollout {lock.get('rollout', 'unknown')}{what}{by}{since}"


def is_running(facts: Facts, unit: str) -> bool:
    """Whether systemd holds ``unit`` for started."""
    return facts["units"].get(unit, {}).get("ActiveState") in RUNNING
