"""``fleetctl env``: the environments of hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete, env_capture, env_clone, env_diff, env_overlay, env_prune
from fleetctl.cli.fleet_options import HOSTS, MaxParallel
from fleetctl.cli.interruptible import Interruptible
from fleetctl.words import counted

if TYPE_CHECKING:
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import Listener
    from fleetctl.environment.ship import EnvironmentOnHost, EnvironmentPlan
    from fleetctl.environment.spec import EnvironmentSpec
    from fleetctl.environment.wheelhouse import Wheelhouse
    from fleetctl.errors import FleetError
    from fleetctl.inventory.loader import Fleet
    from fleetctl.inventory.models import Host

app = typer.Typer(
    name="env",
    help="Environments: what is on a host, and building one.",
    no_args_is_help=True,
    cls=Interruptible,
    rich_markup_mode=None,
)
app.command("capture")(env_capture.capture)
app.command("show")(env_capture.show)
app.command("verify")(env_capture.verify)
app.command("diff")(env_diff.diff)
app.command("overlay")(env_overlay.overlay)
app.command("clone")(env_clone.clone)
app.command("prune")(env_prune.prune)
SIMULTANEOUS = 8

Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]


@app.command("list")
def list_(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(help=f"{HOSTS} All of the inventory without.", autocompletion=complete.hosts),
    ] = None,
    max_parallel: MaxParallel = SIMULTANEOUS,
    json: Json = False,
) -> None:
    """List the environments that fleetctl built on the hosts, and which slots use them.

    "own" is what pruning one would free; the rest of its files are other environments' too.
    """
    from fleetctl.cli.output import Output
    from fleetctl.errors import FleetError
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import hosts_of
    from fleetctl.transport.fleet import on_hosts

    output = Output(json=json)
    answers = on_hosts(hosts_of(load_fleet(), hosts), _environments, max_parallel)
    found = {name: answer for name, answer in answers.items() if not isinstance(answer, FleetError)}
    errors = {name: answer for name, answer in answers.items() if isinstance(answer, FleetError)}
    if errors and not found:
        raise next(iter(errors.values()))
    if json:
        output.document({"hosts": found, "errors": {name: error.to_dict() for name, error in errors.items()}})
    else:
        rows = [_row(name, environment) for name, listed in found.items() for environment in listed]
        output.table(["host", "environment", "digest", "python", "built", "size", "own", "used by"], rows)
        for error in errors.values():
            output.print_error(error)
    _leave(errors, len(answers))


@app.command()
def build(
    hosts: Annotated[str, typer.Argument(help=f"{HOSTS} One word.", autocompletion=complete.hosts)],
    name: Annotated[str, typer.Argument(help="The environment: a file of envs/ without .yaml.")],
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be done; change nothing.")] = False,
    max_parallel: MaxParallel = SIMULTANEOUS,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Make an environment on hosts as its specification says; nothing to do where it is there.

    Built from wheels sent to it, or derived from other environments, which may be on other hosts.
    """
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import progress
    from fleetctl.environment.spec import load_spec
    from fleetctl.errors import Exit, FleetError
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import hosts_of
    from fleetctl.transport.fleet import on_hosts

    output = Output(json=json)
    fleet = load_fleet()
    targets = hosts_of(fleet, [hosts])
    spec = load_spec(fleet.root, name)
    if spec.base is not None:
        from fleetctl.cli.env_derived import derive_specified

        for target in targets:
            derive_specified(output, fleet, target, spec, plan)
        return
    with progress(output) as listener:
        built = on_hosts(targets, lambda host: _built(host, fleet, spec, plan, listener), max_parallel)
    errors = {host: one for host, one in built.items() if isinstance(one, FleetError)}
    done = [one for one in built.values() if not isinstance(one, FleetError)]
    for one in done:
        _print_built(output, one)
        if plan and (lacks := _lacks_room(one)):
            errors[one.host.name] = lacks
    if errors and len(built) == 1:
        raise errors.popitem()[1]
    for error in errors.values():
        output.print_error(error)
    _leave(errors, len(built))
    if plan and not all(one.planned.is_there for one in done):
        raise typer.Exit(int(Exit.PLAN_CHANGES))


@dataclass(frozen=True)
class Built:
    """What was planned for one host, and what was ``made``: None with ``--plan``."""

    host: Host
    house: Wheelhouse
    planned: EnvironmentPlan
    made: EnvironmentOnHost | None


def _built(host: Host, fleet: Fleet, spec: EnvironmentSpec, plan: bool, listener: Listener) -> Built:
    from fleetctl.environment.ship import apply_environment, survey_environment
    from fleetctl.transport.agent import open_agent

    def on_event(event: dict[str, Any]) -> None:
        listener({**event, "host": host.name})

    with open_agent(host) as agent:
        house, planned = survey_environment(agent, spec, fleet.root, on_event, whole=True)
        made = None if plan else apply_environment(agent, host, house, planned, on_event)
        return Built(host, house, planned, made)


def _lacks_room(built: Built) -> FleetError | None:
    from fleetctl.environment.ship import require_room
    from fleetctl.errors import FleetError

    try:
        require_room(built.host, built.house, built.planned)
    except FleetError as error:
        return error
    return None


def _leave(errors: dict[str, FleetError], hosts: int) -> None:
    """Exit 8 where part of the hosts failed, 3 where none was reached."""
    from fleetctl.errors import Exit

    if not errors:
        return
    unreached = len(errors) == hosts and all(error.exit == Exit.UNREACHABLE for error in errors.values())
    raise typer.Exit(int(Exit.UNREACHABLE if unreached else Exit.PARTIAL))


def _print_built(output: Output, built: Built) -> None:
    made, name = built.made, built.host.name
    if made is None:
        _print_plan(output, name, built.planned)
    elif output.json:
        said = {"path": made.path, "digest": made.digest, "built": made.built, "seconds": made.seconds}
        output.event({"host": name, **said})
    elif made.built:
        output.line(f"{name}: built {made.path} in {sum(made.seconds.values()):.1f} s")
    else:
        output.line(f"{name}: {made.path} is there, nothing to do")


def _environments(host: Host) -> list[dict[str, Any]]:
    from fleetctl.transport.agent import open_agent

    with open_agent(host) as agent:
        listed: list[dict[str, Any]] = agent.call("environment.list", sizes=True)
        return listed


def _print_plan(output: Output, host: str, planned: EnvironmentPlan) -> None:
    if output.json:
        output.event({"host": host, **planned.to_dict()})
    elif planned.is_there:
        output.line(f"{host}: {planned.path} is there, nothing to do")
    else:
        sent = f"send {counted(len(planned.send), 'wheel')} ({_mb(planned.send_bytes)})"
        output.line(f"{host}: {sent} and build {planned.path}")
        output.line(f"{host}: needs {_mb(planned.needed)}, {_mb(planned.free)} free")


def _row(host: str, environment: dict[str, Any]) -> list[str]:
    from fleetctl.cli.history import when

    slots = [f"{slot} ({use})" for slot, use in sorted(environment["slots"].items())]
    return [
        host,
        environment["name"],
        environment["digest"],
        environment["python"]["version"],
        when(environment["built_at"]),
        _mb(environment["bytes"]),
        _mb(environment["own_bytes"]) if "own_bytes" in environment else "-",
        ", ".join(slots) or "-",
    ]


def _mb(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
