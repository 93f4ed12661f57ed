"""``fleetctl rollback``: put back what filled the slot before the last commit."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import complete
from fleetctl.cli.fleet_options import HOSTS, PARALLEL, MaxFailures, MaxParallel


def rollback(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(help=f"{HOSTS} Where more than one fits.", autocompletion=complete.hosts),
    ] = None,
    slot: Annotated[
        str | None, typer.Option(help="The slot, where the host has several.", autocompletion=complete.slots)
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would change; change nothing.")] = False,
    max_parallel: MaxParallel = PARALLEL,
    max_failures: MaxFailures = 0,
    json: Annotated[bool, typer.Option("--json", help="Events and the outcome as JSON lines.")] = False,
) -> None:
    """Put the slot's previous service back, by the same probes; a second rollback undoes the first.

    Exit codes: 0 rolled back, 2 nothing to go back to, 5 refused and nothing changed, 6 failed and the slot is
    as before, 7 not restored, 8 part of the hosts failed or were not begun, 10 --plan found changes.
    """
    from fleetctl.cli.fleet_options import pace
    from fleetctl.cli.rollouts import Request, run_rollouts
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import select_hosts, select_slot
    from fleetctl.rollout.rollback import rollback_slot

    fleet = load_fleet()
    chosen = select_hosts(fleet, hosts, slot=slot)
    slots = {host.name: select_slot(host, slot) for host in chosen}
    request = Request(
        fleet,
        {"kind": "rollback", "slot": slot},
        slots=slots,
        pace=pace(max_parallel, 0, max_failures, 0.0),
        plan=plan,
    )
    run_rollouts(
        chosen,
        lambda host, interrupt, listen: rollback_slot(fleet, host, slots[host.name], plan, interrupt, listen),
        request,
        json=json,
    )
