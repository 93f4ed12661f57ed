"""What ``deploy``, ``swap`` and ``rollback`` share: one job a host, their events, outcomes and exit code."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import typer

from fleetctl.cli.output import Output
from fleetctl.cli.progress import Listener, progress
from fleetctl.errors import Exit, FleetError
from fleetctl.rollout.deploy import Outcome
from fleetctl.rollout.interrupt import Interrupt

Job = Callable[[Interrupt, Listener], Outcome]
HOSTS_AT_ONCE = 8


def run_jobs(jobs: dict[str, Job], *, json: bool) -> None:
    """Run each host's job, print what became of it, and exit with what the whole came to.

    One host's error is raised as it is; of several hosts, exit 8 says that part of them failed.
    """
    output = Output(json=json)
    interrupt = Interrupt()
    with interrupt.installed(), progress(output) as listener:
        if len(jobs) == 1:
            ((host, job),) = jobs.items()
            ends: dict[str, Outcome | FleetError] = {host: job(interrupt, listener)}
        else:
            ends = _run_all(jobs, interrupt, listener)
    for end in ends.values():
        if isinstance(end, FleetError):
            output.print_error(end)
        else:
            _print_outcome(output, end)
    code = exit_code(list(ends.values()))
    if code != Exit.OK:
        raise typer.Exit(int(code))


def exit_code(ends: list[Outcome | FleetError]) -> Exit:
    """The exit code of several hosts: their common one, or 8 where part of them failed."""
    codes = {end.exit if isinstance(end, FleetError) else _outcome_code(end) for end in ends}
    if len(codes) == 1:
        return codes.pop()
    if codes <= {Exit.OK, Exit.PLAN_CHANGES}:
        return Exit.PLAN_CHANGES
    return Exit.INTERRUPTED if Exit.INTERRUPTED in codes else Exit.PARTIAL


def _outcome_code(outcome: Outcome) -> Exit:
    if outcome.verdict != "planned":
        return Exit.OK
    return Exit.PREFLIGHT if any(f["severity"] == "error" for f in outcome.findings) else Exit.PLAN_CHANGES


def _run_all(jobs: dict[str, Job], interrupt: Interrupt, listener: Listener) -> dict[str, Outcome | FleetError]:
    def attempt(host: str, job: Job) -> Outcome | FleetError:
        def on_event(event: dict[str, Any]) -> None:
            listener({"host": host, **event})

        try:
            return job(interrupt, on_event)
        except FleetError as error:
            return error

    with ThreadPoolExecutor(HOSTS_AT_ONCE) as pool:
        futures: dict[str, Future[Outcome | FleetError]] = {
            host: pool.submit(attempt, host, job) for host, job in jobs.items()
        }
        return {host: future.result() for host, future in futures.items()}


def _print_outcome(output: Output, outcome: Outcome) -> None:
    if output.json:
        output.event({"outcome": outcome.to_dict()})
        return
    name = f"{outcome.host} {outcome.slot}: {outcome.service}"
    if outcome.verdict == "unchanged":
        output.line(f"{name} is deployed as wanted; nothing to do")
        return
    if outcome.verdict == "planned":
        output.line(f"{name}, planned:")
        for change in outcome.changes:
            output.line(f"  - {change}")
        for line in outcome.diff:
            output.line(f"    {line}")
        for finding in outcome.findings:
            output.line(f"  {finding['severity']}: {finding['what']}")
            if finding.get("fix"):
                output.line(f"    fix: {finding['fix']}")
        return
    seconds = sum((outcome.result or {}).get("seconds", {}).values())
    output.line(f"{name} serves (mode {outcome.mode}), proven by a generation; {seconds:.1f} s on the host")
