"""``fleetctl env diff``: what differs between two environments, the worst first, and how to make B like A."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.cli.output import Output
    from fleetctl.environment.difference import Difference, Group, Step
    from fleetctl.environment.obtain import Obtained

PLACE = "HOST, HOST:/path, HOST:NAME, a BOM file, or envs/NAME."
HEADINGS = {
    "ABI": "ABI: does not load or run",
    "MISSING": "Missing",
    "VERSION": "Versions",
    "DRIFT": "Drift: not as installed",
    "FACT": "Breaks nothing",
}
MARKS = {"error": "✗", "warning": "!", "info": "·"}
SEEN = 4
WIDE = 150
TOLD = 12


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="The environment as it should be: " + PLACE)],
    b: Annotated[str, typer.Argument(metavar="B", help="The one to compare with it.")],
    plan: Annotated[
        bool, typer.Option("--plan", help="Print only the commands that make B like A; exit 10 if any.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document, with everything.")] = False,
) -> None:
    """Compare two environments, grouped by what B breaks.

    Exit 0, differences or not; with --plan 10 where steps are left. 3 where no host is reached, 8 where one is.
    """
    from fleetctl.cli.output import Output
    from fleetctl.environment.compare import compare
    from fleetctl.environment.diff_plan import commands, plan_steps, to_dict
    from fleetctl.errors import Exit

    output = Output(json=json)
    one, other = both(output, a, b)
    differences = compare(one.bom, other.bom)
    steps = plan_steps(differences)
    if json:
        output.document(
            {
                "a": _head(one),
                "b": _head(other),
                "differences": [difference.to_dict() for difference in differences],
                "plan": to_dict(steps, one.side, other.side),
            }
        )
    elif plan:
        for line in commands(steps, one.side, other.side):
            output.line(line)
    else:
        _screen(output, one, other, differences, steps)
    raise typer.Exit(int(Exit.PLAN_CHANGES if plan and steps else Exit.OK))


def both(output: Output, a: str, b: str) -> tuple[Obtained, Obtained]:
    """The bills of materials of two places at once; FleetError where one of them cannot be had."""
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import progress
    from fleetctl.environment.obtain import obtain
    from fleetctl.environment.place import parse_place
    from fleetctl.errors import Exit, FleetError
    from fleetctl.inventory.loader import load_fleet

    fleet = load_fleet()
    places = [parse_place(fleet, text) for text in (a, b)]
    with progress(Output()) as listener:
        found = obtain(fleet, places, listener)
    errors = [answer for answer in found if isinstance(answer, FleetError)]
    others = {place.host.name for place in places if place.host is not None}
    if len(errors) == 1 and len(others) == 2 and errors[0].exit == Exit.UNREACHABLE:
        errors[0].exit = Exit.PARTIAL
    for error in errors[1:]:
        output.print_error(error)
    if errors:
        raise errors[0]
    first, second = (answer for answer in found if not isinstance(answer, FleetError))
    return first, second


def _head(one: Obtained) -> dict[str, Any]:
    bom = one.bom
    return {
        "place": one.place.text,
        "at": one.side.place,
        "kind": bom["kind"],
        "digest": bom.get("digest"),
        "abi": bom.get("abi", {}).get("tag"),
        "distributions": len(bom["distributions"]),
    }


def _screen(
    output: Output, a: Obtained, b: Obtained, differences: Sequence[Difference], steps: Sequence[Step]
) -> None:
    from fleetctl.environment.difference import Group

    for label, one in (("A", a), ("B", b)):
        head = _head(one)
        about = [text for text in (head["abi"], counted(head["distributions"], "distribution")) if text]
        output.line(f"{label}  {head['at']}  {', '.join(about)}")
    if not differences:
        output.line("They are the same: nothing to do")
    for group in Group:
        _group(output, group, [one for one in differences if one.group == group])
    if steps:
        output.line()
        output.line(f"Make B like A: fleetctl env diff {a.place.text} {b.place.text} --plan")


def _group(output: Output, group: Group, found: Sequence[Difference]) -> None:
    if not found:
        return
    output.line()
    output.line(HEADINGS[group.name])
    told = [one for one in found if one.severity != "info" or group.name == "FACT"]
    before = None
    for one in told[:TOLD]:
        output.line(_cut(f"  {MARKS[one.severity]} {one.what}"))
        seen = [line for line in one.evidence if line not in one.what]
        shown = seen[:SEEN] if group.name != "FACT" else [", ".join(seen)] if seen else []
        for line in shown:
            output.line(_cut(f"      {line}"))
        if len(seen) > len(shown) and group.name != "FACT":
            output.line(f"      and {len(seen) - len(shown)} more (--json)")
        if _is_worth_telling(one):
            output.line(_cut(f"    → {'the same' if one.step == before else _in_words(one.step)}"))
            before = one.step
    more = [one.subject or one.id for one in told[TOLD:]]
    if more:
        output.line(_cut(f"  {MARKS[told[TOLD].severity]} and {len(more)} more: {', '.join(more)}"))
    rest = [one.subject or one.id for one in found if one not in told]
    if rest:
        output.line(_cut(f"  {MARKS['info']} {len(rest)} that nothing asks for: {', '.join(rest)}"))


def _is_worth_telling(one: Difference) -> bool:
    """Not where the step is for the very subject alone, or one for everything that the ABI's differences tell."""
    from fleetctl.environment.difference import Group, Step

    whole = one.step.do == "rebuild" and not one.step.distributions and one.group != Group.ABI
    alone = one.step == Step(one.step.do, (one.subject,), one.step.why)
    return one.step.do != "none" and not whole and not alone


def _in_words(step: Step) -> str:
    from fleetctl.environment.difference import listed

    names = listed([*step.distributions, *step.paths], 6) or "everything"
    gone = f", without {listed(step.remove, 2)}" if step.remove else ""
    return f"{step.do} {names}{gone}"


def _cut(line: str) -> str:
    return line if len(line) <= WIDE else line[: WIDE - 1].rstrip() + "…"
