"""``fleetctl attach``: follow a rollout that a host carries out, whoever started it."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import complete


def attach(
    host: Annotated[
        str | None,
        typer.Argument(help="The host; not needed where one rollout runs.", autocompletion=complete.hosts),
    ] = None,
    rollout: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Its id or a part of it; without, the one that runs.")
    ] = None,
    slot: Annotated[
        str | None, typer.Option("--slot", help="Of this slot.", autocompletion=complete.slots)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Events and the outcome as JSON lines.")] = False,
) -> None:
    """Follow a rollout from its first event to its end; one that has ended is shown again.

    ^C leaves it: the rollout goes on. Exit codes: 0 done, 5 refused, 6 undone, 7 not restored,
    8 a host that may have it was not reached, 130 left by ^C.
    """
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import progress
    from fleetctl.errors import Exit, FleetError
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.rollout.attach import failure, find_rollout, follow

    found = find_rollout(load_fleet(), host, rollout, slot)
    output = Output(json=json)
    try:
        with progress(output) as listener:
            result = follow(found, listener)
    except KeyboardInterrupt:
        raise FleetError(
            f"left; rollout {found.entry['id']} goes on",
            where=f"{found.host.name}, slot {found.entry['slot']}",
            fix=f"fleetctl attach {found.host.name} follows it again, fleetctl abort {found.host.name} undoes it",
            exit=Exit.INTERRUPTED,
        ) from None
    if result["outcome"] != "done":
        raise failure(found, result)
    if output.json:
        output.event({"outcome": {**found.entry, "outcome": result["outcome"], "result": result}})
    else:
        output.line(f"{found.host.name} {found.entry['slot']}: {result['reason']}")
