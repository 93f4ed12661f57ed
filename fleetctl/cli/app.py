"""The ``fleetctl`` command: its verbs, its global options, and how errors reach the operator."""

from __future__ import annotations

import sys

import typer

from fleetctl.cli import lab
from fleetctl.errors import FleetError

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)
app.add_typer(lab.app, name="lab")


def main() -> None:
    """Run the command line."""
    try:
        app()
    except FleetError as error:
        lines = [f"error: {error}", *(f"  | {line}" for line in error.evidence)]
        if error.fix:
            lines.append(f"  fix: {error.fix}")
        print("\n".join(lines), file=sys.stderr)
        sys.exit(int(error.exit))
