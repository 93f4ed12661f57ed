"""``fleetctl abort``: have a rollout undo itself, whoever started it."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import complete


def abort(
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
    """Have the rollout under way undo itself, and follow it until the old service is back and proven.

    ^C leaves the undo to the host. Exit codes: 0 undone, 5 too late (committed, or ended already), 7 not restored,
    8 a host that may have it was not reached.
    """
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import progress
    from fleetctl.errors import Exit, FleetError
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.rollout.attach import abort as ask
    from fleetctl.rollout.attach import failure, find_rollout

    found = find_rollout(load_fleet(), host, rollout, slot)
    output = Output(json=json)
    try:
        with progress(output) as listener:
            result = ask(found, listener)
    except KeyboardInterrupt:
        raise FleetError(
            f"left; the host goes on undoing rollout {found.entry['id']}",
            where=f"{found.host.name}, slot {found.entry['slot']}",
            fix=f"fleetctl attach {found.host.name} {found.entry['id']}",
            exit=Exit.INTERRUPTED,
        ) from None
    if result["exit"] == Exit.NOT_RESTORED:
        raise failure(found, result)
    if output.json:
        output.event({"outcome": {**found.entry, "outcome": result["outcome"], "result": result}})
    else:
        left = result.get("left") or "nothing was changed"
        output.line(f"{found.host.name} {found.entry['slot']}: {result['outcome']}; {left}")
