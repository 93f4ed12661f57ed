"""Where a service goes in a slot with a router: the place in use, or beside it with ``--blue-green``. Pure."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host
from fleetctl.rollout.current import Facts, is_running
from fleetctl.rollout.plan import Difference
from fleetctl.services.sides import other_side
from fleetctl.services.target import Target


def require_room(fleet: Fleet, host: Host, service_name: str) -> None:
    """FleetError (exit 2) where the inventory has no second place for the service's slot, or no router."""
    service = host.services[service_name]
    slot = host.slots[service.slot]
    if slot.spare is None:
        raise FleetError(
            f"the slot {slot.name} of {host.name} has no second place for --blue-green",
            where=fleet.where(host.name, "slots", slot.name),
            fix="give it spare: {gpus: […], port: …} and a router (docs/router.md); or swap without --blue-green",
        )
    if service.nodes:
        raise FleetError(
            f"{service_name} spans several hosts, whose nodes start and stop as one",
            where=fleet.where(host.name, "services", service_name, "nodes"),
            fix="swap without --blue-green",
        )
    if service.keep_unit:
        raise FleetError(
            f"the unit of {service_name} is the host's own (keep_unit): it cannot be written for another place",
            where=fleet.where(host.name, "services", service_name, "keep_unit"),
            fix="swap without --blue-green, or give the service a template",
        )


def beside(own: Host, filled: Host, slot: str, old: Target | None, facts: Facts) -> Host | None:
    """The host on its other side where the old service serves there meanwhile; None where none runs.

    ``own``: the inventory's host; ``filled``: on the side in use. FleetError (exit 5) where the router does not run.
    """
    if old is None or not is_running(facts, old.unit):
        return None
    router = own.router_of(slot)
    assert router is not None
    unit = own.services[router.name].unit
    if not is_running(facts, unit):
        raise FleetError(
            f"the router {router.name} does not run: there is nobody to move the traffic; nothing was changed",
            where=f"{own.name}, {unit}",
            fix=f"fleetctl deploy {own.name} --service {router.name}",
            exit=Exit.PREFLIGHT,
        )
    return other_side(own, filled, slot)


def in_words(found: Difference, host: Host, slot: str, old: Target) -> Difference:
    """The changes of an overlapping rollout in its own order: the old service is stopped last."""
    router = host.router_of(slot)
    assert router is not None
    first = [change for change in found.changes if not change.startswith(("stop ", "replace "))]
    last = [
        f"move the traffic of port {router.port} to it",
        f"finish the requests of {old.unit}, then stop it",
    ]
    return replace(found, changes=[*first, *last])
