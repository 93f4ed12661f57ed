"""``fleetctl logs``: the journal of a service, or of what fills a slot."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete
from fleetctl.errors import FleetError

if TYPE_CHECKING:
    from fleetctl.inventory.loader import Fleet
    from fleetctl.inventory.models import Host
    from fleetctl.transport.agent import Agent


def logs(
    host: Annotated[
        str | None,
        typer.Argument(help="The host; not needed where only one fits.", autocompletion=complete.hosts),
    ] = None,
    service: Annotated[
        str | None,
        typer.Argument(help="A service; without, what fills the slot.", autocompletion=complete.services),
    ] = None,
    slot: Annotated[
        str | None, typer.Option("--slot", help="What fills this slot now.", autocompletion=complete.slots)
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what comes, until ^C.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="So many of the last lines.")] = 100,
    since: Annotated[
        str | None, typer.Option("--since", help="From a time on: -1h, today, 2026-11-29.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON document; with -f one event a line.")
    ] = False,
) -> None:
    """Show a service's journal."""
    from fleetctl.cli.output import Output
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.transport.agent import open_agent

    chosen, service = choose(load_fleet(), host, service, slot)
    output = Output(json=json)
    kept: list[dict[str, Any]] = []

    def show(event: dict[str, Any]) -> None:
        if not output.json:
            moment = datetime.fromisoformat(event["time"]).astimezone() if event["time"] else None
            output.line(f"{moment:%Y-%m-%d %H:%M:%S} {event['line']}" if moment else event["line"])
        elif follow:
            output.event({"host": chosen.name, "unit": unit, **event})
        else:
            kept.append(event)

    with open_agent(chosen) as agent:
        unit = chosen.services[service].unit if service else filling(agent, chosen, slot)
        asked = {"unit": unit, "lines": lines, "since": since, "follow": follow}
        agent.call("logs", on_event=show, timeout=None if follow else 60, **asked)
    if output.json and not follow:
        output.document({"host": chosen.name, "unit": unit, "lines": kept})


def choose(fleet: Fleet, host: str | None, service: str | None, slot: str | None) -> tuple[Host, str | None]:
    """The host and the service meant; a lone word that is no host's name is a service's."""
    from fleetctl.inventory.select import select_host, select_service, select_slot

    if host and not service and host not in fleet.hosts:
        known = {name for one in fleet.hosts.values() for name in one.services}
        if host in known:
            host, service = None, host
    chosen = select_host(fleet, host, service=service, slot=slot)
    if service and slot:
        raise FleetError("a service and --slot are one too many", fix="name the service, or its slot")
    if service:
        return chosen, select_service(chosen, service=service)
    select_slot(chosen, slot)
    return chosen, None


def filling(agent: Agent, host: Host, slot: str | None) -> str:
    """The unit that fills a slot now: fleetctl's, or whoever holds its port."""
    from fleetctl.inventory.select import select_slot
    from fleetctl.rollout.status import facts_arguments, slot_statuses

    name = select_slot(host, slot)
    statuses = slot_statuses(host, agent.call("facts", **facts_arguments(host)))
    unit = next(status.unit for status in statuses if status.slot == name)
    if unit is None:
        raise FleetError(
            f"nothing fills slot {name}",
            where=host.name,
            fix=f"name a service: fleetctl logs {host.name} SERVICE",
        )
    return unit
