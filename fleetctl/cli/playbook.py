"""``fleetctl playbook``: run several verbs as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.cli.output import Output
    from fleetctl.playbook.run import Ended

app = typer.Typer(no_args_is_help=True, help="Playbooks: several of fleetctl's verbs as one.")
Name = Annotated[
    str,
    typer.Argument(
        metavar="PLAYBOOK", help="A name in playbooks/, or a file.", autocompletion=complete.playbooks
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


@app.command("list")
def list_(json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """List the playbooks of the fleet folder, with their parameters; those with errors with file and line (exit 2)."""
    from fleetctl.cli.output import Output
    from fleetctl.errors import Exit
    from fleetctl.inventory.loader import find_root
    from fleetctl.playbook.folder import load_all

    output = Output(json=json)
    good, errors = load_all(find_root(), _verbs())
    found = [source.playbook for source in good]
    if json:
        output.document(
            {
                "playbooks": [one.model_dump() for one in found],
                "errors": [error.to_dict() for error in errors],
            }
        )
    else:
        rows = [[one.playbook, " ".join(_pairs(one.parameters)), one.description.strip()] for one in found]
        output.table(["playbook", "parameters", "description"], rows)
        for error in errors:
            output.print_error(error)
    if errors:
        raise typer.Exit(int(Exit.INPUT))


@app.command()
def run(
    playbook: Name,
    values: Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Its parameters.")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show each command, and what it would change; change nothing.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on behind the steps that the last run of the same commands ended."),
    ] = False,
    json: Json = False,
) -> None:
    """Run a playbook's steps in order; the first that fails ends it, and --resume goes on there.

    Nothing is begun where a step names a host, service or slot that the inventory does not have (exit 2).
    The exit code is that of the step that failed, else 0; 10 where --plan found changes.
    """
    import shlex
    import sys

    from fleetctl.cli.output import Output
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.playbook.check import check_commands
    from fleetctl.playbook.commands import commands, wrong_words
    from fleetctl.playbook.document import load_playbook
    from fleetctl.playbook.record import Record
    from fleetctl.playbook.run import exit_code, plan_playbook, run_playbook
    from fleetctl.playbook.values import read_values

    output, fleet = Output(json=json), load_fleet()
    verbs = _verbs()
    source = load_playbook(fleet.root, playbook, lambda data: wrong_words(data, verbs))
    chosen = read_values(source, values or [], fleet)
    todo = commands(source, verbs, chosen)

    def on_event(event: dict[str, Any]) -> None:
        if json:
            output.event(event)
        elif event["state"] in ("begin", "skipped"):
            done = " (an earlier run did it)" if event["state"] == "skipped" else ""
            output.progress.print(
                f"== {event['step']}/{event['of']} {event['name']}{done}: {event['command']}", markup=False
            )

    if plan:
        ended = plan_playbook(todo, json, on_event)
    else:
        record = Record(fleet.root, source.playbook.playbook, todo)
        skip = record.done() if resume else set()
        check_commands(todo, fleet, skip)
        ended = run_playbook(todo, record, skip, json, on_event)
    if not json:
        _print(output, ended, len(todo), shlex.join([playbook, *(values or [])]), plan)
    sys.exit(exit_code(ended, plan))


def _print(output: Output, ended: Sequence[Ended], total: int, typed: str, plan: bool) -> None:
    from fleetctl.errors import Exit
    from fleetctl.words import counted

    rows = [
        [
            one.command.step,
            one.verdict,
            "" if one.exit is None else str(one.exit),
            f"{one.seconds:.1f} s" if one.seconds else "",
            one.command.shown,
        ]
        for one in ended
    ]
    output.table(["step", "verdict", "exit", "took", "command"], rows)
    if not plan and ended and ended[-1].verdict == "failed":
        left = counted(total - len(ended) + 1, "step")
        on = "" if ended[-1].exit == Exit.INPUT else f"; go on with: fleetctl playbook run --resume {typed}"
        output.progress.print(f"stopped with {left} left{on}", markup=False)


def _verbs() -> Any:
    from typer.main import get_command

    from fleetctl.cli.app import whole

    return get_command(whole())


def _pairs(parameters: dict[str, Any]) -> list[str]:
    return [
        f"{name}={one.type.upper()}" if one.default is None else f"{name}={one.default}"
        for name, one in parameters.items()
    ]
