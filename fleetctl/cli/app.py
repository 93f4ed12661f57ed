"""The ``fleetctl`` command: its verbs, its global options, and how errors reach the operator."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, TextIO

import typer

from fleetctl import __version__
from fleetctl.errors import Exit, FleetError

HELP = "Deploy, swap and diagnose LLM servers on your own GPU hosts."
VERBS = {
    "hosts": "hosts:hosts",
    "adopt": "adopt:adopt",
    "facts": "facts:facts",
    "deploy": "deploy:deploy",
    "swap": "swap:swap",
    "rollback": "rollback:rollback",
    "stop": "stop:stop",
    "sweep": "sweep:sweep",
    "tune": "tune:tune",
    "rollouts": "rollouts_list:rollouts",
    "attach": "attach:attach",
    "abort": "abort:abort",
    "status": "status:status",
    "logs": "logs:logs",
    "history": "history:history",
    "doctor": "doctor:app",
    "bench": "bench:app",
    "env": "env:app",
    "export": "export:app",
    "patch": "patch:app",
    "playbook": "playbook:app",
    "report": "report:report",
    "lab": "lab:app",
}
"""Each verb's module and its function, or its own verbs."""


def _version(asked: bool) -> None:
    if asked:
        print(f"fleetctl {__version__}")
        raise typer.Exit


def options(
    fleet: Annotated[
        Path | None,
        typer.Option(
            envvar="FLEETCTL_FLEET", help="Fleet folder: the one that holds inventories/, envs/, templates/."
        ),
    ] = None,
    inventory: Annotated[
        str | None,
        typer.Option(envvar="FLEETCTL_INVENTORY", help="Folder of host files inside the fleet folder."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if fleet is not None:
        os.environ["FLEETCTL_FLEET"] = str(fleet)
    if inventory is not None:
        os.environ["FLEETCTL_INVENTORY"] = inventory


def command_line(verbs: Iterable[str]) -> typer.Typer:
    """The command with these of its verbs; making all of them takes a tenth of a second."""
    app = typer.Typer(
        name="fleetctl",
        help=HELP,
        no_args_is_help=True,
        rich_markup_mode=None,  # Rich takes half of the time that --help may take
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    for verb in verbs:
        module, _, name = VERBS[verb].partition(":")
        found = getattr(import_module(f"fleetctl.cli.{module}"), name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=verb)
        else:
            app.command(verb)(found)
    return app


def whole() -> typer.Typer:
    """The command with all of its verbs."""
    return command_line(VERBS)


def asked() -> typer.Typer:
    """The command with the verb that the command line begins with, or with all verbs where it begins otherwise."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    is_plain = first in VERBS and "_FLEETCTL_COMPLETE" not in os.environ
    return command_line([first]) if is_plain else whole()


def main() -> None:
    """Run the command line; an operator's mistake ends in a message and its exit code, never a traceback.

    What was done and could not be said, for a full disk, is no success.
    """
    _require_streams()
    try:
        asked()()
    except FleetError as error:
        from fleetctl.cli.output import Output

        Output(json="--json" in sys.argv).print_error(error)
        sys.exit(int(error.exit))
    except SystemExit as end:
        from fleetctl.cli import output

        if end.code in (None, int(Exit.OK)) and output.is_lost():
            sys.exit(int(Exit.OUTPUT_LOST))
        raise


def _require_streams() -> None:
    """Exit 2 where the caller closed stdout or stderr: the next file that is opened would stand in its place."""
    streams: dict[str, TextIO | None] = {"stdout": sys.stdout, "stderr": sys.stderr}
    closed = [name for name, stream in streams.items() if stream is None]
    if closed:
        left = streams["stderr"] or streams["stdout"]
        if left:
            print(f"error: {closed[0]} is closed; send it to /dev/null where it is not wanted", file=left)
        sys.exit(int(Exit.INPUT))
