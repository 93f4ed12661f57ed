"""``fleetctl env prune``: environments that nothing uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete

if TYPE_CHECKING:
    from fleetctl.cli.output import Output


def prune(
    host: Annotated[str, typer.Argument(help="The host.", autocompletion=complete.hosts)],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Only these, by name or folder; each must be unused."),
    ] = None,
    keep: Annotated[
        int, typer.Option("--keep", min=0, help="Of each name's unused ones keep so many of the newest.")
    ] = 0,
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be removed; change nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Remove environments that no slot runs or ran before, no unit file names and no process uses.

    Without a NAME also what builds and transfers that were cut off have left.
    """
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import progress
    from fleetctl.errors import Exit
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import select_host
    from fleetctl.transport.agent import open_agent

    output = Output(json=json)
    target = select_host(load_fleet(), host)
    with open_agent(target) as agent, progress(output) as listener:

        def on_event(event: dict[str, Any]) -> None:
            listener({**event, "host": target.name})

        done = agent.call(
            "environment.prune", on_event=on_event, timeout=None, names=names or None, keep=keep, plan=plan
        )
    if json:
        output.event(done)
    else:
        _print(output, target.name, done, plan)
    if plan and (done["removed"] or done["leftovers"]):
        raise typer.Exit(int(Exit.PLAN_CHANGES))


def _print(output: Output, host: str, done: dict[str, Any], plan: bool) -> None:
    verb = "would remove" if plan else "removed"
    for one in done["removed"]:
        output.line(f"{host}: {verb} {one['path']} ({one['own_bytes'] / 1e6:,.0f} MB of its own)")
    for one in done["leftovers"]:
        what = "left by a build or transfer that was cut off"
        output.line(f"{host}: {verb} {one['path']} ({one['own_bytes'] / 1e6:,.0f} MB), {what}")
    for one in done["kept"]:
        why = ", ".join(one["used_by"]) or "not asked for"
        output.line(f"{host}: keeps {one['path']}: {why}")
    freed = "would be freed" if plan else "freed"
    output.line(
        f"{host}: {done['freed_bytes'] / 1e6:,.0f} MB {freed}"
        if done["removed"] or done["leftovers"]
        else f"{host}: nothing to do"
    )
