"""``fleetctl stop``: empty a slot."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import complete
from fleetctl.cli.fleet_options import HOSTS, PARALLEL, MaxFailures, MaxParallel


def stop(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(help=f"{HOSTS} Where more than one fits.", autocompletion=complete.hosts),
    ] = None,
    slot: Annotated[
        str | None,
        typer.Option("--slot", help="The slot, where the host has several.", autocompletion=complete.slots),
    ] = None,
    service: Annotated[
        str | None,
        typer.Option(
            "--service",
            help="Only where this service fills its slot; all slots of its replicas.",
            autocompletion=complete.services,
        ),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would change; change nothing.")] = False,
    max_parallel: MaxParallel = PARALLEL,
    max_failures: MaxFailures = 0,
    json: Annotated[bool, typer.Option("--json", help="Events and the outcome as JSON lines.")] = False,
) -> None:
    """Stop a slot's service once its requests are answered, and leave the slot empty, at the next boot too.

    `deploy` fills it again, `rollback` with what stood there. A service of several hosts leaves all of them.

    Exit codes: 0 empty (or was so), 5 refused and nothing changed, 6 not stopped and serving again, 7 not restored,
    8 part of the hosts failed or were not begun, 10 --plan found changes.
    """
    from fleetctl.cli.fleet_options import pace
    from fleetctl.cli.rollouts import Request, run_rollouts
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import select_hosts, select_services, select_slot
    from fleetctl.rollout.stop import stop_service, stop_slot

    fleet = load_fleet()
    chosen = select_hosts(fleet, hosts, service=service, slot=slot)
    services = select_services(chosen, service=service, slot=slot) if service else {}
    slots = {
        host.name: host.services[services[host.name]].slot if service else select_slot(host, slot)
        for host in chosen
    }
    request = Request(
        fleet,
        {"kind": "stop", "slot": slot, "service": service},
        slots=slots,
        pace=pace(max_parallel, 0, max_failures, 0.0),
        plan=plan,
    )
    run_rollouts(
        chosen,
        lambda host, interrupt, listen: (
            stop_service(fleet, host, service, plan, interrupt, listen)
            if service
            else stop_slot(fleet, host, slots[host.name], plan, interrupt, listen)
        ),
        request,
        json=json,
    )
