"""``fleetctl swap``: replace the service in a slot by another one."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import complete


def swap(
    old: Annotated[str, typer.Argument(help="The service that leaves.", autocompletion=complete.services)],
    new: Annotated[
        str, typer.Argument(help="The service that takes its slot.", autocompletion=complete.services)
    ],
    host: Annotated[
        str | None, typer.Option(help="The host, where more than one fits.", autocompletion=complete.hosts)
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would change; change nothing.")] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Put doctor's remedies (arguments, variables) into the unit.")
    ] = False,
    blue_green: Annotated[
        bool,
        typer.Option(
            "--blue-green", help="Start it beside the old one, behind the slot's router; no request fails."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Events and the outcome as JSON lines.")] = False,
) -> None:
    """Swap one service for another behind probes that fail fast; the old one comes back if the new one fails.

    Exit codes: 0 swapped or nothing to do, 5 refused and nothing changed, 6 failed and the slot is as before,
    7 not restored, 10 --plan found changes.
    """
    from fleetctl.cli.rollouts import run_rollouts
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import select_swap
    from fleetctl.rollout.deploy import deploy_service

    fleet = load_fleet()
    run_rollouts(
        [select_swap(fleet, old, new, host)],
        lambda host, interrupt, listen: deploy_service(
            fleet, host, new, old, plan, interrupt, listen, fix, blue_green
        ),
        json=json,
    )
