"""``fleetctl hosts``: what the inventory says; no host is contacted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fleetctl.inventory.loader import Fleet
    from fleetctl.inventory.models import Host


def hosts(json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """List the hosts of the inventory, with their slots and services. Connects to none of them."""
    from fleetctl.cli.output import Output
    from fleetctl.inventory.loader import load_fleet

    fleet = load_fleet()
    output = Output(json=json)
    if output.json:
        output.document({"hosts": [_document(fleet, host) for host in fleet.hosts.values()]})
        return
    rows = [row for host in fleet.hosts.values() for row in _rows(host)]
    output.table(["host", "address", "gpus", "slot", "port", "slot's gpus", "services"], rows)


def _rows(host: Host) -> list[list[str]]:
    address = host.ssh.hostname or f"{host.name} (~/.ssh/config)"
    head = [host.name, address, f"{host.gpus.count} × {host.gpus.arch or host.gpus.name or 'GPU'}"]
    rows = []
    for slot in host.slots.values():
        services = [
            f"{entry.name} ({entry.mode})" for entry in host.services.values() if entry.slot == slot.name
        ]
        gpus = ",".join(str(gpu) for gpu in slot.gpus)
        rows.append([*head, slot.name, str(slot.port), gpus or "-", ", ".join(services) or "-"])
    return rows or [[*head, "-", "-", "-", "-"]]


def _document(fleet: Fleet, host: Host) -> dict[str, Any]:
    source = fleet.sources[host.name]
    return {"file": source.shown, **host.model_dump(mode="json")}
