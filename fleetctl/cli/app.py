"""The ``fleetctl`` command: its verbs, its global options, and how errors reach the operator."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from fleetctl import __version__
from fleetctl.cli import (
    abort,
    adopt,
    attach,
    bench,
    deploy,
    doctor,
    env,
    export,
    facts,
    history,
    hosts,
    lab,
    logs,
    patch,
    playbook,
    report,
    rollback,
    rollouts_list,
    status,
    stop,
    swap,
    sweep,
    tune,
)
from fleetctl.errors import FleetError

app = typer.Typer(
    name="fleetctl",
    help="Deploy, swap and diagnose LLM servers on your own GPU hosts.",
    no_args_is_help=True,
    rich_markup_mode=None,  # Rich takes half of the time that --help may take
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"fleetctl {__version__}")
        raise typer.Exit


@app.callback()
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
    """Deploy, swap and diagnose LLM servers on your own GPU hosts."""
    if fleet is not None:
        os.environ["FLEETCTL_FLEET"] = str(fleet)
    if inventory is not None:
        os.environ["FLEETCTL_INVENTORY"] = inventory


app.command("hosts")(hosts.hosts)
app.command("adopt")(adopt.adopt)
app.command("facts")(facts.facts)
app.command("deploy")(deploy.deploy)
app.command("swap")(swap.swap)
app.command("rollback")(rollback.rollback)
app.command("stop")(stop.stop)
app.command("sweep")(sweep.sweep)
app.command("tune")(tune.tune)
app.command("rollouts")(rollouts_list.rollouts)
app.command("attach")(attach.attach)
app.command("abort")(abort.abort)
app.command("status")(status.status)
app.command("logs")(logs.logs)
app.command("history")(history.history)
app.add_typer(
    doctor.app,
    name="doctor",
    help="Name what is wrong with hosts, services, environments or logs, and what to do; changes nothing.",
)
app.add_typer(bench.app, name="bench")
app.add_typer(env.app, name="env")
app.add_typer(export.app, name="export")
app.add_typer(patch.app, name="patch")
app.add_typer(playbook.app, name="playbook")
app.command("report")(report.report)
app.add_typer(lab.app, name="lab")


def main() -> None:
    """Run the command line; an operator's mistake ends in a message and its exit code, never a traceback."""
    try:
        app()
    except FleetError as error:
        from fleetctl.cli.output import Output

        Output(json="--json" in sys.argv).print_error(error)
        sys.exit(int(error.exit))
