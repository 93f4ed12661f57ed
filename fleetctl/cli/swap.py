"""``fleetctl swap``: replace the service in a slot by another one."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import complete
from fleetctl.cli.fleet_options import HOSTS, PARALLEL, Canary, MaxFailures, MaxParallel, Pause, Resume


def swap(
    old: Annotated[str, typer.Argument(help="The service that leaves.", autocompletion=complete.services)],
    new: Annotated[
        str, typer.Argument(help="The service that takes its slot.", autocompletion=complete.services)
    ],
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help=f"{HOSTS} Where more than one fits.", autocompletion=complete.hosts),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would change; change nothing.")] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Put doctor's remedies (arguments, variables) into the unit.")
    ] = False,
    max_parallel: MaxParallel = PARALLEL,
    canary: Canary = 0,
    max_failures: MaxFailures = 0,
    pause: Pause = 0.0,
    resume: Resume = False,
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
    7 not restored, 8 part of the hosts failed or were not begun, 10 --plan found changes.
    """
    from fleetctl.cli.fleet_options import pace
    from fleetctl.cli.rollouts import Request, run_rollouts
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import select_swaps
    from fleetctl.rollout.deploy import deploy_service

    fleet = load_fleet()
    chosen = select_swaps(fleet, old, new, hosts)
    request = Request(
        fleet,
        {"kind": "swap", "old": old, "new": new, "fix": fix, "blue_green": blue_green},
        slots={host.name: host.services[new].slot for host in chosen},
        services={host.name: new for host in chosen},
        pace=pace(max_parallel, canary, max_failures, pause),
        resume=resume,
        plan=plan,
    )
    run_rollouts(
        chosen,
        lambda host, interrupt, listen: deploy_service(
            fleet, host, new, old, plan, interrupt, listen, fix, blue_green
        ),
        request,
        json=json,
    )
