"""What ``deploy``, ``swap`` and ``rollback`` share: one job a host, their events, outcomes and exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any

import typer

from fleetctl.cli.output import Output
from fleetctl.cli.progress import Listener, progress
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host
from fleetctl.inventory.select import require_apart
from fleetctl.rollout.fleet_record import FleetRecord, done_before, host_digest
from fleetctl.rollout.fleet_run import End, FleetRollout, Left, Work, cut
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.rollout.outcome import Outcome
from fleetctl.rollout.waves import Pace
from fleetctl.transport import fleet as transport
from fleetctl.words import counted


@dataclass(frozen=True)
class Request:
    """What a rollout on many hosts is to be known by: ``said`` is what the operator asked for (``kind`` and more),
    ``services`` the service to be started by the host's name, ``slots`` the slot."""

    fleet: Fleet
    said: Mapping[str, Any]
    slots: Mapping[str, str]
    services: Mapping[str, str] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    resume: bool = False
    plan: bool = False


def run_rollouts(hosts: Sequence[Host], work: Work, request: Request, *, json: bool) -> None:
    """Run one rollout a host, print what became of each, and exit with what the whole came to.

    A single host's error is raised as it is; of several hosts, exit 8 says that part of them failed.
    """
    output = Output(json=json)
    if len(hosts) == 1 and not request.resume:
        _run_one(output, hosts[0], work, request.plan)
    require_apart(hosts)
    if request.plan:
        _run_plans(output, hosts, work, request)
    _run_fleet(output, hosts, work, request)


def _run_one(output: Output, host: Host, work: Work, plan: bool) -> None:
    interrupt = Interrupt()
    try:
        with progress(output) as listener, interrupt.installed(listener):
            outcome = work(host, interrupt, listener)
    except KeyboardInterrupt:
        raise _plan_cut() if plan else cut(host, interrupt.has_begun) from None
    _print_outcome(output, outcome)
    raise typer.Exit(int(_exit_code({host.name: outcome}, interrupt)))


def _run_plans(output: Output, hosts: Sequence[Host], work: Work, request: Request) -> None:
    interrupt = Interrupt()
    try:
        with progress(output) as listener, interrupt.installed(listener):
            ends: dict[str, End] = {
                **transport.on_hosts(
                    hosts,
                    lambda host: work(host, interrupt, _named(host, listener)),
                    request.pace.max_parallel,
                )
            }
    except KeyboardInterrupt:
        raise _plan_cut() from None
    for end in ends.values():
        _print_end(output, end)
    raise typer.Exit(int(_exit_code(ends, interrupt)))


def _run_fleet(output: Output, hosts: Sequence[Host], work: Work, request: Request) -> None:
    interrupt = Interrupt()
    said, fleet = dict(request.said), request.fleet
    digests = {
        name: host_digest(fleet, fleet.hosts[name], service, said)
        for name, service in request.services.items()
    }
    skipped: dict[str, str] = {}
    if request.resume:
        last, done = done_before(fleet.root, said, digests)
        skipped = {host.name: f"done by rollout {last}" for host in hosts if host.name in done}
    heads = {
        host.name: {
            "service": request.services.get(host.name),
            "slot": request.slots[host.name],
            "digest": digests.get(host.name),
        }
        for host in hosts
    }
    record = FleetRecord(fleet.root, said, heads, asdict(request.pace))
    try:
        with _table(output, hosts) as listener, interrupt.installed(listener):
            run = FleetRollout(
                hosts, request.slots, work, request.pace, interrupt, listener, record, skipped=skipped
            )
            ends = run.run()
        code = _exit_code(ends, interrupt)
        record.write({"end": int(code), **_counts(ends)})
    finally:
        record.close()
    for end in ends.values():
        _print_end(output, end)
    _print_sum(output, ends, record, code, said["kind"])
    raise typer.Exit(int(code))


def _plan_cut() -> FleetError:
    return FleetError("interrupted; nothing was changed", fix="run it again", exit=Exit.INTERRUPTED)


def _table(output: Output, hosts: Sequence[Host]) -> AbstractContextManager[Listener]:
    """A live table of the hosts on a terminal, else their events as of one host."""
    if output.json or not output.is_live:
        return progress(output)
    from fleetctl.cli.fleet_table import fleet_table

    return fleet_table(output, [host.name for host in hosts])


def _named(host: Host, listener: Listener) -> Listener:
    def listen(event: dict[str, Any]) -> None:
        listener({"host": host.name, **event})

    return listen


def _exit_code(ends: Mapping[str, End], interrupt: Interrupt) -> Exit:
    errors = [end for end in ends.values() if isinstance(end, FleetError)]
    if any(error.exit == Exit.NOT_RESTORED for error in errors):
        return Exit.NOT_RESTORED
    left = any(isinstance(end, Left) and end.verdict == "not-begun" for end in ends.values())
    if errors or left:
        if interrupt.asked:
            return Exit.INTERRUPTED
        return Exit.PARTIAL if left else transport.exit_code(ends)
    planned = [end for end in ends.values() if isinstance(end, Outcome) and end.verdict == "planned"]
    if any(finding["severity"] == "error" for outcome in planned for finding in outcome.findings):
        return Exit.PREFLIGHT
    return Exit.PLAN_CHANGES if planned else Exit.OK


def _counts(ends: Mapping[str, End]) -> dict[str, list[str]]:
    """Names of the hosts by what became of them."""
    counts: dict[str, list[str]] = {"done": [], "unchanged": [], "skipped": [], "failed": [], "not-begun": []}
    for name, end in ends.items():
        counts["failed" if isinstance(end, FleetError) else end.verdict].append(name)
    return counts


def _print_sum(output: Output, ends: Mapping[str, End], record: FleetRecord, code: Exit, kind: str) -> None:
    counts = _counts(ends)
    if output.json:
        output.event({"fleet": {"id": record.id, "record": str(record.path), "exit": int(code), **counts}})
        return
    words = {"done": "done", "unchanged": "as wanted before", "skipped": "skipped", "not-begun": "not begun"}
    parts = [
        f"{len(counts[name])} {said}" for name, said in (*words.items(), ("failed", "failed")) if counts[name]
    ]
    output.line(f"{counted(len(ends), 'host')}: {', '.join(parts)}; record {record.path}")
    if left := [name for name in ends if name in (*counts["failed"], *counts["not-begun"])]:
        output.line(_way_on(kind, left))


def _way_on(kind: str, left: Sequence[str]) -> str:
    if kind == "rollback":
        return f"not rolled back: {' '.join(left)}; name only these, for a second rollback undoes the first"
    again = "the same command again" if kind == "stop" else "the same command with --resume"
    return f"{again} does those that are not done"


def _print_end(output: Output, end: End) -> None:
    if isinstance(end, FleetError):
        output.print_error(end)
    elif isinstance(end, Left):
        if output.json:
            output.event({"outcome": end.to_dict()})
        else:
            output.line(
                f"{end.host}: {'not begun' if end.verdict == 'not-begun' else end.verdict}, {end.why}"
            )
    else:
        _print_outcome(output, end)


def _emptied(outcome: Outcome) -> str:
    where = f"{outcome.host} {outcome.slot}"
    if outcome.result is None:
        return f"{where} is empty; nothing to do"
    seconds = sum(outcome.result["seconds"].values())
    held = str(outcome.result["reason"]).partition("; ")[2]
    said = (
        f"{where} is empty: {outcome.service} is stopped and not started at boot; {seconds:.1f} s on the host"
    )
    return f"{said}; {held}: {outcome.result['fix']}" if held and outcome.result.get("fix") else said


def _print_outcome(output: Output, outcome: Outcome) -> None:
    if output.json:
        output.event({"outcome": outcome.to_dict()})
        return
    name = f"{outcome.host} {outcome.slot}: {outcome.service}"
    if outcome.emptied and outcome.verdict != "planned":
        output.line(_emptied(outcome))
        return
    if outcome.verdict == "unchanged":
        output.line(f"{name} is deployed as wanted; nothing to do")
        return
    if outcome.verdict == "planned":
        head = f"{outcome.host} {outcome.slot} would be empty" if outcome.emptied else name
        output.line(f"{head}, planned:")
        for change in outcome.changes:
            output.line(f"  - {change}")
        for line in outcome.diff:
            output.line(f"    {line}")
        for finding in outcome.findings:
            output.line(f"  {finding['severity']}: {finding['what']}")
            if finding.get("fix"):
                output.line(f"    fix: {finding['fix']}")
        return
    if outcome.result is None or "start" not in outcome.result["seconds"]:
        output.line(f"{name} goes on as it was, not restarted; done: {', '.join(outcome.changes)}")
        return
    seconds = sum(outcome.result["seconds"].values())
    output.line(f"{name} serves {outcome.proof}; {seconds:.1f} s on the host")
