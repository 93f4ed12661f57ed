"""``fleetctl deploy``: put a service into its slot."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import complete
from fleetctl.cli.fleet_options import HOSTS, PARALLEL, Canary, MaxFailures, MaxParallel, Pause, Resume


def deploy(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(help=f"{HOSTS} May be left out where only one fits.", autocompletion=complete.hosts),
    ] = None,
    service: Annotated[
        str | None, typer.Option(help="The service to deploy.", autocompletion=complete.services)
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="The service by its mode.", autocompletion=complete.modes)
    ] = None,
    slot: Annotated[
        str | None,
        typer.Option(help="The slot, where the mode alone is ambiguous.", autocompletion=complete.slots),
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
    """Put a service into its slot: environment, unit, start, probes; or everything back as it was.

    Exit codes: 0 deployed or nothing to do, 5 refused and nothing changed, 6 failed and the slot is as before
    (the old service back and proven, or empty), 7 not restored, 8 part of the hosts failed or were not begun,
    10 --plan found changes.
    """
    from fleetctl.cli.fleet_options import pace
    from fleetctl.cli.rollouts import Request, run_rollouts
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import select_hosts, select_services
    from fleetctl.rollout.deploy import deploy_service

    fleet = load_fleet()
    chosen = select_hosts(fleet, hosts, service=service, mode=mode, slot=slot)
    services = select_services(chosen, service=service, mode=mode, slot=slot)
    request = Request(
        fleet,
        {
            "kind": "deploy",
            "service": service,
            "mode": mode,
            "slot": slot,
            "fix": fix,
            "blue_green": blue_green,
        },
        slots={host.name: host.services[services[host.name]].slot for host in chosen},
        services=services,
        pace=pace(max_parallel, canary, max_failures, pause),
        resume=resume,
        plan=plan,
    )
    run_rollouts(
        chosen,
        lambda host, interrupt, listen: deploy_service(
            fleet, host, services[host.name], None, plan, interrupt, listen, fix, blue_green
        ),
        request,
        json=json,
    )
