"""``fleetctl rollback``: put back what filled the slot before the last commit."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import complete


def rollback(
    host: Annotated[
        str | None, typer.Argument(help="The host, where more than one fits.", autocompletion=complete.hosts)
    ] = None,
    slot: Annotated[
        str | None, typer.Option(help="The slot, where the host has several.", autocompletion=complete.slots)
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would change; change nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Events and the outcome as JSON lines.")] = False,
) -> None:
    """Put the slot's previous service back, by the same probes; a second rollback undoes the first.

    Exit codes: 0 rolled back, 2 nothing to go back to, 5 refused and nothing changed, 6 failed and the slot is
    as before, 7 not restored, 10 --plan found changes.
    """
    from fleetctl.cli.rollouts import run_rollouts
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import select_host, select_slot
    from fleetctl.rollout.rollback import rollback_slot

    fleet = load_fleet()
    chosen = select_host(fleet, host, slot=slot)
    place = select_slot(chosen, slot)
    run_rollouts(
        [chosen],
        lambda host, interrupt, listen: rollback_slot(fleet, host, place, plan, interrupt, listen),
        json=json,
    )
