"""``fleetctl env overlay``: an environment with distributions of another one, under a name of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fleetctl.cli.output import Output
    from fleetctl.environment.overlay import OverlayPlan
    from fleetctl.inventory.models import Host

SHOWN = 40


def overlay(
    base: Annotated[
        str, typer.Argument(metavar="BASE", help="HOST, HOST:/path or HOST:NAME; it is never changed.")
    ],
    name: Annotated[str, typer.Argument(help="The name of the derived environment.")],
    source: Annotated[
        str | None, typer.Option("--from", help="The environment that the distributions come from.")
    ] = None,
    dist: Annotated[
        list[str] | None,
        typer.Option("--dist", help="A distribution to take; patterns such as 'nvidia-*' too."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", help="A distribution to leave out, or a nested copy such as sglang/sglang."),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be done; change nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Derive an environment: BASE with distributions of another one in place of its own.

    Exit 5 where something speaks against it; then nothing was touched. With --plan 10 where there is work to do.
    """
    from fleetctl.cli.env_diff import both
    from fleetctl.cli.output import Output
    from fleetctl.environment.overlay import plan_overlay
    from fleetctl.environment.overlay_act import derived_path
    from fleetctl.environment.place import require_name
    from fleetctl.errors import Exit, FleetError

    output = Output(json=json)
    require_name(name)
    if not dist and not remove:
        raise FleetError("nothing to do: neither --dist nor --remove is given", fix="name a distribution")
    if dist and source is None:
        raise FleetError("where do they come from?", fix="add --from HOST:NAME")
    ours, theirs = both(output, base, source or base)
    if ours.place.host is None or theirs.place.host is None:
        raise FleetError("both environments must be on hosts", fix="write HOST:NAME or HOST:/path")
    planned = plan_overlay(ours.bom, theirs.bom, dist or [], remove or [])
    path = derived_path(planned, name)
    if planned.taken and ours.place.host.name != theirs.place.host.name:
        _require_rsync(ours.place.host, theirs.place.host)
    if plan or planned.is_there:
        _show(output, planned, ours.side.place, theirs.side.place, path)
        raise typer.Exit(int(Exit.OK if planned.is_there else Exit.PLAN_CHANGES))
    _act(output, planned, name, ours.place.host, theirs.place.host)


def _require_rsync(*hosts: Host) -> None:
    from fleetctl.environment.bring import require_rsync
    from fleetctl.transport.agent import open_agent

    for host in hosts:
        with open_agent(host) as agent:
            require_rsync((agent, host))


def _act(output: Output, planned: OverlayPlan, name: str, host: Any, source: Any) -> None:
    from fleetctl.cli.progress import progress
    from fleetctl.environment.overlay_act import overlay_from
    from fleetctl.transport.agent import open_agent

    for warning in planned.warnings:
        output.progress.print(f"warning: {warning}", markup=False)
    with open_agent(host) as agent, progress(output) as listener:

        def on_event(event: dict[str, Any]) -> None:
            listener({**event, "host": host.name})

        made = overlay_from(agent, host, source, planned, name, on_event)
    if output.json:
        output.event({**made, "digest": planned.digest, "warnings": list(planned.warnings)})
    elif made["built"]:
        seconds = sum(made["seconds"].values())
        output.line(f"{host.name}: built {made['path']} in {seconds:.1f} s ({made['method']})")
    else:
        output.line(f"{host.name}: {made['path']} is there, nothing to do")


def _show(output: Output, planned: OverlayPlan, base: str, source: str, path: str) -> None:
    if output.json:
        output.event({**planned.to_dict(), "path": path})
        return
    if planned.is_there:
        output.line(f"{base} has all of it already, nothing to do")
        return
    output.line(f"{base} stays as it is; {path} is derived from it")
    for one in planned.taken[:SHOWN]:
        instead = f"in place of {one.replaces}" if one.replaces else "new"
        output.line(f"  + {one.name} {one.version}, {instead}")
    if len(planned.taken) > SHOWN:
        output.line(f"  + and {len(planned.taken) - SHOWN} more (--json)")
    if planned.taken:
        output.line(f"    from {source}")
    for gone in [*planned.removed, *planned.paths]:
        output.line(f"  - {gone}")
    for warning in planned.warnings:
        output.line(f"  warning: {warning}")
