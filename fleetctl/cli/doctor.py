"""``fleetctl doctor``: what is wrong with a host, a service, an environment or a log, why, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from fleetctl.cli import complete, doctor_rules
from fleetctl.cli.fleet_options import HOSTS, PARALLEL, MaxParallel

if TYPE_CHECKING:
    from fleetctl.doctor.diagnosis import Diagnosis
    from fleetctl.doctor.examination import Asked
    from fleetctl.errors import Exit, FleetError

DEFAULT = "examine"


class HostsOrVerb(TyperGroup):
    """``doctor explain`` and ``doctor rules`` are verbs; every other first word is a host (after ``--`` any)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the verb that looks at hosts before what is no verb."""
        if not args or args[0] not in self.commands or args[0] == DEFAULT:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that looks at hosts has no name in usage lines."""
        name, command, rest = super().resolve_command(ctx, args)
        return "" if name == DEFAULT else name, command, rest


app = typer.Typer(
    cls=HostsOrVerb,
    add_completion=False,
    rich_markup_mode=None,
    help="Name what is wrong with hosts, services, environments or logs, and what to do; changes nothing.",
)
app.command("rules")(doctor_rules.rules)
app.command("explain")(doctor_rules.explain)


@app.command(
    DEFAULT, hidden=True, epilog="`doctor rules` lists what is looked for, `doctor explain RULE` says why."
)
def doctor(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"{HOSTS} All of the inventory without. With --local, --facts or --log: whose services these are.",
            autocompletion=complete.doctor_words,
        ),
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="PLACE",
            help="An environment alone, by path or name; with --service, that service in it.",
            autocompletion=complete.environments,
        ),
    ] = None,
    service: Annotated[
        str | None,
        typer.Option("--service", help="One service only.", autocompletion=complete.services),
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Look at this machine, without ssh.")] = False,
    facts: Annotated[
        Path | None,
        typer.Option(
            "--facts", metavar="FILE", help="What `fleetctl facts HOST --json` wrote, in place of a host."
        ),
    ] = None,
    logs: Annotated[
        list[str] | None,
        typer.Option(
            "--log",
            metavar="FILE",
            help="Name a log's first cause (`-`: stdin); several times for several files.",
        ),
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also run a small kernel on each GPU.")] = False,
    max_parallel: MaxParallel = PARALLEL,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="To paste into an issue: no names, addresses, keys or tokens.")
    ] = False,
) -> None:
    """Name what is wrong, or would be after a deploy, with its evidence and remedy. Changes nothing.

    Exit 5 where an error stands, 0 with warnings alone; 8 where some hosts failed, 3 where all did.
    """
    from fleetctl.cli.output import Output
    from fleetctl.doctor.diagnosis import document
    from fleetctl.doctor.examination import Asked, examine_all
    from fleetctl.errors import FleetError

    if json and markdown:
        raise FleetError("--json and --markdown are one too many", fix="name one of them")
    asked = Asked(hosts or [], environment, service, local, facts, logs or [], deep, max_parallel)
    results = examine_all(asked)
    if json:
        Output(json=True).document(document(results))
    elif markdown:
        _markdown(asked, results)
    else:
        _screens(results)
    raise typer.Exit(int(exit_code(results)))


def exit_code(results: dict[str, Diagnosis | FleetError]) -> Exit:
    """That of hosts that failed, else 5 where an error stands."""
    from fleetctl.errors import Exit, FleetError
    from fleetctl.transport import fleet

    failed = fleet.exit_code(results)
    if failed != Exit.OK:
        return failed
    wrong = any(not isinstance(one, FleetError) and one.has_error for one in results.values())
    return Exit.PREFLIGHT if wrong else Exit.OK


def _markdown(asked: Asked, results: dict[str, Diagnosis | FleetError]) -> None:
    from fleetctl.cli.output import Output
    from fleetctl.doctor.examination import private_names
    from fleetctl.doctor.markdown import markdown
    from fleetctl.errors import FleetError

    output = Output()
    hosts, users = private_names(asked)
    found = [one for one in results.values() if not isinstance(one, FleetError)]
    for line in markdown(found, hosts, users).splitlines():
        output.line(line)
    _errors(output, results)


def _screens(results: dict[str, Diagnosis | FleetError]) -> None:
    from fleetctl.cli.doctor_screen import show
    from fleetctl.cli.output import Output
    from fleetctl.errors import FleetError

    output = Output()
    shown = [one for one in results.values() if not isinstance(one, FleetError)]
    for number, one in enumerate(shown):
        if number:
            output.line()
        show(output, one)
    _errors(output, results)


def _errors(output: Any, results: dict[str, Diagnosis | FleetError]) -> None:
    from fleetctl.errors import FleetError

    for one in results.values():
        if isinstance(one, FleetError):
            output.print_error(one)
