"""The report in a terminal: what came out, a table for each cell with sparklines, and what to know."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetctl.bench.pointsummary import PointSummary, PromptSummary, Spread
from fleetctl.bench.report import view
from fleetctl.bench.statistics import Interval
from fleetctl.bench.summary import CellSummary, Summary
from fleetctl.cli.output import Output

BARS = "▁▂▃▄▅▆▇█"
COLUMNS = [
    "service", "tok/s", "its 95 %", "ratio", "95 %", "accepted", "by prompt", "first", "per token", "pauses", "all",
    "n",
]  # fmt: skip
NARROW = ["service", "tok/s", "ratio", "95 %", "accepted", "by prompt", "first", "per token", "n"]
NARROWEST = ["service", "tok/s", "ratio", "95 %", "accepted", "by prompt", "per token"]
MOST_BARS, PAUSE_BARS = 24, 10


def show(summary: Summary, output: Output) -> None:
    """Print the report's essence on stdout."""
    output.styled([(summary.title, "bold")])
    for sentence in view.verdicts(summary):
        output.styled([(sentence, "")], indent=2)
    for what, why in view.notices(summary):
        output.styled([(f"{what} ", "bold yellow"), (why, "yellow")], indent=2)
    for cell in summary.cells:
        output.line()
        if len(summary.cells) > 1:
            output.styled([(view.cell_title(summary, cell), "bold")])
        columns = _columns()
        rows = _table(summary, cell)
        output.table(columns, [[_cut(row[name], len(columns)) for name in columns] for row in rows])
    output.line()
    for line in _legend(summary):
        output.styled([(line, "dim")])
    output.line()
    output.line(view.agreement(summary))
    for line in view.care(summary):
        output.styled([("- ", "dim"), (line, "")])


def _legend(summary: Summary) -> list[str]:
    prompts = ", ".join(list(summary.prompts)[:MOST_BARS])
    return [
        "ratio: against the one with 1; ≈ where its interval holds 1 or there was one round, which is no difference",
        *([f"by prompt: tok/s of {prompts}"] if len(summary.prompts) > 1 else []),
        "first, per token: half of the requests / nine of ten; pauses: how many, from short to long; all: together",
    ]


def _columns() -> list[str]:
    """What fits the terminal; all where it is piped."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 999
    return COLUMNS if width >= 145 else NARROW if width >= 100 else NARROWEST


def _cut(text: str, columns: int) -> str:
    """Of two times only the first where there is little room."""
    return text if columns == len(COLUMNS) else text.split(" / ")[0]


def _table(summary: Summary, cell: CellSummary) -> list[dict[str, str]]:
    top = max(
        (prompt.mean for name in cell.names for prompt in summary.points[name].prompts.values()),
        default=1.0,
    )
    rows = []
    for row, name in zip(view.rows(summary, cell), cell.names, strict=True):
        one = summary.points[name]
        service = f"{row.name} ◂" if row.best else row.name
        shown = [
            f"{service} ({row.outcome})" if row.outcome else service,
            row.speed,
            row.speed_bounds or "-",
            row.ratio,
            row.ratio_bounds or "-",
            row.accepted,
            _by_prompt(one, list(summary.prompts), top),
            row.first,
            row.between,
            _pauses(one.gaps),
            row.throughput,
            f"{row.counted} ({row.failed} failed)" if row.failed else str(row.counted),
        ]
        rows.append(dict(zip(COLUMNS, shown, strict=True)))
    return rows


def sparkline(values: Sequence[float | None], top: float) -> str:
    """One bar a value, the highest at ``top``; a dot for none."""
    if top <= 0:
        return "·" * len(values)
    return "".join(
        "·" if value is None else BARS[min(len(BARS) - 1, max(0, round(value / top * len(BARS)) - 1))]
        for value in values
    )


def _by_prompt(one: PointSummary, prompts: list[str], top: float) -> str:
    speeds = [one.prompts[name].mean if name in one.prompts else None for name in prompts[:MOST_BARS]]
    return sparkline(speeds, top)


def _pauses(spread: Spread) -> str:
    """How pauses are distributed, from the shortest to the longest, on a logarithmic scale."""
    if len(spread.values) < 2 or spread.values[-1] <= 0:
        return "-"
    values = np.log(np.maximum(spread.values, 1e-6))
    counts, _ = np.histogram(values, bins=PAUSE_BARS)
    return sparkline([float(count) for count in counts], float(counts.max()))


def document(summary: Summary) -> dict[str, Any]:
    """The numbers as one JSON document; times in seconds, speeds in tokens/s."""
    return {
        "title": summary.title,
        "model": summary.model,
        "runs": [
            {"id": run.id, "started": run.started, "outcome": summary.outcomes[run.id][0]}
            for run in summary.runs
        ],
        "findings": view.verdicts(summary),
        "agreement": view.agreement(summary),
        "points": [_point(summary, one) for one in summary.points.values()],
        "notes": view.care(summary),
        "problems": summary.problems,
    }


def _point(summary: Summary, one: PointSummary) -> dict[str, Any]:
    cell = summary.cell_of(one.name)
    ratio = cell.ratios.get(one.name)
    return {
        "name": one.name,
        "id": one.point.id,
        "host": one.point.host,
        "service": one.point.service,
        "mode": one.point.mode,
        "concurrency": one.point.concurrency,
        "varied": one.point.varied,
        "digest": one.point.digest,
        "counted": one.counted,
        "failed": one.failed,
        "errors": {kind: count for kind, (count, _) in one.errors.items()},
        "speed": _interval(one.speed),
        "accepted": _interval(one.accepted),
        "throughput": _interval(one.throughput),
        "first_s": _spread(one.first),
        "between_s": _spread(one.between),
        "pause_s": _spread(one.gaps),
        "base": cell.base,
        "ratio": _interval(ratio.ratio) if ratio else None,
        "differs": ratio.sure if ratio else None,
        "rounds": one.rounds,
        "outliers": one.outliers,
        "prompts": {name: _prompt(prompt) for name, prompt in one.prompts.items()},
    }


def _prompt(prompt: PromptSummary) -> dict[str, Any]:
    return {
        "mean": prompt.mean,
        "values": list(prompt.values.values()),
        "accepted": prompt.accepted,
        "first_s": prompt.first_s,
    }


def _interval(found: Interval | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"mean": found.mean, "median": found.median, "low": found.low, "high": found.high, "n": found.n}


def _spread(spread: Spread) -> dict[str, float | None]:
    return {
        name: spread.at(share) for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("most", 1.0))
    }
