"""``fleetctl bench list|show|compare|export``: what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete
from fleetctl.words import counted

if TYPE_CHECKING:
    from fleetctl.bench.comparing import Change
    from fleetctl.bench.record import Point
    from fleetctl.bench.records import Recording
    from fleetctl.cli.output import Output

MOST_NAMED = 8
A_RUN = "an id or a part of it, `last`, or a file."
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help=f"A run: {A_RUN}", autocompletion=complete.runs)
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document.")]


def list_runs(
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="At most so many.")] = 20,
    json: JsonOption = False,
) -> None:
    """List runs, the newest first."""
    from fleetctl.bench.records import recordings
    from fleetctl.cli.output import Output
    from fleetctl.errors import FleetError
    from fleetctl.inventory.loader import find_root

    output = Output(json=json)
    found: list[dict[str, Any]] = []
    errors: list[FleetError] = []
    for path in recordings(find_root())[:lines]:
        try:
            found.append(_listed(path))
        except FleetError as error:
            errors.append(error)
    if json:
        output.document({"runs": found, "errors": [one.to_dict() for one in errors]})
        return
    columns = ["id", "suite", "hosts", "points", "requests", "failed", "outcome"]
    output.table(columns, [[str(run[name]) for name in columns] for run in found])
    for one in errors:
        output.print_error(one)
    if not found and not errors:
        output.line("no benchmark was run in this fleet folder: fleetctl bench HOST")


def show(run: RunArgument = "last", json: JsonOption = False) -> None:
    """Show what a run measured."""
    from fleetctl.cli.output import Output

    recording = _load(run)
    output = Output(json=json)
    if not json:
        print_recording(output, recording)
        return
    output.document(
        {
            "run": recording.run.id,
            "outcome": recording.end.outcome,
            "why": recording.end.why,
            "points": [figures(recording, point) for point in recording.points],
            "problems": recording.problems,
        }
    )


def compare(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BASELINE", help=f"The run to compare with: {A_RUN}", autocompletion=complete.runs
        ),
    ],
    after: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help=f"The run that may have got slower: {A_RUN}", autocompletion=complete.runs
        ),
    ],
    tolerance: Annotated[
        str, typer.Option(help="Slower by more than this is a failure: 5% or 0.05.", metavar="SHARE")
    ] = "5%",
    json: JsonOption = False,
) -> None:
    """Compare the services of two runs: exit 5 where one got slower than tolerated, or is lost, for CI.

    Slower: the ratio over all prompts is below what is tolerated, its 95 % interval excludes no change, and both
    runs have more than one round: one alone cannot tell a difference from drift. Lost: it was measured in the
    baseline, and is missing, could not be measured or answered nothing now. A request that failed now and did not
    in the baseline is exit 5, too.
    Runs of different models or prompts are refused; that the hosts differ is said.
    """
    from fleetctl.bench import comparing
    from fleetctl.cli.output import Output
    from fleetctl.errors import Exit

    allowed = _share(tolerance)
    old, new = _load(before), _load(after)
    changes = comparing.compare(old, new, allowed)
    output = Output(json=json)
    worse = any(change.worse for change in changes)
    if json:
        output.document(
            {
                "before": old.run.id,
                "after": new.run.id,
                "hosts": {"before": comparing.hosts(old), "after": comparing.hosts(new)},
                "hosts_differ": comparing.hosts(old) != comparing.hosts(new),
                "tolerance": allowed,
                "slower": any(change.verdict == "slower" for change in changes),
                "worse": worse,
                "points": [change.to_dict() for change in changes],
            }
        )
    else:
        _print_changes(output, old, new, changes, allowed)
    if worse:
        raise typer.Exit(int(Exit.PREFLIGHT))


def export(
    run: RunArgument,
    form: Annotated[str, typer.Option("--format", help="csv or parquet.", metavar="FORMAT")] = "csv",
    out: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="The file; CSV goes to stdout without."),
    ] = None,
) -> None:
    """Write a run's requests as a table, one row each."""
    from fleetctl.bench.export import write_csv, write_parquet
    from fleetctl.cli.output import Output
    from fleetctl.errors import FleetError
    from fleetctl.inventory.nearest import hint

    if form not in ("csv", "parquet"):
        raise FleetError(f"no format {form}", fix=hint(form, ("csv", "parquet"), "formats"))
    recording = _load(run)
    if form == "csv":
        text = write_csv(recording, out)
        if out is None:
            Output().raw(text)
        return
    if out is None:
        raise FleetError("Parquet is no text for a terminal", fix="name a file: -o FILE.parquet")
    write_parquet(recording, out)


def print_recording(output: Output, recording: Recording) -> None:
    """What a run says; a plain table of its points where none was measured."""
    from fleetctl.bench.report import terminal
    from fleetctl.bench.summary import summarize
    from fleetctl.errors import FleetError

    try:
        terminal.show(summarize([recording]), output)
        return
    except FleetError:
        pass
    run = recording.run
    why = f": {recording.end.why}" if recording.end.why else ""
    output.line(f"{run.id}  {recording.end.outcome}{why}")
    columns = ["point", "mode", "requests", "failed", "tok/s", "first token", "accepted", "outcome"]
    rows = []
    for point in recording.points:
        one = figures(recording, point)
        rows.append(
            [
                point.id,
                point.mode,
                str(one["requests"]),
                str(one["failed"]),
                _number(one["tokens_per_second"], ".1f"),
                _number(one["first_token_s"], ".3f", " s"),
                _number(one["accepted_length"], ".2f"),
                one["outcome"],
            ]
        )
    output.table(columns, rows)
    for problem in recording.problems:
        output.line(f"  {problem}")


def figures(recording: Recording, point: Point) -> dict[str, Any]:
    """A point in numbers, those that the report has of it."""
    from fleetctl.bench.summary import summarize_one

    one = summarize_one(recording, point)
    end = recording.ends.get(point.id)
    return {
        "point": point.id,
        "service": point.service,
        "mode": point.mode,
        "requests": one.counted + one.failed,
        "failed": one.failed,
        "tokens_per_second": one.speed.mean if one.speed else None,
        "throughput": one.throughput.mean if one.throughput else None,
        "first_token_s": one.first.at(0.5),
        "accepted_length": one.accepted.mean if one.accepted else None,
        "swap_s": end.swap_s if end else None,
        "outcome": end.outcome if end else recording.end.outcome,
        "why": end.why if end else recording.end.why,
    }


def _listed(path: Path) -> dict[str, Any]:
    from fleetctl.bench.records import glance

    found = glance(path)
    return {
        "id": found.run.id,
        "suite": found.run.suite.get("suite", "-"),
        "hosts": ", ".join(found.hosts) or "-",
        "points": found.points,
        "requests": found.requests,
        "failed": found.failed,
        "outcome": found.outcome,
        "records": str(path),
    }


def _load(run: str) -> Recording:
    from fleetctl.bench.records import find, load
    from fleetctl.inventory.loader import find_root

    given = Path(run)
    return load(given) if given.exists() else load(find(find_root(), run))


def _share(text: str) -> float:
    from fleetctl.errors import FleetError

    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise FleetError(f"{text!r} is no share below 100%", fix="--tolerance 5%")
    return value


def _print_changes(
    output: Output, old: Recording, new: Recording, changes: list[Change], allowed: float
) -> None:
    from fleetctl.bench.comparing import hosts

    output.line(f"{new.run.id} against {old.run.id}; slower by more than {allowed:.0%} counts")
    if hosts(old) != hosts(new):
        output.line(f"the hosts differ: {', '.join(hosts(old))} in the baseline, {', '.join(hosts(new))} now")
    rows = []
    for change in changes:
        ratio = change.ratio
        sure = (
            f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio and ratio.low is not None and ratio.high else "-"
        )
        failed = " → ".join(map(str, change.failed)) if any(change.failed) else "-"
        other = f"{change.first[0]}, character {change.first[1]}" if change.first else "-"
        mean = _number(ratio.mean if ratio else None, ".3f")
        rows.append([change.point, mean, sure, change.verdict, failed, other])
    output.table(["point", "ratio", "95 %", "verdict", "failed", "other answer at"], rows)
    for change in changes:
        if change.why:
            output.line(f"{change.verdict}: {change.point}: {change.why}")
        elif change.broke:
            named = ", ".join(change.broke[:MOST_NAMED])
            many = counted(len(change.broke), "request")
            output.line(f"{change.point}: {many} failed that did not in the baseline: {named}")
    if any(change.verdict == "unsure" for change in changes):
        output.line(
            "unsure: one round cannot tell a difference from drift; measure both with --repeats 2 or more"
        )


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"
