"""``fleetctl facts``: what doctor looks at, on one screen or as the file that ``doctor --facts`` reads."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete

if TYPE_CHECKING:
    from fleetctl.doctor.facts import Facts, OnEvent


def facts(
    host: Annotated[
        str | None,
        typer.Argument(help="Host; the inventory's only one without.", autocompletion=complete.hosts),
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="This machine, without ssh or inventory.")] = False,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="PATH", help="Another environment to read; repeatable."),
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Run a one-line kernel on each GPU.")] = False,
    hashes: Annotated[
        bool, typer.Option("--hashes", help="Compare every file of the environments with its record.")
    ] = False,
    output_file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the facts to this file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Gather a host's facts: GPUs, driver, toolkits, environments, models, units. Changes nothing there."""
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import progress
    from fleetctl.doctor.facts import save_facts
    from fleetctl.doctor.facts_text import COLUMNS, lines, rows
    from fleetctl.errors import FleetError

    if local and host is not None:
        raise FleetError("--local is this machine, and a host was named too", fix="give one of the two")
    output = Output(json=json)
    with progress(output) if hashes and not json else nullcontext(_unheard) as listener:
        found = _gather(host, local, env or [], deep, hashes, listener)
    if output_file is not None:
        save_facts(found, output_file)
    if json and output_file is None:
        output.document(found)
        return
    if json:
        return
    for line in lines(found):
        output.line(line)
    table = rows(found)
    if table:
        output.line()
        output.table(COLUMNS, table)
    if output_file is not None:
        output.line(f"wrote {output_file}")


def _gather(
    name: str | None, local: bool, environments: list[str], deep: bool, hashes: bool, listener: OnEvent
) -> Facts:
    from fleetctl.doctor.facts import gather, gather_local

    if local:
        return gather_local(environments=environments, deep=deep, hashes=hashes, on_event=listener)
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import select_host
    from fleetctl.transport.agent import open_agent

    host = select_host(load_fleet(), name)

    def heard(event: dict[str, Any]) -> None:
        listener({**event, "host": host.name})

    with open_agent(host) as agent:
        return gather(agent, host, environments=environments, deep=deep, hashes=hashes, on_event=heard)


def _unheard(event: dict[str, Any]) -> None:
    """Facts are there in a second or two: what goes on meanwhile is not said."""
