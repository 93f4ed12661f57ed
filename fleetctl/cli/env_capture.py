"""``fleetctl env capture``, ``show`` and ``verify``: what an environment is, and whether it is still that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli.fleet_options import MaxParallel
from fleetctl.words import counted

if TYPE_CHECKING:
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import Listener
    from fleetctl.environment.bom import Bom
    from fleetctl.environment.place import Place

PlaceText = Annotated[
    str, typer.Argument(metavar="PLACE", help="HOST, HOST:/path, HOST:NAME, or a file that `capture` wrote.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]


def capture(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="HOST, HOST:/path or HOST:NAME.")],
    output_file: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the bill of materials to this file.")
    ] = None,
    json: Json = False,
) -> None:
    """Read an environment's bill of materials: every distribution, file and library; changes nothing."""
    from fleetctl.cli.outfile import require_place
    from fleetctl.cli.output import Output
    from fleetctl.environment.bom import save_bom
    from fleetctl.environment.bom_text import headline, screen

    output = Output(json=json)
    if output_file is not None:
        require_place(output_file)
    bom = _of_host(place)
    _tell_problems(output, place, bom)
    if output_file is not None:
        save_bom(bom, output_file)
    if json:
        output.document(bom)
    elif output_file is not None:
        output.line(f"{output_file}: {headline(bom)}")
    else:
        _print(output, screen(bom))


def show(place: PlaceText, json: Json = False) -> None:
    """Show on one screen what an environment holds, and what of it is odd."""
    from fleetctl.cli.output import Output
    from fleetctl.environment.bom_text import screen

    output = Output(json=json)
    bom = _any_bom(place)
    if json:
        output.document(bom)
    else:
        _print(output, screen(bom))


def verify(
    place: Annotated[
        str,
        typer.Argument(
            metavar="PLACE", help="HOST, HOST:/path or HOST:NAME; @GROUP for HOST: on each of its."
        ),
    ],
    max_parallel: MaxParallel = 8,
    json: Json = False,
) -> None:
    """Compare an environment with its own records. Exit 5 where it is not what it says it is, 8 where hosts failed.

    ``@GROUP:NAME`` (or another selector in the host's place) verifies it on each of the hosts.
    """
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import progress
    from fleetctl.environment import bom as boms
    from fleetctl.environment.place import host_place, spread
    from fleetctl.errors import Exit, FleetError
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.transport.fleet import exit_code, on_hosts

    output, fleet = Output(json=json), load_fleet()
    places = {
        one.host.name: one for one in (host_place(fleet, text) for text in spread(fleet, place)) if one.host
    }
    with progress(Output()) as listener:
        found = on_hosts(
            [one.host for one in places.values() if one.host],
            lambda host: _ask(places[host.name], boms.verify, listener),
            max_parallel,
        )
    if len(found) == 1 and isinstance(one := next(iter(found.values())), FleetError):
        raise one
    for name, result in found.items():
        if isinstance(result, FleetError):
            output.print_error(result)
        elif json:
            output.document(result if len(found) == 1 else {"host": name, **result})
        else:
            _print_verified(output, places[name].text, result)
    if (code := exit_code(found)) != Exit.OK:
        raise typer.Exit(int(code))
    right = all(not isinstance(result, FleetError) and result["ok"] for result in found.values())
    raise typer.Exit(int(Exit.OK if right else Exit.PREFLIGHT))


def _print_verified(output: Output, place: str, result: dict[str, Any]) -> None:
    for found in result["findings"]:
        _print_finding(output, found)
    said = "is what it says it is" if result["ok"] else "is not what it says it is"
    checked = f"{counted(result['files'], 'file')}, {result['bytes'] / 1e6:,.0f} MB checked"
    output.line(f"{place} {said}: {checked} in {result['seconds']:.1f} s")


def _of_host(place: str) -> Bom:
    from fleetctl.environment import bom as boms

    bom: Bom = _on_host(place, boms.capture)
    return bom


def _on_host(text: str, ask: Any) -> Any:
    """``ask(agent, path, on_event)`` of an environment on a host; its events are told on stderr."""
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import progress
    from fleetctl.environment.place import host_place
    from fleetctl.inventory.loader import load_fleet

    place = host_place(load_fleet(), text)
    with progress(Output()) as listener:
        return _ask(place, ask, listener)


def _ask(place: Place, ask: Any, listener: Listener) -> Any:
    from fleetctl.environment.place import locate
    from fleetctl.transport.agent import open_agent

    host = place.host
    assert host is not None
    with open_agent(host) as agent:

        def on_event(event: dict[str, Any]) -> None:
            listener({**event, "host": host.name})

        return ask(agent, locate(place, agent), on_event)


def _tell_problems(output: Output, place: str, bom: Bom) -> None:
    """What was odd, on stderr: files that changed meanwhile first, since then it is of no one moment."""
    count = bom["problems_count"]
    if not count:
        return
    moving = [one for one in bom["problems"] if "changed while" in one["what"] or "it changed" in one["what"]]
    seen = (moving or bom["problems"])[0]
    output.progress.print(
        f"warning: {count} problem{'s' if count > 1 else ''} with {place}: {seen['where']}: {seen['what']}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if moving:
        output.progress.print("  something writes to it: wait, then capture it again", markup=False)


def _any_bom(text: str) -> Bom:
    from fleetctl.environment.bom import load_bom
    from fleetctl.environment.place import parse_place
    from fleetctl.errors import FleetError
    from fleetctl.inventory.loader import load_fleet

    place = parse_place(load_fleet(), text)
    if place.file is not None:
        return load_bom(place.file)
    if place.host is None:
        raise FleetError(
            f"{text} is a specification: what an environment shall hold, not what one does",
            where=f"envs/{place.spec}.yaml",
            fix="read the file, or name an environment: HOST:NAME",
        )
    return _of_host(text)


def _print(output: Output, screen: Any) -> None:
    lines, columns, rows = screen
    for line in lines:
        output.line(line)
    if rows:
        output.line()
        output.table(columns, rows)


def _print_finding(output: Output, found: dict[str, Any]) -> None:
    output.line(f"{found['severity']}: {found['what']}")
    if found["where"]:
        output.line(f"  at {found['where']}")
    for seen in found["evidence"]:
        output.line(f"  | {seen}")
    if found["fix"]:
        output.line(f"  fix: {found['fix']}")
