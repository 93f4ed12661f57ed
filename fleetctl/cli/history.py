"""``fleetctl history``: what was rolled out, and what came of it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.agent.rollout.vacant import is_vacant
from fleetctl.cli import complete

if TYPE_CHECKING:
    from fleetctl.inventory.models import Host

COLUMNS = ["when", "host", "slot", "what", "from", "to", "outcome", "took", "by", "id", "reason"]


def history(
    host: Annotated[
        str | None,
        typer.Argument(help="A host; all of the inventory without.", autocompletion=complete.hosts),
    ] = None,
    slot: Annotated[
        str | None, typer.Option("--slot", help="One slot only.", autocompletion=complete.slots)
    ] = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="At most so many for each host.")] = 20,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """List rollouts, the newest first. Exit 8 where some hosts failed, 3 where all did."""
    from fleetctl.cli.output import Output
    from fleetctl.errors import FleetError
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.nearest import hint
    from fleetctl.inventory.select import hosts_of
    from fleetctl.transport.fleet import exit_code, on_hosts

    fleet = load_fleet()
    chosen = hosts_of(fleet, [host] if host else None)
    slots = {name for one in chosen for name in one.slots}
    results = on_hosts(chosen, lambda one: ask(one, slot, lines))
    found = [
        {"host": name, **entry}
        for name, result in results.items()
        if not isinstance(result, FleetError)
        for entry in result
    ]
    found.sort(key=lambda entry: str(entry["id"]), reverse=True)
    if slot and not found and slot not in slots:
        where = ", ".join(one.name for one in chosen)
        raise FleetError(f"no slot {slot}, now or before", where=where, fix=hint(slot, slots, "slots"))
    errors = {name: result for name, result in results.items() if isinstance(result, FleetError)}
    output = Output(json=json)
    if output.json:
        failed = {name: error.to_dict() for name, error in errors.items()}
        output.document({"rollouts": found, "errors": failed})
    else:
        output.table(COLUMNS, [_row(entry) for entry in found])
        for error in errors.values():
            output.print_error(error)
    raise typer.Exit(exit_code(results))


def ask(host: Host, slot: str | None, limit: int) -> list[dict[str, Any]]:
    """One host's rollouts, as the agent's ``history`` gives them."""
    from fleetctl.transport.agent import open_agent

    with open_agent(host) as agent:
        found: list[dict[str, Any]] = agent.call("history", slot=slot, limit=limit)
    return found


def _row(entry: dict[str, Any]) -> list[str]:
    result = entry.get("result") or {}
    took = sum((result.get("seconds") or {}).values())
    return [
        when(entry.get("created")),
        entry["host"],
        entry.get("slot") or "-",
        entry.get("kind") or "-",
        name(entry.get("old")),
        name(entry.get("new")),
        entry["outcome"],
        f"{took:.1f} s" if took else "-",
        entry.get("operator") or "-",
        entry["id"],
        entry.get("reason") or result.get("reason") or "-",
    ]


def when(created: Any) -> str:
    try:
        moment = (
            datetime.fromtimestamp(created)
            if isinstance(created, float | int)
            else datetime.fromisoformat(created)
        )
    except (TypeError, ValueError):
        return "-"
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def name(target: dict[str, Any] | None) -> str:
    """The service of a rollout's target; ``-`` for none."""
    return (
        "-"
        if target is None or is_vacant(target)
        else str(target.get("service") or target.get("unit") or "-")
    )
