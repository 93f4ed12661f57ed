"""``fleetctl lab``: local hosts with real systemd, journald and sshd, for the demo and the tests."""

from __future__ import annotations

import os
import shlex
import sys
import time
from typing import Annotated

import typer

from fleetctl.cli.output import Output

app = typer.Typer(
    name="lab",
    help="Local hosts to try everything on: real systemd, journald and sshd.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def up() -> None:
    """Boot the hosts of inventories/lab/; changes nothing where they are up."""
    from fleetctl.lab import hosts, inventory

    began = time.monotonic()
    lab = inventory.load()
    booted = hosts.up(lab, _progress)
    if booted:
        Output().line(f"lab up: booted {', '.join(booted)} in {time.monotonic() - began:.1f} s")
    else:
        Output().line(f"lab up: {', '.join(host.name for host in lab)} are up already, nothing to do")


@app.command()
def down() -> None:
    """End the hosts and take away everything they were made of; only the ssh keys stay."""
    from fleetctl.lab import hosts

    began = time.monotonic()
    ended = hosts.down(_progress)
    if ended:
        Output().line(f"lab down: ended {', '.join(ended)} in {time.monotonic() - began:.1f} s")
    else:
        Output().line("lab down: no host was up, nothing to do")


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """Show each host's address, state, pid, uptime and running units."""
    from fleetctl.lab import hosts, inventory

    states = hosts.status(inventory.load())
    output = Output(json=as_json)
    if as_json:
        output.document({"hosts": [state.to_dict() for state in states]})
        return
    rows = [
        (
            state.host,
            state.address,
            state.state,
            str(state.pid or "-"),
            f"{state.uptime_s:.0f} s" if state.uptime_s is not None else "-",
            str(state.units_running) if state.units_running is not None else "-",
            state.reason,
        )
        for state in states
    ]
    output.table(("host", "address", "state", "pid", "uptime", "units", "reason"), rows)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def ssh(
    host: Annotated[str, typer.Argument(help="The lab host's name.")],
    command: Annotated[list[str] | None, typer.Argument(help="What to run there; a shell without.")] = None,
) -> None:
    """Log in to a host, or run a command there (its exit status is the command's)."""
    from fleetctl.errors import Exit, FleetError
    from fleetctl.lab import inventory, keys, record

    target = inventory.find(host, inventory.load())
    if record.host_record(target.name) is None:
        raise FleetError("the lab host is down", where=host, fix="fleetctl lab up", exit=Exit.UNREACHABLE)
    words = command or []
    if words[:1] == ["--"]:
        words = words[1:]
    remote = words if len(words) < 2 else [shlex.join(words)]
    argv = keys.ssh_command(target, *remote)
    sys.stdout.flush()
    os.execv(argv[0], argv)


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
