"""``fleetctl sweep``: measure a suite's points once each, and go on where it was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.bench import bounds
from fleetctl.cli import complete
from fleetctl.cli.report import LatexOption

if TYPE_CHECKING:
    from fleetctl.bench.sweep import Prepared
    from fleetctl.cli.output import Output

SUITE = "sweep-ddtree"


def sweep(
    host: Annotated[str, typer.Argument(help="The host to measure on.", autocompletion=complete.hosts)],
    suite: Annotated[
        str, typer.Argument(help="A suite of playbooks/bench/, or a file.", autocompletion=complete.suites)
    ] = SUITE,
    services: Annotated[
        list[str] | None,
        typer.Option(
            "--service",
            help="In place of the suite's services; several times for several.",
            autocompletion=complete.services,
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Own prompts: YAML, ShareGPT's JSONL, or text with one prompt a line."
        ),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, max=bounds.ROUNDS, help="Rounds, in place of the suite's.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, max=bounds.TOKENS, help="Tokens an answer, in place of the suite's.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="The first N prompts only.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=1, metavar="SECONDS", help="Begin no new point after so long.")
    ] = None,
    margin: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Stop a point that is surely slower than this share of the best; 0 stops none.",
        ),
    ] = 0.9,
    again: Annotated[
        bool, typer.Option("--again", help="Measure what earlier runs have measured, too.")
    ] = False,
    latex: LatexOption = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what is left and how long it takes; change nothing.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Events and the outcome as JSON lines.")] = False,
) -> None:
    """Measure each point of a suite once: what earlier runs measured alike is taken over, also of a killed one.

    A point that is clearly slower than the best is stopped after the round that shows it. In the end what stood
    in the slot comes back. Exit codes: 0 all measured, 5 some point could not be, 10 --plan, 130 interrupted.
    """
    from fleetctl.bench.sweep import prepare, run_sweep
    from fleetctl.cli import bench
    from fleetctl.cli.outfile import require_folder
    from fleetctl.cli.output import Output
    from fleetctl.inventory.loader import load_fleet

    if latex is not None:
        require_folder(latex, "--latex")
    changes = {"repeats": repeats, "max_tokens": max_tokens, "time_limit": time_limit, "order": "blocks"}
    job = bench.prepare(load_fleet(), host, services or [], suite, prompts, limit, changes)
    output = Output(json=json)
    prepared = prepare(job, again=again)
    if plan:
        _print_plan(output, prepared)
        raise typer.Exit(10 if prepared.job.plan.visits else 0)
    _say_known(output, prepared)
    raise typer.Exit(
        bench.measure(
            output,
            prepared.job,
            lambda interrupt, watcher: run_sweep(prepared, interrupt, watcher, margin=margin),
            latex,
        )
    )


def _print_plan(output: Output, prepared: Prepared) -> None:
    from dataclasses import replace

    from fleetctl.cli import bench

    job = prepared.job
    left = replace(job.plan, points=[one for one in job.plan.points if one.id not in prepared.known])
    if not output.json:
        _say_known(output, prepared)
    if not left.points and not output.json:
        output.line("nothing is left to measure; --again measures all anew")
        return
    bench.print_plan(output, replace(job, plan=left))


def _say_known(output: Output, prepared: Prepared) -> None:
    for name, known in prepared.known.items():
        if output.json:
            output.event({"step": "known", "state": "info", "text": name, "run": known.run})
        else:
            output.progress.print(f"{name}: measured before, in run {known.run}", markup=False)
