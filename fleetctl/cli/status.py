"""``fleetctl status``: what fills each slot, on one screen."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete
from fleetctl.cli.fleet_options import HOSTS
from fleetctl.words import counted

if TYPE_CHECKING:
    from fleetctl.errors import FleetError
    from fleetctl.inventory.models import Host
    from fleetctl.rollout.status import SlotStatus

COLUMNS = ["host", "slot", "service", "mode", "since", "health", "environment", "unit", "note"]


def status(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(help=f"{HOSTS} All of the inventory without.", autocompletion=complete.hosts),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show what fills each slot, since when, how it is. Exit 8 where some hosts failed, 3 where all did."""
    from fleetctl.cli.output import Output
    from fleetctl.errors import FleetError
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import hosts_of
    from fleetctl.transport.fleet import exit_code, on_hosts

    fleet = load_fleet()
    chosen = hosts_of(fleet, hosts)
    results = on_hosts(chosen, ask)
    output = Output(json=json)
    if output.json:
        output.document({"hosts": [_document(name, result) for name, result in results.items()]})
    else:
        output.table(COLUMNS, [row for name, result in results.items() for row in _rows(name, result)])
        for result in results.values():
            if isinstance(result, FleetError):
                output.print_error(result)
    raise typer.Exit(exit_code(results))


def ask(host: Host) -> list[SlotStatus]:
    """One host's slots, over one connection."""
    from fleetctl.rollout.status import facts_arguments, slot_statuses
    from fleetctl.transport.agent import open_agent

    with open_agent(host) as agent:
        return slot_statuses(host, agent.call("facts", **facts_arguments(host)))


def _document(host: str, result: list[SlotStatus] | FleetError) -> dict[str, Any]:
    if isinstance(result, list):
        return {"host": host, "slots": [slot.to_dict() for slot in result], "error": None}
    return {"host": host, "slots": [], "error": result.to_dict()}


def _rows(host: str, result: list[SlotStatus] | FleetError) -> list[list[str]]:
    if not isinstance(result, list):
        return [[host, *"-------", result.what]]
    return [_row(slot) for slot in result] or [[host, *"-------", "no slots"]]


def _row(slot: SlotStatus) -> list[str]:
    since = datetime.fromisoformat(slot.since).astimezone().strftime("%Y-%m-%d %H:%M") if slot.since else "-"
    state = slot.unit_state or "-"
    restarts = f", restarted {counted(slot.restarts, 'time')}" if slot.restarts else ""
    return [
        slot.host,
        slot.slot,
        slot.service or "-",
        slot.mode or "-",
        since,
        slot.health,
        (slot.environment_digest or "-")[:12],
        state + restarts,
        "; ".join(slot.notes) or "-",
    ]
