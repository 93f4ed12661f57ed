"""``fleetctl patch apply|revert``: derive an environment with patch sets, or find the one without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fleetctl.cli.output import Output
    from fleetctl.patches.environment import Derivation, Environment

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Place = Annotated[str, typer.Argument(metavar="PLACE", help="HOST, HOST:NAME or HOST:/path.")]
Plan = Annotated[bool, typer.Option("--plan", help="Say what would be done; change nothing.")]
As = Annotated[str | None, typer.Option("--as", help="Name of the new environment; else that of its base.")]


def apply(
    place: Place,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Patch sets, in their order.")],
    as_: As = None,
    plan: Plan = False,
    json: Json = False,
) -> None:
    """Make an environment from another one with patch sets in it; the other stays as it is."""
    from fleetctl.cli.output import Output
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.patches.patchset import load, load_all
    from fleetctl.patches.places import open_environment

    output = Output(json=json)
    fleet = load_fleet()
    _check_name(as_)
    sets = [load(fleet.root, name) for name in dict.fromkeys(names)]
    known, _ = load_all(fleet.root)
    with open_environment(fleet, place) as environment:
        planned = environment.plan_apply(sets, known, as_)
        if not planned.patches:
            _say(output, environment, {"path": environment.path, "built": False}, "has them, nothing to do")
            return
        _carry_out(output, environment, planned, plan, keep=True)


def revert(place: Place, as_: As = None, plan: Plan = False, json: Json = False) -> None:
    """Find the environment that this one was derived from, and say how to go back to it.

    Where that is gone, one without the patch sets is derived.
    """
    from fleetctl.cli.output import Output
    from fleetctl.errors import Exit, FleetError
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.patches.patchset import load
    from fleetctl.patches.places import open_environment
    from fleetctl.patches.revert import how_to_return

    output = Output(json=json)
    fleet = load_fleet()
    _check_name(as_)
    with open_environment(fleet, place) as environment:
        names = [entry["name"] for entry in environment.patched()]
        if not names:
            raise FleetError(
                "no patch set is in it, says its marker",
                where=environment.shown,
                fix="fleetctl patch status shows what its files are",
                exit=Exit.PREFLIGHT,
            )
        parent = environment.parent()
        if parent is not None:
            path = parent.path
        else:
            planned = environment.plan_revert([load(fleet.root, name) for name in names], as_)
            path = planned.path
            _carry_out(output, environment, planned, plan, keep=False)
        steps = how_to_return(fleet, environment, path)
    if json:
        output.event({"path": path, "derived": parent is None, "steps": steps})
        return
    if parent is not None:
        output.line(f"{environment.shown} was made from {path}, which is there")
    for step in steps:
        output.line(step)


def _carry_out(
    output: Output, environment: Environment, planned: Derivation, plan: bool, *, keep: bool
) -> None:
    from fleetctl.cli.progress import progress
    from fleetctl.errors import Exit

    if planned.is_there:
        _say(
            output,
            environment,
            {"path": planned.path, "built": False},
            f"{planned.path} is there, nothing to do",
        )
        return
    if plan:
        _print_plan(output, environment, planned)
        raise typer.Exit(int(Exit.PLAN_CHANGES))
    with progress(output) as listener:

        def on_event(event: dict[str, Any]) -> None:
            listener({**event, "host": environment.host})

        result = environment.derive(planned, on_event, keep=keep)
    seconds = sum(result["seconds"].values())
    _say(output, environment, result, f"made {result['path']} in {seconds:.1f} s by {result['method']}")


def _print_plan(output: Output, environment: Environment, planned: Derivation) -> None:
    if output.json:
        output.event(planned.to_dict())
        return
    output.line(f"{environment.host}: derive {planned.path} from {environment.path}")
    for entry in planned.patches:
        output.line(f"{environment.host}: {entry.patch_set.name}: {entry.patch_set.manifest.why}")
        for write in entry.writes:
            verb = "add" if write.before is None else "remove" if write.after is None else "change"
            output.line(f"  {verb} {write.path}")


def _say(output: Output, environment: Environment, result: dict[str, Any], text: str) -> None:
    if output.json:
        output.event(result)
    else:
        output.line(f"{environment.host}: {text}")


def _check_name(name: str | None) -> None:
    from fleetctl.errors import FleetError
    from fleetctl.patches.create import NAME

    if name is not None and not NAME.match(name):
        raise FleetError(
            f"not an environment's name: {name!r}", fix="use lower case letters, digits, . _ and -"
        )
