"""``fleetctl tune``: find the mode and the settings that are quickest for a workload."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.bench import bounds
from fleetctl.cli import complete
from fleetctl.words import counted

if TYPE_CHECKING:
    from fleetctl.bench.tune import Prepared
    from fleetctl.bench.tuning import Check, Tuning
    from fleetctl.cli.output import Output

SUITE = "tune"


def tune(
    host: Annotated[str, typer.Argument(help="The host to measure on.", autocompletion=complete.hosts)],
    workload: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The prompts to be quick at: YAML, ShareGPT's JSONL, or text with one prompt a line.",
        ),
    ] = None,
    suite: Annotated[
        str,
        typer.Option(
            help="Which candidates: a suite of playbooks/bench/, or a file.", autocompletion=complete.suites
        ),
    ] = SUITE,
    services: Annotated[
        list[str] | None,
        typer.Option(
            "--service",
            help="In place of the suite's services; several times for several.",
            autocompletion=complete.services,
        ),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, max=bounds.TOKENS, help="Tokens an answer, in place of the suite's.")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=bounds.CONCURRENCY, help="Requests at once, in place of the suite's."),
    ] = None,
    looks: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=20,
            help="How often candidates are compared and beaten ones leave; 4 where the prompts are enough.",
        ),
    ] = None,
    held_out: Annotated[
        float,
        typer.Option(min=0.1, max=0.9, metavar="SHARE", help="Prompts kept back to check the choice with."),
    ] = 1 / 3,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="The first N prompts only.")
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(min=1, metavar="SECONDS", help="Begin no new look after so long; the check follows."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show the candidates and how long they and the check take at most.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Events and the outcome as JSON lines.")] = False,
) -> None:
    """Find the mode, budget and top-k that are quickest for a workload, and check them on prompts held out.

    All candidates answer the same prompts, part by part; those that another one surely beats leave. The best is
    among those left with 95 % confidence; whether the choice beats what runs now is told by the prompts held out
    alone. Nothing is deployed in the end: what stood in the slot comes back. Exit codes: 0 chosen (also where
    nothing differs), 5 no candidate could be measured, 10 --plan, 130 interrupted.
    """
    from fleetctl.bench.estimate import from_records
    from fleetctl.bench.tune import prepare, run_tune
    from fleetctl.cli import bench
    from fleetctl.cli.output import Output
    from fleetctl.inventory.loader import load_fleet

    changes = {
        "max_tokens": max_tokens,
        "concurrency": [concurrency] if concurrency else None,
        "time_limit": time_limit,
    }
    job = bench.prepare(load_fleet(), host, services or [], suite, workload, limit, changes)
    estimate = from_records(job.fleet.root, job.host.name, job.suite.max_tokens)
    prepared = prepare(job, estimate, looks=looks, held_out=held_out)
    output = Output(json=json)
    if plan:
        _print_plan(output, prepared)
        raise typer.Exit(10)
    found = bench.watched(
        output, prepared.job, lambda interrupt, watcher: run_tune(prepared, interrupt, watcher)
    )
    files, _ = bench.report_of(found.path)
    page = files[0] if files else None
    if json:
        output.event({"outcome": {**found.to_dict(), "report": page}})
        return
    _print(output, found)
    if page:
        output.line(f"report: {page}")


def _print_plan(output: Output, prepared: Prepared) -> None:
    from fleetctl.cli import bench

    looks, held_out = len(prepared.parts), len(prepared.split.held_out)
    check = [visit for visit in prepared.job.plan.visits if visit.rounds[0] > looks]
    how = f"{len(prepared.split.chosen_with)} to choose with and {held_out} to check with"
    bench.print_plan(output, prepared.job, how, check)
    if not output.json:
        sizes = ", ".join(str(len(part)) for part in prepared.parts)
        checked = counted(len({visit.point.id for visit in check}), "candidate")
        output.line(
            f"{counted(looks, 'look')} at {sizes} prompts, then a check of at most {checked}, in turn;"
        )
        output.line("candidates that are surely slower leave after each look, so it takes less than that")


def _print(output: Output, found: Tuning) -> None:
    tried = 1 + len(found.apart) + len(found.out) + len(found.failed)
    output.styled([("choice  ", "bold"), (_short(found.choice), "bold green")])
    output.line(f"  the quickest of {tried} candidates on {counted(found.prompts[0], 'prompt')}")
    if found.apart:
        output.line(f"  not told apart from it: {', '.join(_short(name) for name in found.apart)}")
    for gone in found.out:
        output.line(f"  beaten: {_short(gone.name)}, {gone.ratio:.2f} times as fast as {_short(gone.by)} "
                    f"(at most {gone.high:.2f})")  # fmt: skip
    for name, why in found.failed.items():
        output.line(f"  not measured: {_short(name)}: {why}")
    output.line(f"checked on {counted(found.prompts[1], 'prompt')} that it was not chosen with")
    for one in found.checks:
        output.line(f"  {_checked(one)}")
    if not found.checks:
        output.line("  there was nothing to check it against")
    output.styled([("advice  ", "bold"), (f"{_short(found.advice)}: {found.why}", "")])
    if found.advice != found.incumbent:
        output.line("for the services of the host's file in inventories/:")
        for line in found.entry.splitlines():
            output.line(f"  {line}")
    output.line(f"records: {found.path}")


def _checked(one: Check) -> str:
    ratio = one.ratio
    sure = "-" if ratio.low is None else f"{ratio.low:.2f} to {ratio.high:.2f}"
    return f"{ratio.mean:.2f} times as fast as {_short(one.other)} ({sure}): {one.verdict}"


def _short(name: str) -> str:
    return name.rpartition("/")[2].removesuffix("@c1")
