"""What the inventory alone says against a playbook's steps, before the first of them is carried out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fleetctl.environment.spec import load_spec
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.select import (
    hosts_of,
    require_apart,
    select_host,
    select_hosts,
    select_services,
    select_slot,
    select_swaps,
)
from fleetctl.playbook.commands import Command
from fleetctl.rollout.bluegreen import require_room

Given = Mapping[str, Any]
WRITES_INVENTORY = ("adopt",)
"""What comes after these may name what they write."""


def check_commands(commands: Sequence[Command], fleet: Fleet, skip: Collection[int]) -> None:
    """FleetError (exit 2) for the first command, but those at ``skip``, whose hosts, services or slots there are not.

    One whose step accepts exit 2 may be as wrong as it likes.
    """
    for at, command in enumerate(commands):
        if command.verb in {(verb,) for verb in WRITES_INVENTORY}:
            return
        check = CHECKS.get(" ".join(command.verb))
        if check is None or at in skip or Exit.INPUT in command.accept:
            continue
        try:
            check(fleet, command.given)
        except FleetError as error:
            raise FleetError(
                f"step {at + 1} of {len(commands)}, {command.step}: {error.what}; nothing was changed",
                where=error.where or command.shown,
                fix=error.fix,
                evidence=error.evidence,
            ) from None


def _deploy(fleet: Fleet, given: Given) -> None:
    named = {name: given.get(name) for name in ("service", "mode", "slot")}
    hosts = select_hosts(fleet, given.get("hosts"), **named)
    services = select_services(hosts, **named)
    require_apart(hosts)
    if given.get("blue_green"):
        for host in hosts:
            require_room(fleet, host, services[host.name])


def _swap(fleet: Fleet, given: Given) -> None:
    new = given["new"]
    hosts = select_swaps(fleet, given["old"], new, given.get("hosts"))
    require_apart(hosts)
    if given.get("blue_green"):
        for host in hosts:
            require_room(fleet, host, new)


def _slots(fleet: Fleet, given: Given) -> None:
    service, slot = given.get("service"), given.get("slot")
    hosts = select_hosts(fleet, given.get("hosts"), service=service, slot=slot)
    require_apart(hosts)
    if service:
        select_services(hosts, service=service, slot=slot)
    else:
        for host in hosts:
            select_slot(host, slot)


def _hosts(fleet: Fleet, given: Given) -> None:
    hosts_of(fleet, given.get("hosts"))


def _doctor(fleet: Fleet, given: Given) -> None:
    if any(given.get(name) for name in ("local", "facts", "logs")):
        return
    hosts = hosts_of(fleet, given.get("hosts"))
    if given.get("hosts") and (service := given.get("service")):
        select_services(hosts, service=service)


def _build(fleet: Fleet, given: Given) -> None:
    hosts_of(fleet, [given["hosts"]])
    load_spec(fleet.root, given["name"])


def _bench(fleet: Fleet, given: Given) -> None:
    from fleetctl.bench.points import choose_services
    from fleetctl.bench.suite import load_suite

    host = select_host(fleet, given["host"])
    choose_services(host, load_suite(fleet.root, given["suite"]), given.get("services") or [])


CHECKS: dict[str, Callable[[Fleet, Given], None]] = {
    "deploy": _deploy,
    "swap": _swap,
    "rollback": _slots,
    "stop": _slots,
    "status": _hosts,
    "doctor": _doctor,
    "env list": _hosts,
    "env build": _build,
    "bench run": _bench,
    "sweep": _bench,
    "tune": _bench,
}
