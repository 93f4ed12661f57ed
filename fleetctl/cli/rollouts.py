"""What ``deploy``, ``swap`` and ``rollback`` share: one job a host, their events, outcomes and exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer

from fleetctl.cli.output import Output
from fleetctl.cli.progress import Listener, progress
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import Host
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.rollout.outcome import Outcome
from fleetctl.transport import fleet

Work = Callable[[Host, Interrupt, Listener], Outcome]


def run_rollouts(hosts: Sequence[Host], work: Work, *, json: bool) -> None:
    """Run one rollout a host, print what became of each, and exit with what the whole came to.

    A single host's error is raised as it is; of several hosts, exit 8 says that part of them failed.
    """
    output = Output(json=json)
    interrupt = Interrupt()
    with progress(output) as listener, interrupt.installed(listener):
        if len(hosts) == 1:
            ends: dict[str, Outcome | FleetError] = {hosts[0].name: work(hosts[0], interrupt, listener)}
        else:
            ends = fleet.on_hosts(hosts, lambda host: work(host, interrupt, _named(host, listener)))
    for end in ends.values():
        if isinstance(end, FleetError):
            output.print_error(end)
        else:
            _print_outcome(output, end)
    if code := _exit_code(ends, interrupt):
        raise typer.Exit(int(code))


def _named(host: Host, listener: Listener) -> Listener:
    def listen(event: dict[str, Any]) -> None:
        listener({"host": host.name, **event})

    return listen


def _exit_code(ends: dict[str, Outcome | FleetError], interrupt: Interrupt) -> Exit:
    outcomes = [end for end in ends.values() if isinstance(end, Outcome)]
    if any(isinstance(end, FleetError) and end.exit == Exit.NOT_RESTORED for end in ends.values()):
        return Exit.NOT_RESTORED
    if len(outcomes) < len(ends):
        return Exit.INTERRUPTED if interrupt.asked else fleet.exit_code(ends)
    planned = [outcome for outcome in outcomes if outcome.verdict == "planned"]
    if any(finding["severity"] == "error" for outcome in planned for finding in outcome.findings):
        return Exit.PREFLIGHT
    return Exit.PLAN_CHANGES if planned else Exit.OK


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
    if outcome.result is None or "start" not in outcome.result["seconds"]:
        output.line(f"{name} goes on as it was, not restarted; done: {', '.join(outcome.changes)}")
        return
    seconds = sum(outcome.result["seconds"].values())
    output.line(f"{name} serves {outcome.proof}; {seconds:.1f} s on the host")
