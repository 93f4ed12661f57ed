"""``fleetctl env``: the environments of hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete, env_capture, env_clone, env_diff, env_overlay, env_prune
from fleetctl.cli.interruptible import Interruptible

if TYPE_CHECKING:
    from fleetctl.cli.output import Output
    from fleetctl.environment.ship import EnvironmentPlan
    from fleetctl.errors import FleetError
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
    host: Annotated[str | None, typer.Argument(help="Only this host.", autocompletion=complete.hosts)] = None,
    json: Json = False,
) -> None:
    """List the environments that fleetctl built on the hosts, and which slots use them.

    "own" is what pruning one would free; the rest of its files are other environments' too.
    """
    from concurrent.futures import ThreadPoolExecutor

    from fleetctl.cli.output import Output
    from fleetctl.errors import Exit, FleetError
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import select_host

    output = Output(json=json)
    fleet = load_fleet()
    hosts = list(fleet.hosts.values()) if host is None else [select_host(fleet, host)]
    with ThreadPoolExecutor(SIMULTANEOUS) as pool:
        answers = dict(zip((one.name for one in hosts), pool.map(_environments, hosts), strict=True))
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
    if errors:
        raise typer.Exit(int(Exit.PARTIAL))


@app.command()
def build(
    host: Annotated[str, typer.Argument(help="The host.", autocompletion=complete.hosts)],
    name: Annotated[str, typer.Argument(help="The environment: a file of envs/ without .yaml.")],
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be done; change nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Make an environment on a host as its specification says; nothing to do where it is there.

    Built from wheels sent to it, or derived from other environments, which may be on other hosts.
    """
    from fleetctl.cli.output import Output
    from fleetctl.cli.progress import progress
    from fleetctl.environment.ship import apply_environment, require_room, survey_environment
    from fleetctl.environment.spec import load_spec
    from fleetctl.errors import Exit
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import select_host
    from fleetctl.transport.agent import open_agent

    output = Output(json=json)
    fleet = load_fleet()
    target = select_host(fleet, host)
    spec = load_spec(fleet.root, name)
    if spec.base is not None:
        from fleetctl.cli.env_derived import derive_specified

        derive_specified(output, fleet, target, spec, plan)
        return

    with open_agent(target) as agent, progress(output) as listener:

        def on_event(event: dict[str, Any]) -> None:
            listener({**event, "host": target.name})

        house, planned = survey_environment(agent, spec, fleet.root, on_event, whole=True)
        made = None if plan else apply_environment(agent, target, house, planned, on_event)
    if made is None:
        _print_plan(output, target, planned)
        require_room(target, house, planned)
        raise typer.Exit(int(Exit.OK if planned.is_there else Exit.PLAN_CHANGES))
    if json:
        output.event({"path": made.path, "digest": made.digest, "built": made.built, "seconds": made.seconds})
    elif made.built:
        output.line(f"{target.name}: built {made.path} in {sum(made.seconds.values()):.1f} s")
    else:
        output.line(f"{target.name}: {made.path} is there, nothing to do")


def _environments(host: Host) -> list[dict[str, Any]] | FleetError:
    from fleetctl.errors import FleetError
    from fleetctl.transport.agent import open_agent

    try:
        with open_agent(host) as agent:
            listed: list[dict[str, Any]] = agent.call("environment.list", sizes=True)
            return listed
    except FleetError as error:
        return error


def _print_plan(output: Output, host: Host, planned: EnvironmentPlan) -> None:
    if output.json:
        output.event(planned.to_dict())
    elif planned.is_there:
        output.line(f"{host.name}: {planned.path} is there, nothing to do")
    else:
        sent = f"send {len(planned.send)} wheels ({_mb(planned.send_bytes)})"
        output.line(f"{host.name}: {sent} and build {planned.path}")
        output.line(f"{host.name}: needs {_mb(planned.needed)}, {_mb(planned.free)} free")


def _row(host: str, environment: dict[str, Any]) -> list[str]:
    slots = [f"{slot} ({when})" for slot, when in sorted(environment["slots"].items())]
    return [
        host,
        environment["name"],
        environment["digest"],
        environment["python"]["version"],
        environment["built_at"],
        _mb(environment["bytes"]),
        _mb(environment["own_bytes"]) if "own_bytes" in environment else "-",
        ", ".join(slots) or "-",
    ]


def _mb(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
