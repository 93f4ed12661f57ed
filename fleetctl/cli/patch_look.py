"""``fleetctl patch status|verify|diff``: an environment's patch sets; nothing is changed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fleetctl.words import counted

Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]
Place = Annotated[str, typer.Argument(metavar="PLACE", help="HOST, HOST:NAME or HOST:/path.")]


def status(
    place: Place,
    files: Annotated[bool, typer.Option("--files", help="Each file's state too.")] = False,
    json: Json = False,
) -> None:
    """Show the state of every patch set in an environment."""
    from fleetctl.cli.output import Output
    from fleetctl.errors import Exit
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.patches.patchset import load_all
    from fleetctl.patches.places import open_environment

    output = Output(json=json)
    fleet = load_fleet()
    known, errors = load_all(fleet.root)
    with open_environment(fleet, place) as environment:
        states = environment.states(known, known)
        recorded = [entry["name"] for entry in environment.patched()]
    if json:
        output.document(
            {
                "path": environment.path,
                "marker": recorded,
                "states": [state.to_dict() for state in states],
                "errors": [error.to_dict() for error in errors],
            }
        )
    else:
        rows = []
        for state in states:
            notes = [f"stands on {name}" for name in state.needed] + [f"under {name}" for name in state.over]
            notes += [state.advice] if state.advice else []
            name = state.patch_set.name
            rows.append(
                [name, state.patch_set.distribution, state.version or "-", state.state, "; ".join(notes)]
            )
            if files:
                rows += [[f"  {path}", "", "", kind, ""] for path, kind in state.files.items()]
        output.table(["patch set", "of", "installed", "state", ""], rows)
        for error in errors:
            output.print_error(error)
    if errors:
        raise typer.Exit(int(Exit.INPUT))


def verify(
    place: Place,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="These; else all that are in it.")
    ] = None,
    json: Json = False,
) -> None:
    """Prove the patch sets of an environment: files, byte code, imports and checks in its own Python."""
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import progress
    from fleetctl.errors import Exit, FleetError
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.patches.patchset import load, load_all
    from fleetctl.patches.places import open_environment
    from fleetctl.patches.proof import prove

    output = Output(json=json)
    fleet = load_fleet()
    known, _ = load_all(fleet.root)
    with open_environment(fleet, place) as environment:
        sets = [load(fleet.root, name) for name in names or environment.holds(known)]
        with progress(Output()) as listener:
            on_event = lambda event: listener({**event, "host": environment.host})  # noqa: E731
            proof = prove(environment, sets, known, on_event)
    if json:
        output.document({"path": environment.path, **proof.to_dict()})
    if proof.findings:
        error = FleetError(
            f"{len(proof.findings)} findings" if len(proof.findings) > 1 else proof.findings[0],
            where=environment.shown,
            fix=f"fleetctl patch diff {place} shows what differs; environments are not repaired: derive anew",
            evidence=[*(proof.findings if len(proof.findings) > 1 else ()), *proof.evidence],
            exit=Exit.PREFLIGHT,
        )
        if not json:
            output.print_error(error)
        raise typer.Exit(int(Exit.PREFLIGHT))
    if not json:
        listed = ", ".join(proof.names) or "no patch set"
        output.line(
            f"{environment.shown}: {listed}: proven, {counted(proof.ran, 'run')} in {proof.seconds:.1f} s"
        )


def diff(
    place: Place,
    name: Annotated[
        str | None, typer.Argument(help="Only this patch set; else all of what is installed.")
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option("--base", help="Where files are as before: a wheel, a folder or a PLACE."),
    ] = None,
    json: Json = False,
) -> None:
    """Print the diff from the files that are there to those that the patch sets make."""
    from fleetctl.cli.output import Output
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.patches.difference import differences
    from fleetctl.patches.patchset import load, load_all
    from fleetctl.patches.places import bases, kept_wheels, open_environment
    from fleetctl.patches.plan import not_installed
    from fleetctl.patches.state import State

    output = Output(json=json)
    fleet = load_fleet()
    known, _ = load_all(fleet.root)
    sets = [load(fleet.root, name)] if name else known
    found: list[Any] = []
    with open_environment(fleet, place) as environment, bases(fleet, environment, base or []) as trees:
        for state in environment.states(sets, known):
            if name and state.state == State.MISSING:
                raise not_installed(state.patch_set, environment.shown)
            if state.state == State.MISSING or (state.state == State.OTHER_VERSION and not name):
                continue
            kept = kept_wheels(fleet, state.patch_set.distribution, state.patch_set.manifest.versions)
            found += differences(state, environment.tree, [*trees, *kept])
    if json:
        output.document({"path": environment.path, "files": [vars(entry) for entry in found]})
        return
    for entry in found:
        if entry.note:
            output.line(f"# {entry.patch_set}: {entry.path} {entry.note}")
        else:
            output.line(f"# {entry.patch_set}: {entry.path}, from what is there to {entry.to}")
            output.line(entry.diff.rstrip("\n").replace("\r", "␍"))
    if not found:
        output.line(f"{environment.shown}: no difference")
