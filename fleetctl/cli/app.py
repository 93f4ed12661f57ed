"""The ``fleetctl`` command: its verbs, its global options, and how errors reach the operator."""

from __future__ import annotations

import typer

from fleetctl.cli import lab

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)
app.add_typer(lab.app, name="lab")


def main() -> None:
    """Run the command line."""
    app()
