"""Which host, slot and service the operator means. Pure; every error is exit 2 and names the candidates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host, Mode, Service
from fleetctl.inventory.nearest import hint
from fleetctl.inventory.selectors import is_selector, select


def select_host(
    fleet: Fleet,
    name: str | None,
    *,
    service: str | None = None,
    mode: str | None = None,
    slot: str | None = None,
) -> Host:
    """The host called ``name``; without a name the only one that has what else is asked for."""
    if name is not None:
        if name in fleet.hosts:
            return fleet.hosts[name]
        where = str(fleet.inventory)
        if name in fleet.groups or is_selector(name):
            what = f"one host is taken here, by its name; {name} is a {'group' if name in fleet.groups else 'selector'}"
            raise FleetError(what, where=where, fix=f"name one of the hosts: {_listed(fleet.hosts)}")
        raise FleetError(f"no host {name}", where=where, fix=hint(name, fleet.hosts, "hosts"))
    fitting = [host for host in fleet.hosts.values() if _has(host, service, mode, slot)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise FleetError(
            f"which host? {len(fitting)} fit: {_listed(host.name for host in fitting)}",
            fix="name one of them",
        )
    raise _nowhere(fleet, service, mode, slot)


def select_hosts(
    fleet: Fleet,
    words: Sequence[str] | None,
    *,
    service: str | None = None,
    mode: str | None = None,
    slot: str | None = None,
) -> list[Host]:
    """The hosts that the selectors ``words`` mean; without any the only one that has what else is asked for."""
    if not words:
        return [select_host(fleet, None, service=service, mode=mode, slot=slot)]
    return hosts_of(fleet, words)


def hosts_of(fleet: Fleet, words: Sequence[str] | None) -> list[Host]:
    """The hosts that the selectors ``words`` mean; without any all of the inventory."""
    return select(words, fleet.hosts, fleet.groups) if words else list(fleet.hosts.values())


def require_apart(hosts: Sequence[Host]) -> None:
    """FleetError (exit 2) where two of the hosts are one machine under two names: it would be changed twice."""
    seen: dict[tuple[str, int, str | None], Host] = {}
    for host in hosts:
        place = (host.ssh.hostname or host.name, host.ssh.port or 22, host.ssh.proxy_jump)
        if place in seen:
            raise FleetError(
                f"{seen[place].name} and {host.name} are one machine, {place[0]}:{place[1]}",
                fix="delete the file of one of them, or name only one",
            )
        seen[place] = host


def select_slot(host: Host, slot: str | None) -> str:
    """The slot's name; without one the host's default slot, or its only one."""
    if slot is not None:
        if slot not in host.slots:
            raise FleetError(f"no slot {slot} on {host.name}", fix=hint(slot, host.slots, "slots"))
        return slot
    if host.default_slot:
        return host.default_slot
    if len(places := [name for name in host.slots if name not in host.routers]) == 1:
        return places[0]
    raise FleetError(
        f"which slot of {host.name}? It has {_listed(host.slots) or 'none'}",
        fix="name it: --slot, or give the host a default_slot",
    )


def select_service(
    host: Host, *, service: str | None = None, mode: str | None = None, slot: str | None = None
) -> str:
    """The name of the one service that is meant.

    Where several are left and no slot was named, the host's default slot decides.
    """
    if service is not None and service not in host.services:
        raise FleetError(f"no service {service} on {host.name}", fix=hint(service, host.services, "services"))
    if slot is not None:
        select_slot(host, slot)
    if mode is not None:
        _check_mode(mode, host.services)
    fitting = [entry for entry in host.services.values() if _fits(entry, service, mode, slot)]
    if not fitting:
        raise _no_service(host, service, mode, slot)
    if len(fitting) > 1 and slot is None:
        fitting = [entry for entry in fitting if entry.slot == host.default_slot] or fitting
    if len(fitting) > 1:
        raise FleetError(
            f"which service of {host.name}? {len(fitting)} fit: {_described(fitting)}",
            fix="name it: --service NAME",
        )
    return fitting[0].name


def select_services(
    hosts: Sequence[Host], *, service: str | None = None, mode: str | None = None, slot: str | None = None
) -> dict[str, str]:
    """The service that is meant on each host, by the host's name; one error of all hosts that lack it."""
    found: dict[str, str] = {}
    lacking: list[tuple[Host, FleetError]] = []
    for host in hosts:
        try:
            found[host.name] = select_service(host, service=service, mode=mode, slot=slot)
        except FleetError as error:
            lacking.append((host, error))
    if not lacking:
        return found
    if len(hosts) == 1 or len(lacking) == len(hosts):
        raise lacking[0][1]
    term = f"service={service}" if service else f"mode={mode}" if mode else f"slot={slot}"
    raise FleetError(
        f"{len(lacking)} of {len(hosts)} hosts do not have what is asked for; nothing was changed",
        fix=f"narrow the selector, such as '@all,{term}'",
        evidence=[f"{host.name}: {error.what}" for host, error in lacking],
    )


def select_swaps(fleet: Fleet, old: str, new: str, words: Sequence[str] | None) -> list[Host]:
    """The hosts that ``words`` mean, on each of which ``new`` can take ``old``'s place; without words the only one."""
    if not words:
        return [select_swap(fleet, old, new)]
    return [select_swap(fleet, old, new, host.name) for host in hosts_of(fleet, words)]


def select_swap(fleet: Fleet, old: str, new: str, host: str | None = None) -> Host:
    """The host on which ``new`` takes ``old``'s place; both must be services of one slot."""
    if old == new:
        raise FleetError(
            f"{old} cannot be swapped for itself",
            fix=f"fleetctl deploy --service {old} brings it as the inventory has it",
        )
    if host is not None:
        chosen = select_host(fleet, host)
        select_service(chosen, service=old)
        select_service(chosen, service=new)
        if not _share_slot(chosen, old, new):
            raise _no_shared_slot(chosen, old, new)
        return chosen
    both = [entry for entry in fleet.hosts.values() if old in entry.services and new in entry.services]
    fitting = [entry for entry in both if _share_slot(entry, old, new)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise FleetError(
            f"which host? {_listed(entry.name for entry in fitting)} have both {old} and {new}",
            fix="name one of them: --host",
        )
    if both:
        raise _no_shared_slot(both[0], old, new)
    for name in (old, new):
        if not _has_somewhere(fleet, name):
            raise _nowhere(fleet, name, None, None)
    raise FleetError(f"no host has both {old} and {new}", fix=_where_services_are(fleet, (old, new)))


def _fits(entry: Service, service: str | None, mode: str | None, slot: str | None) -> bool:
    if (entry.is_router or entry.is_replica) and entry.name != service and entry.slot != slot:
        return False  # meant only where it, or its slot, is named
    return service in (None, entry.name) and mode in (None, entry.mode) and slot in (None, entry.slot)


def _has(host: Host, service: str | None, mode: str | None, slot: str | None) -> bool:
    if service is None and mode is None:
        return slot is None or slot in host.slots
    return any(_fits(entry, service, mode, slot) for entry in host.services.values())


def _has_somewhere(fleet: Fleet, service: str) -> bool:
    return any(service in host.services for host in fleet.hosts.values())


def _share_slot(host: Host, old: str, new: str) -> bool:
    return host.services[old].slot == host.services[new].slot


def _check_mode(mode: str, services: Iterable[str]) -> None:
    if mode in get_args(Mode):
        return
    if mode in services:
        raise FleetError(f"{mode} is no mode but a service", fix=f"--service {mode}")
    raise FleetError(f"no mode {mode}", fix=hint(mode, get_args(Mode), "modes"))


def _no_service(host: Host, service: str | None, mode: str | None, slot: str | None) -> FleetError:
    has = f"it has {_described(host.services.values())}" if host.services else "it has none"
    if service is not None:
        entry = host.services[service]
        return FleetError(
            f"the service {service} of {host.name} has the mode {entry.mode} and the slot {entry.slot}, "
            "not what was asked for",
            fix=f"--service {service} alone, or another service; {has}",
        )
    asked = f"has the mode {mode}" if mode else "is there"
    place = f"in slot {slot} of {host.name}" if slot else f"on {host.name}"
    return FleetError(f"no service {place} {asked}; {has}", fix="choose one of them: --service NAME")


def _nowhere(fleet: Fleet, service: str | None, mode: str | None, slot: str | None) -> FleetError:
    hosts = fleet.hosts.values()
    services = {name for host in hosts for name in host.services}
    if service is not None and service not in services:
        return FleetError(f"no host has a service {service}", fix=hint(service, services, "services"))
    if mode is not None:
        _check_mode(mode, services)
    slots = {name for host in hosts for name in host.slots}
    if slot is not None and slot not in slots:
        return FleetError(f"no host has a slot {slot}", fix=hint(slot, slots, "slots"))
    asked = [
        f"{word} {value}" for word, value in (("name", service), ("mode", mode), ("slot", slot)) if value
    ]
    return FleetError(
        f"no host has a service with the {' and the '.join(asked)}",
        fix="fleetctl hosts lists every host's services",
    )


def _no_shared_slot(host: Host, old: str, new: str) -> FleetError:
    slots = f"{old} stands in {host.services[old].slot}, {new} in {host.services[new].slot}"
    return FleetError(
        f"{old} and {new} share no slot on {host.name}: {slots}",
        fix=f"fleetctl deploy {host.name} --service {new} fills its own slot",
    )


def _where_services_are(fleet: Fleet, services: Iterable[str]) -> str:
    return "; ".join(
        f"{service} is on {_listed(host.name for host in fleet.hosts.values() if service in host.services)}"
        for service in services
    )


def _described(services: Iterable[Service]) -> str:
    return ", ".join(f"{entry.name} ({entry.mode}, slot {entry.slot})" for entry in services)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
