"""Facts and a wanted service in, a plan out: what would change in a slot, and in which words. Pure."""

from __future__ import annotations

import difflib
import getpass
import hashlib
import secrets
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from fleetctl import __version__
from fleetctl.inventory.models import ROUTER, Deadlines, Host
from fleetctl.rollout.current import Facts, filling, is_running
from fleetctl.services.sides import routing
from fleetctl.services.target import Target
from fleetctl.words import counted

Kind = Literal["deploy", "swap", "rollback", "stop"]

STARTED_AT_BOOT = {"enabled", "static"}  # a static unit has no [Install]: enabling it does nothing


@dataclass(frozen=True)
class Plan:
    """One slot's rollout, as the agent gets it (docs/architecture.md, "A plan")."""

    kind: Kind
    host: str
    slot: str
    port: int
    gpus: list[int]
    new: Target
    old: Target | None
    deadlines: Deadlines
    restart: bool = True
    overlap: bool = False
    router: dict[str, Any] | None = None
    gates: dict[str, float] = field(default_factory=dict)

    @classmethod
    def for_slot(
        cls,
        kind: Kind,
        host: Host,
        slot: str,
        new: Target,
        old: Target | None,
        deadlines: Deadlines,
        *,
        restart: bool = True,
        overlap: bool = False,
        leaves: Host | None = None,
    ) -> Plan:
        """The rollout that puts ``new`` in ``old``'s place in ``slot``; without ``restart`` it only enables it.

        ``leaves``: the host on the side of ``old``, where a slot has two; with ``overlap`` the old one serves until
        the new one is proven.
        """
        place = host.slots[slot]
        router = routing(host, leaves or host, slot)
        head = (kind, host.name, slot, place.port, list(place.gpus))
        return cls(*head, new, old, deadlines, restart, overlap, router)

    @property
    def subject(self) -> str:
        """The service that it is about: the new one, or the one that leaves a slot empty."""
        return self.old.service if self.old and self.new.is_vacant else self.new.service

    def to_message(self) -> dict[str, Any]:
        """The plan as the JSON object of docs/architecture.md."""
        from fleetctl.doctor import signatures

        now = datetime.now(UTC)
        return {
            "schema": 1,
            "id": f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03}-{self.slot}-{secrets.token_hex(2)}",
            "kind": self.kind,
            "host": self.host,
            "slot": self.slot,
            "port": self.port,
            "gpus": self.gpus,
            "created": now.isoformat(timespec="seconds"),
            "operator": getpass.getuser(),
            "from": socket.gethostname(),
            "fleetctl": __version__,
            "new": self.new.to_dict(),
            "old": self.old.to_dict() if self.old else None,
            "deadlines": self.deadlines.model_dump(),
            "restart": self.restart,
            "overlap": self.overlap,
            "router": self.router,
            "gates": self.gates,
            "signatures": signatures.table(),
        }


@dataclass(frozen=True)
class Difference:
    """What a plan would change: ``changes`` in words, ``diff`` of the unit's file; ``warnings`` where nothing.

    ``restart`` is false where only the enablement differs.
    """

    changes: list[str] = field(default_factory=list)
    diff: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    restart: bool = True


def difference(host: Host, slot: str, new: Target, old: Target | None, facts: Facts) -> Difference:
    """Compare the slot as it is with ``new`` in it; no changes means that nothing is to be done."""
    if new.is_vacant:
        return _emptying(host, slot, old, facts)
    changes: list[str] = []
    unit = facts["units"].get(new.unit, {})
    before = (unit.get("text") or "").splitlines()
    names = (f"{new.unit} on {host.host}", f"{new.unit} planned")
    diff = []
    if new.unit_text is not None:
        diff = list(difflib.unified_diff(before, new.unit_text.splitlines(), *names, lineterm="", n=1))
    if diff:
        changes.append(f"{'change' if before else 'write'} {new.unit}")
    state = filling(facts, slot) or {}
    if old and old.unit != new.unit:
        origin = _origin(old, state)
        verb = "stop" if is_running(facts, old.unit) else "replace (stopped already)"
        changes.append(f"{verb} {old.unit} ({origin})")
    unfinished = facts["slots"][slot].get("unfinished") or []
    is_as_found = not state and old is not None and old.adopted and old.unit == new.unit
    if not changes and not unfinished and _lacks_only_enablement(slot, new, facts, is_as_found):
        return Difference([f"enable {new.unit} at boot, without a restart"], restart=False)
    lasting = [f"settle rollout {rollout} first, which was cut short" for rollout in unfinished]
    if unit.get("UnitFileState") not in STARTED_AT_BOOT:
        lasting.append(f"enable {new.unit} at boot")
    recorded = state.get("unit") == new.unit and state.get("service") == new.service
    if not changes and not recorded and not is_as_found:
        lasting.append(f"record {new.service} as what fills the slot")
    if (changes or lasting) and old and old.unit == new.unit and is_running(facts, old.unit):
        changes.append(f"stop {old.unit} as it is")
    if changes or lasting or not is_running(facts, new.unit):
        changes.append(f"start {new.unit} ({new.service}, mode {new.mode}) on port {host.slots[slot].port}")
    changes += lasting
    return Difference(changes, diff, _warnings(slot, new, facts) if not changes else [])


def _emptying(host: Host, slot: str, old: Target | None, facts: Facts) -> Difference:
    """What changes where nothing is to be in the slot."""
    changes = []
    if old:
        found = facts["units"].get(old.unit, {})
        said = f"{old.unit} ({_origin(old, filling(facts, slot) or {})})"
        running = is_running(facts, old.unit)
        changes.append(f"stop {said}" if running else f"take {said} out of the slot; it does not run")
        if found.get("UnitFileState") == "enabled":
            changes.append(f"no longer start {old.unit} at boot")
        if running and slot in host.routers:
            changes.append(f"leave nobody on port {host.slots[slot].port}: what its clients ask fails")
        if running and (router := host.router_of(slot)) and len(router.slots) == 1:
            changes.append(
                f"leave nothing behind the router {router.name}: requests to port {router.port} fail"
            )
    unfinished = facts["slots"][slot].get("unfinished") or []
    changes += [f"settle rollout {rollout} first, which was cut short" for rollout in unfinished]
    return Difference(changes)


def _origin(old: Target, state: Facts) -> str:
    """Whose the unit is that leaves: a service's, or one that was found; ``state``: the slot's record."""
    if not old.adopted:
        return old.service
    return (
        "adopted, put back by fleetctl"
        if state.get("unit") == old.unit
        else "not deployed by fleetctl, adopted"
    )


def _lacks_only_enablement(slot: str, new: Target, facts: Facts, is_as_found: bool) -> bool:
    """Whether what the last commit started, or what was found there, serves by the file that systemd has read."""
    unit, state = facts["units"].get(new.unit, {}), facts["slots"][slot]["state"] or {}
    text = new.unit_text if new.unit_text is not None else unit.get("text")
    recorded = (new.unit, new.service, hashlib.sha256((text or "").encode()).hexdigest())
    return (
        unit.get("UnitFileState") == "disabled"
        and is_running(facts, new.unit)
        and unit.get("NeedDaemonReload") != "yes"
        and (is_as_found or (state.get("unit"), state.get("service"), state.get("unit_sha256")) == recorded)
        and not _warnings(slot, new, facts)
    )


def _warnings(slot: str, new: Target, facts: Facts) -> list[str]:
    health = facts["slots"][slot]["health"] or {}
    if new.engine == ROUTER or new.rank:
        return []  # what stands behind a router, or first among the nodes, has a status of its own
    if health.get("status") != 200:
        seen = f"answers {health['status']}" if health.get("status") else "does not answer"
        restarts = facts["units"].get(new.unit, {}).get("NRestarts")
        often = f", and systemd has restarted it {counted(restarts, 'time')}" if restarts else ""
        return [f"{new.unit} is deployed as wanted, but its /health {seen}{often}"]
    if new.model_id not in health.get("models", []):
        return [f"{new.unit} is deployed as wanted, but serves {health.get('models')}, not {new.model_id}"]
    return []
