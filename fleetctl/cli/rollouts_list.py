"""``fleetctl rollouts``: what is under way on the hosts, what was cut short, and each slot's last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete
from fleetctl.cli.fleet_options import HOSTS

if TYPE_CHECKING:
    from fleetctl.rollout.attach import Found

COLUMNS = ["host", "slot", "outcome", "what", "from", "to", "when", "by", "now", "id"]


def rollouts(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(help=f"{HOSTS} All of the inventory without.", autocompletion=complete.hosts),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """List rollouts that run or were cut short, and the last of each slot.

    Follow one with attach, undo one with abort. Exit 8 where some hosts failed, 3 where all did.
    """
    from fleetctl.cli.output import Output
    from fleetctl.errors import Exit
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import hosts_of
    from fleetctl.rollout.attach import survey
    from fleetctl.transport.fleet import exit_code

    fleet = load_fleet()
    chosen = hosts_of(fleet, hosts)
    found, errors = survey(chosen)
    output = Output(json=json)
    if output.json:
        failed = {name: error.to_dict() for name, error in errors.items()}
        output.document(
            {"rollouts": [{"host": one.host.name, **one.entry} for one in found], "errors": failed}
        )
    else:
        output.table(COLUMNS, [_row(one) for one in found])
        for error in errors.values():
            output.print_error(error)
    code = exit_code({host.name: errors.get(host.name) or Exit.OK for host in chosen})
    raise typer.Exit(int(code))


def _row(found: Found) -> list[str]:
    from fleetctl.cli.history import name, when

    entry = found.entry
    return [
        found.host.name,
        entry.get("slot") or "-",
        entry["outcome"],
        entry.get("kind") or "-",
        name(entry.get("old")),
        name(entry.get("new")),
        when(entry.get("created")),
        entry.get("operator") or "-",
        _now(entry),
        entry["id"],
    ]


def _now(entry: dict[str, Any]) -> str:
    """What a rollout without a result did last; what fills the slot since one with a result."""
    last = entry.get("last")
    if last:
        left = f" ({last['left_s']:.0f} s left)" if last.get("left_s") is not None else ""
        return f"{last['step']}: {last['text']}{left}"
    return (entry.get("result") or {}).get("left") or entry.get("reason") or "-"
