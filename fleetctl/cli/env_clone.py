"""``fleetctl env clone``: another environment with the same content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete
from fleetctl.words import counted

if TYPE_CHECKING:
    from fleetctl.cli.output import Output
    from fleetctl.environment.derived import ClonePlan
    from fleetctl.environment.events import OnEvent
    from fleetctl.environment.place import Place
    from fleetctl.inventory.models import Host

    Cloned = tuple[ClonePlan, dict[str, Any] | None]


def clone(
    source: Annotated[
        str, typer.Argument(help="HOST:NAME, HOST:/path of a venv, or HOST.", autocompletion=complete.hosts)
    ],
    name: Annotated[str, typer.Argument(metavar="NAME|HOST:NAME", help="The clone's name.")],
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be done; change nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Clone an environment: linked or copied, relocated, proved to name its old place nowhere, and run once.

    The source stays as it is, and no change to one of them changes the other.
    """
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import progress
    from fleetctl.environment.place import host_place
    from fleetctl.errors import Exit, FleetError
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import select_host

    output = Output(json=json)
    fleet = load_fleet()
    place = host_place(fleet, source)
    assert place.host is not None
    if name in fleet.hosts:
        raise FleetError(f"{name} is a host, not the clone's name", fix=f"did you mean {name}:NAME?")
    target, chosen = _target(place.host.name, name)
    host = select_host(fleet, target)
    with progress(output) as listener:

        def on_event(event: dict[str, Any]) -> None:
            listener({**event, "host": host.name})

        clone_to = _here if host.name == place.host.name else _from_another
        planned, made = clone_to(place, host, chosen, plan, on_event)
    if made is None:
        _print_plan(output, host.name, planned)
        raise typer.Exit(int(Exit.OK if planned.is_there else Exit.PLAN_CHANGES))
    _print_made(output, host.name, planned, made)


def _target(source: str, text: str) -> tuple[str, str]:
    """Host and name of the clone; without a host the source's."""
    from fleetctl.environment.derived import NAME
    from fleetctl.errors import FleetError

    host, colon, name = text.rpartition(":")
    if not NAME.fullmatch(name):
        raise FleetError(
            f"{name!r} is no environment's name", where=text, fix="letters, digits, '.', '_' and '-'"
        )
    return (host if colon else source), name


def _here(place: Place, host: Host, name: str, plan: bool, on_event: OnEvent) -> Cloned:
    from fleetctl.environment.derived import apply_clone, plan_clone
    from fleetctl.environment.place import locate
    from fleetctl.transport.agent import open_agent

    with open_agent(host) as agent:
        planned = plan_clone(agent, locate(place, agent), name, on_event, host.name)
        made = None if plan or planned.is_there else apply_clone(agent, planned, host.name, on_event)
    return planned, made


def _from_another(place: Place, host: Host, name: str, plan: bool, on_event: OnEvent) -> Cloned:
    from fleetctl.environment.bom import capture, tell_wrong
    from fleetctl.environment.bring import bring_environment, require_movable, require_rsync
    from fleetctl.environment.derived import plan_transfer
    from fleetctl.environment.place import locate
    from fleetctl.transport.agent import open_agent

    assert place.host is not None
    with open_agent(place.host) as other:
        require_rsync((other, place.host))
        bom = capture(other, locate(place, other), on_event)
    require_movable(bom, place.host.name)
    tell_wrong(bom, f"{place.host.name}:{bom['path']}", on_event)
    with open_agent(host) as agent:
        require_rsync((agent, host))
        planned = plan_transfer(agent, bom, name)
        if plan or planned.is_there:
            return planned, None
        return planned, bring_environment(agent, place.host, host, bom, name, on_event)


def _print_made(output: Output, host: str, planned: ClonePlan, made: dict[str, Any]) -> None:
    if output.json:
        output.event({**made, "digest": planned.digest})
        return
    if not made["built"]:
        output.line(f"{host}: {made['path']} is there, made by another meanwhile: nothing to do")
        return
    took = sum(made["seconds"].values())
    output.line(f"{host}: cloned {planned.base} to {made['path']} ({made['method']}) in {took:.1f} s")
    for file, why in made.get("kept", {}).items():
        output.line(f"  still names its old place: {file}, {why}")
    for info, outside in made.get("editable", {}).items():
        output.line(f"  still shared: {info.removesuffix('.dist-info')}, an editable install of {outside}")


def _print_plan(output: Output, host: str, planned: ClonePlan) -> None:
    if output.json:
        output.event(planned.to_dict())
    elif planned.is_there:
        output.line(f"{host}: {planned.path} is there, nothing to do")
    else:
        size = f"{counted(planned.files, 'file')}, {planned.bytes / 1e6:,.0f} MB"
        output.line(f"{host}: clone {planned.base} to {planned.path} ({planned.method}, {size})")
        if planned.needed:
            output.line(f"{host}: needs {planned.needed / 1e6:,.0f} MB, {planned.free / 1e6:,.0f} MB free")
