"""``fleetctl bench``: measure services in their slots, and look at what was measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from fleetctl.bench import bounds
from fleetctl.cli import bench_records, complete
from fleetctl.cli.report import LatexOption
from fleetctl.words import counted, duration

if TYPE_CHECKING:
    from fleetctl.bench.points import BenchPlan, Visit
    from fleetctl.bench.runner import Job, Result, Watcher
    from fleetctl.bench.suite import Suite
    from fleetctl.cli.output import Output
    from fleetctl.inventory.loader import Fleet
    from fleetctl.rollout.interrupt import Interrupt

Found = TypeVar("Found")
RUN = "run"
SUITE = "five-prompts"


class HostOrVerb(TyperGroup):
    """A first word that is no verb is a host: ``bench ct200`` is ``bench run ct200``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``run`` before what is no verb."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [RUN, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Verbs, and hosts."""
        from click.shell_completion import CompletionItem

        hosts = [CompletionItem(name, help=about) for name, about in complete.hosts(ctx, incomplete)]
        return [*super().shell_complete(ctx, incomplete), *hosts]


app = typer.Typer(
    cls=HostOrVerb,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Measure services side by side, with the same prompts: `bench HOST [SERVICE…]`.",
)
app.command("list")(bench_records.list_runs)
app.command("show")(bench_records.show)
app.command("compare")(bench_records.compare)
app.command("export")(bench_records.export)


@app.command(RUN)
def run(
    host: Annotated[str, typer.Argument(help="The host to measure on.", autocompletion=complete.hosts)],
    services: Annotated[
        list[str] | None,
        typer.Argument(
            help="Services to compare; without, the suite's, or all of the default slot.",
            autocompletion=complete.services,
        ),
    ] = None,
    suite: Annotated[
        str,
        typer.Option(help="A suite of playbooks/bench/, or a file.", autocompletion=complete.suites),
    ] = SUITE,
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
    concurrency: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=bounds.CONCURRENCY,
            help="Requests at once, in place of the suite's; several times for several.",
        ),
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="interleaved (A B A B) or blocks (A A B B).", metavar="ORDER")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="The first N prompts only.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=1, metavar="SECONDS", help="Begin nothing new after so long.")
    ] = None,
    latex: LatexOption = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="GENERATOR", help="Requests by a load generator in our client's place: aiperf."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show the points and how long they take; change nothing.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Events and the outcome as JSON lines.")] = False,
) -> None:
    """Measure services with the same prompts, each in turn in its slot; then what stood there before comes back.

    Exit codes: 0 all measured, 5 some point could not be, 7 what stood there was not brought back, 10 --plan
    (it would swap services), 130 interrupted: what was measured is kept.
    """
    from dataclasses import replace

    from fleetctl.bench.loadgen import check_name
    from fleetctl.cli.outfile import require_folder
    from fleetctl.cli.output import Output
    from fleetctl.inventory.loader import load_fleet

    if latex is not None:
        require_folder(latex, "--latex")
    fleet = load_fleet()
    changes = {
        "repeats": repeats,
        "max_tokens": max_tokens,
        "concurrency": concurrency,
        "order": order,
        "time_limit": time_limit,
    }
    if by is not None:
        check_name(by)
    job = replace(prepare(fleet, host, services or [], suite, prompts, limit, changes), by=by)
    output = Output(json=json)
    if plan:
        print_plan(output, job)
        raise typer.Exit(10)
    raise typer.Exit(_measure(output, job, latex))


def prepare(
    fleet: Fleet,
    host_name: str,
    services: list[str],
    suite_name: str,
    prompts: Path | None,
    limit: int | None,
    changes: dict[str, Any],
) -> Job:
    """What the command line asks for, checked; FleetError (exit 2) where something of it is not there."""
    from pydantic import ValidationError

    from fleetctl.bench.estimate import from_records
    from fleetctl.bench.points import choose_services, plan_bench
    from fleetctl.bench.prompts import load_prompts
    from fleetctl.bench.runner import Job
    from fleetctl.bench.suite import Suite, load_suite
    from fleetctl.errors import FleetError
    from fleetctl.inventory.problems import in_words
    from fleetctl.inventory.select import select_host

    host = select_host(fleet, host_name)
    suite = load_suite(fleet.root, suite_name)
    try:
        suite = suite.with_(**{name: value for name, value in changes.items() if value is not None})
    except ValidationError as error:
        wrong = in_words(error, {**dict(suite), **changes}, Suite)[0]
        option = str(wrong.key[0]).replace("_", "-")
        raise FleetError(f"--{option}: {wrong.what}", fix=wrong.fix or "fleetctl bench run --help") from None
    asked = (load_prompts(prompts) if prompts else suite.read_prompts(fleet.root))[:limit]
    chosen = choose_services(host, suite, services)
    planned = plan_bench(
        host, suite, chosen, len(asked), from_records(fleet.root, host.name, suite.max_tokens)
    )
    command = ["fleetctl", *sys.argv[1:]]
    return Job(fleet, host, suite, asked, planned, command, prompts_file=prompts)


def print_plan(output: Output, job: Job, how: str = "", check: Sequence[Visit] = ()) -> None:
    """The points in order, what each takes, and the whole. ``how``: the prompts are asked, if not in rounds.

    ``check``: those of the plan's visits that are a check of some points, which is a line of its own.
    """
    suite, plan = job.suite, job.plan
    seconds: dict[str, float] = {}
    requests: dict[str, int] = {}
    for visit in plan.visits[: len(plan.visits) - len(check)]:
        seconds[visit.point.id] = seconds.get(visit.point.id, 0.0) + visit.seconds
        requests[visit.point.id] = requests.get(visit.point.id, 0) + visit.requests
    check_s = sum(visit.seconds for visit in check)
    if output.json:
        points = [
            {
                "id": one.id,
                "service": one.service,
                "mode": one.mode,
                "varied": one.varied,
                "concurrency": one.concurrency,
                "requests": requests[one.id],
                "seconds": round(seconds[one.id], 1),
            }
            for one in plan.points
        ]
        whole = {
            "suite": suite.suite,
            "order": suite.order,
            "points": points,
            "swaps": plan.swaps,
            "requests": plan.requests,
            "seconds": round(plan.seconds, 1),
            "left_out": plan.left_out,
        }
        if check:
            whole["check"] = {
                "requests": sum(visit.requests for visit in check),
                "seconds": round(check_s, 1),
            }
        output.document({"plan": whole})
        return
    whose = f"{job.prompts_file}, by the suite {suite.suite}" if job.prompts_file else suite.suite
    how = how or f"{counted(suite.repeats, 'round')} ({suite.order})"
    output.line(
        f"{whose}: {counted(len(job.prompts), 'prompt')}, {how}, "
        f"at most {counted(suite.max_tokens, 'token')} an answer"
    )
    rows = [
        [one.id, one.mode, str(one.concurrency), str(requests[one.id]), duration(seconds[one.id])]
        for one in plan.points
    ]
    if check:
        asked = sum(visit.requests for visit in check)
        rows.append(["the check, at most", "", "", str(asked), duration(check_s)])
    output.table(["point", "mode", "at once", "requests", "takes"], rows)
    for note in plan.left_out:
        output.line(f"  {note}")
    output.line(in_sum(suite, plan))


def in_sum(suite: Suite, plan: BenchPlan) -> str:
    """``2 swaps, 12 requests: about 45 s``"""
    limit = f", cut off after {duration(suite.time_limit)}" if suite.time_limit else ""
    work = f"{counted(plan.swaps, 'swap')}, {counted(plan.requests, 'request')}"
    return f"{work}: about {duration(plan.seconds)}{limit}"


def say_begin(output: Output, job: Job) -> None:
    """What will be done, before it is."""
    points = len({visit.point.id for visit in job.plan.visits})
    if not output.json and points:
        output.note(f"{job.host.name}: {counted(points, 'point')}, {in_sum(job.suite, job.plan)}")
        output.note("^C ends it cleanly, keeps what was measured and brings back what stood there")


def _measure(output: Output, job: Job, latex: Path | None) -> int:
    from fleetctl.bench.runner import run_bench

    return measure(output, job, lambda interrupt, watcher: run_bench(job, interrupt, watcher), latex)


def measure(
    output: Output, job: Job, act: Callable[[Interrupt, Watcher], Result], latex: Path | None = None
) -> int:
    """Have ``act`` measure with progress shown, then print what came of it and write its report; the exit code."""
    from fleetctl.bench.records import load
    from fleetctl.errors import Exit

    result = watched(output, job, act)
    recording = load(result.path)
    files, why = report_of(result.path, latex)
    if output.json:
        failed = {name: error.to_dict() for name, error in result.failed.items()}
        output.event(
            {
                "outcome": {
                    "run": recording.run.id,
                    "records": str(result.path),
                    "report": files[0] if files else None,
                    "files": files,
                    "latex": why,
                    "outcome": result.outcome,
                    "why": result.why,
                    "failed": failed,
                    "points": [bench_records.figures(recording, one) for one in recording.points],
                }
            }
        )
    else:
        bench_records.print_recording(output, recording)
        for error in result.failed.values():
            output.print_error(error)
        output.line(f"records: {result.path}")
        for file in files:
            output.line(f"report: {file}")
        if why:
            output.progress.print(why, style="yellow", soft_wrap=True)
    return int(Exit.PREFLIGHT if result.failed else Exit.OK)


def watched(output: Output, job: Job, act: Callable[[Interrupt, Watcher], Found]) -> Found:
    """Say what is to be done, have ``act`` do it with progress shown, ^C handled; what it gives."""
    from fleetctl.cli.bench_progress import watching
    from fleetctl.errors import Exit, FleetError
    from fleetctl.rollout.interrupt import Interrupt

    interrupt = Interrupt()
    say_begin(output, job)
    _end_as_by_hand()
    try:
        with watching(output, job.plan) as watcher, interrupt.installed(watcher.event):
            return act(interrupt, watcher)
    except KeyboardInterrupt:
        raise FleetError("interrupted before anything was measured", exit=Exit.INTERRUPTED) from None


def _end_as_by_hand() -> None:
    """A closed terminal and the end of a CI job put back what stood there, as ^C does."""
    import signal

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))


def report_of(records: Path, latex: Path | None = None) -> tuple[list[str], str]:
    """The files of a run's report, the page first, none where no point was measured; why ``latex`` lacks some.

    What cannot be written is said on stderr, and lets a command that ends well else have exit 1.
    """
    from fleetctl.bench import report
    from fleetctl.bench.records import load
    from fleetctl.bench.summary import summarize
    from fleetctl.cli.output import lose
    from fleetctl.errors import FleetError

    try:
        summary = summarize([load(records)])
    except FleetError as error:
        return [], str(error) if latex else ""
    page = records.parent / report.PAGE
    try:
        written = report.write(summary, page, latex)
    except FleetError as error:
        error.fix = f"the records are whole; elsewhere: fleetctl report {summary.runs[0].id} -o FILE"
        lose(error)
        return [str(page)] if page.is_file() else [], ""
    return written.files(), written.why
