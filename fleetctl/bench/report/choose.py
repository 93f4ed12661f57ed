"""Which charts a summary gives, by what was varied in it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

import numpy as np

from fleetctl.bench.naming import CONTEXT
from fleetctl.bench.pointsummary import PointSummary, Spread
from fleetctl.bench.report.charts import Axis, Chart, Mark, Series
from fleetctl.bench.report.words import number, seconds, tick
from fleetctl.bench.statistics import Interval
from fleetctl.bench.summary import CellSummary, Summary

STYLES = 8
MOST_SERIES = 8
MOST_FAINT = 40
MOST_ROWS = 12
ALL = "all prompts"
WHISKERS = "Dots: means of all repeats; whiskers: 95 % intervals; small dots: single requests."
LINES = "Whiskers: 95 % intervals over prompts and repeats."
Pick = Callable[[PointSummary], Interval | None]


def charts(summary: Summary) -> list[Chart]:
    """All charts that the records hold something for, the most telling first."""
    made = [
        *by_prompt(summary),
        *over_varied(summary),
        *over_concurrency(summary),
        *over_context(summary),
        *latencies(summary),
    ]
    return [chart for chart in made if any(series.marks for series in chart.series)]


def styles(summary: Summary) -> dict[str, int]:
    """A style for each service and for each other name of a series; the one without drafting has the grey one."""
    drafting = [name for name, one in _families(summary).items() if one.point.mode != "autoregressive"]
    plain = [name for name in _families(summary) if name not in drafting]
    return {name: index % STYLES for index, name in enumerate([*(plain or [""]), *drafting])}


def representatives(summary: Summary, cell: CellSummary) -> list[PointSummary]:
    """Each service's fastest point of a cell, in the order of measuring."""
    best: dict[str, PointSummary] = {}
    for one in (summary.points[name] for name in cell.names):
        if one.speed is None:
            continue
        held = best.get(one.called.family)
        if held is None or held.speed is None or one.speed.mean > held.speed.mean:
            best[one.called.family] = one
    return list(best.values())[:MOST_SERIES]


def main_cell(summary: Summary) -> CellSummary:
    """The cell of the fewest requests at once, of those the one of most points."""
    return min(summary.cells, key=lambda cell: (_at_once(summary, cell), -len(cell.names)))


def by_prompt(summary: Summary) -> list[Chart]:
    """Tokens/s of each prompt and service, with intervals and single requests."""
    cell = main_cell(summary)
    chosen = representatives(summary, cell)
    prompts = _spread_out(chosen, list(dict.fromkeys(name for one in chosen for name in one.prompts)))
    style = styles(summary)
    series = []
    for one in chosen:
        marks, faint = [], []
        if one.speed and len(prompts) > 1:
            marks.append(_mark(one.speed, 0, along_x=True))
        for row, name in enumerate(prompts, int(len(prompts) > 1)):
            prompt = one.prompts.get(name)
            if prompt:
                marks.append(_mark(prompt.speed, row, along_x=True))
                faint += [(value, float(row)) for value in list(prompt.values.values())[:MOST_FAINT]]
        series.append(Series(one.label, style.get(one.called.family, 0), marks, faint, joined=False))
    best = summary.points[cell.best]
    wins = [name for name in summary.prompts if _wins(best, chosen, name)]
    lead = f"{best.label} is fastest on {len(wins)} of {len(summary.prompts)} prompts."
    picked = "" if len(prompts) == len(summary.prompts) else f" {len(prompts)} prompts, from fast to slow."
    rows = [ALL, *prompts] if len(prompts) > 1 else prompts
    title = "Tokens per second by prompt" + _size(summary, cell)
    axis = Axis("tokens/s of one request, reading the prompt included")
    return [
        Chart(
            "by-prompt",
            "rows",
            title,
            lead if len(chosen) > 1 else "",
            WHISKERS + picked,
            axis,
            Axis(""),
            series,
            rows,
        )
    ]


def over_varied(summary: Summary) -> list[Chart]:
    """Accepted length and speed against what was varied most, one series for each value of the rest."""
    cell = main_cell(summary)
    points = [summary.points[name] for name in cell.names if summary.points[name].point.varied]
    values: dict[str, set[float]] = {}
    for one in points:
        for name, value in one.point.varied.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and name != CONTEXT:
                values.setdefault(name, set()).add(float(value))
    varied = max(values, key=lambda name: len(values[name]), default=None)
    if varied is None or len(values[varied]) < 2:
        return []
    rest = {one.name: _rest(one, varied) for one in points}
    x = _sizes_axis(varied, values[varied])
    position = {one.name: float(one.point.varied[varied]) for one in points if varied in one.point.varied}
    points = [one for one in points if one.name in position]

    def drawn(key: str, title: str, pick: Pick, y: Axis) -> Chart:
        series = _lines(summary, points, rest, position, pick)
        return Chart(key, "lines", title, _peak(series, varied, y), LINES, x, y, series)

    return [
        drawn(
            "accepted-over",
            f"Accepted length against {varied}",
            lambda one: one.accepted,
            Axis("tokens committed by a verify pass", start=1.0),
        ),
        drawn(
            "speed-over",
            f"Tokens per second against {varied}",
            lambda one: one.speed,
            Axis("tokens/s of one request"),
        ),
    ]


def over_concurrency(summary: Summary) -> list[Chart]:
    """Throughput, and what is left of it for each request, against requests at once."""
    sizes = {float(one.point.concurrency) for one in summary.points.values()}
    if len(sizes) < 2:
        return []
    points = list(summary.points.values())
    rest = {one.name: _rest(one, None) for one in points}
    position = {one.name: float(one.point.concurrency) for one in points}
    x = _sizes_axis("requests at once", sizes)
    all_of_them = _lines(summary, points, rest, position, lambda one: one.throughput)
    each = _lines(summary, points, rest, position, lambda one: one.speed)
    total, own = Axis("tokens/s of all requests"), Axis("tokens/s of one request")
    return [
        Chart(
            "throughput",
            "lines",
            "Throughput against concurrency",
            _peak(all_of_them, "requests at once", total),
            "Whiskers: 95 % intervals over rounds.",
            x,
            total,
            all_of_them,
        ),
        Chart("each", "lines", "Speed of one request against concurrency", "", LINES, x, own, each),
    ]


def over_context(summary: Summary) -> list[Chart]:
    """Speed after the first token, and the time to it, against the prompt's length."""
    least = min(one.point.concurrency for one in summary.points.values())
    points = [one for one in summary.points.values() if one.point.concurrency == least and one.prompts]
    lengths = [context for one in points for context in _contexts(one).values()]
    if not lengths or max(lengths) < 3 * max(1.0, min(lengths)):
        return []
    style = styles(summary)
    asked = any(CONTEXT in one.point.varied for one in points)
    speed: list[Series] = []
    first: list[Series] = []
    for name, row in _by_family(points).items():
        made = [_at_length(one) for one in row] if asked else [_each_length(one) for one in row]
        for series, marks in zip((speed, first), zip(*made, strict=True), strict=True):
            placed = sorted((mark for some in marks for mark in some), key=lambda mark: mark.x)
            joined = len({mark.x for mark in placed}) == len(placed) < 20
            series.append(Series(name, style.get(name, 0), placed, joined=joined))
    x = Axis("tokens of the prompt", log=True, start=None)
    note = LINES if asked else "One dot a prompt."
    return [
        Chart(key, "lines", title, "", note, x, Axis(label), series[:MOST_SERIES])
        for key, title, label, series in (
            ("context", "Speed against context length", "tokens/s after the first token", speed),
            ("context-first", "Time to the first token against context length", "seconds", first),
        )
    ]


def _at_length(one: PointSummary) -> tuple[list[Mark], list[Mark]]:
    """A point of one length: its speed after the first token, and the median time to it."""
    contexts = list(_contexts(one).values())
    if not contexts:
        return [], []
    x, first = float(np.median(contexts)), one.first.at(0.5)
    return [_mark(one.writing, x, along_x=False)] if one.writing else [], [Mark(x, first)] if first else []


def _each_length(one: PointSummary) -> tuple[list[Mark], list[Mark]]:
    """The same for each prompt of a point, which has prompts of many lengths."""
    found = [(context, one.prompts[name]) for name, context in _contexts(one).items()]
    writing = [Mark(x, prompt.writing) for x, prompt in found if prompt.writing is not None]
    return writing, [Mark(x, prompt.first_s) for x, prompt in found if prompt.first_s is not None]


def latencies(summary: Summary) -> list[Chart]:
    """Shares of requests by their time to the first token, and of pauses within streams."""
    cell = max(summary.cells, key=lambda cell: (_at_once(summary, cell), len(cell.names)))
    chosen = representatives(summary, cell)
    size = _size(summary, cell)
    note = "Dots: the median, 90 % and 99 %. To the left is faster."
    y = Axis("share of all", start=0.0, end=1.0, ticks=[0, 0.25, 0.5, 0.75, 0.9, 1])

    def drawn(key: str, title: str, pick: Callable[[PointSummary], Spread]) -> Chart:
        style = styles(summary)
        series = [_steps(one.label, style.get(one.called.family, 0), pick(one)) for one in chosen]
        quickest = min(
            ((value, one.label) for one in chosen if (value := pick(one).at(0.9)) is not None), default=None
        )
        lead = (
            f"Nine of ten requests begin within {seconds(quickest[0])} with {quickest[1]}."
            if quickest
            else ""
        )
        lead = (
            lead
            if key == "first-token"
            else "Drafting gives several tokens at once: fewer pauses, each longer."
        )
        x = Axis("milliseconds", log=True, start=None)
        return Chart(key, "steps", title + size, lead, note, x, y, [one for one in series if one.faint])

    return [
        drawn("first-token", "Time to the first token", lambda one: one.first),
        drawn("pauses", "Pauses between the pieces of an answer", lambda one: one.gaps),
    ]


def _spread_out(chosen: list[PointSummary], prompts: list[str]) -> list[str]:
    """All prompts, or of many some from the fastest to the slowest."""
    if len(prompts) <= MOST_ROWS or not chosen:
        return prompts
    having = [name for name in prompts if name in chosen[-1].prompts]
    having.sort(key=lambda name: -chosen[-1].prompts[name].speed.mean)
    count = min(MOST_ROWS, len(having))
    return [having[round(index * (len(having) - 1) / max(1, count - 1))] for index in range(count)]


def _steps(name: str, style: int, spread: Spread, most: int = 120) -> Series:
    count = len(spread.values)
    if not count:
        return Series(name, style, [])
    shares = sorted({min(1.0, (index + 1) / min(count, most)) for index in range(min(count, most))})
    shown = [(max(1e-3, 1000 * (spread.at(share) or 0)), share) for share in shares]
    dots = [Mark(max(1e-3, 1000 * (spread.at(share) or 0)), share) for share in (0.5, 0.9, 0.99)]
    return Series(name, style, dots, [(shown[0][0], 0.0), *shown])


def _lines(
    summary: Summary,
    points: Iterable[PointSummary],
    rest: Mapping[str, str],
    position: Mapping[str, float],
    pick: Pick,
) -> list[Series]:
    style = dict(styles(summary))
    rows: dict[str, list[Mark]] = {}
    for one in points:
        found = pick(one)
        if found is not None:
            rows.setdefault(rest[one.name], []).append(_mark(found, position[one.name], along_x=False))
    for name in rows:
        style.setdefault(name, len(style) % STYLES)
    series = [
        Series(name, style[name], sorted(marks, key=lambda mark: mark.x)) for name, marks in rows.items()
    ]
    return series[:MOST_SERIES]


def _mark(found: Interval, at: float, along_x: bool) -> Mark:
    x, y = (found.mean, at) if along_x else (at, found.mean)
    return Mark(float(x), float(y), found.low, found.high)


def _rest(one: PointSummary, left_out: str | None) -> str:
    """A point's series: its service, and what is varied besides."""
    others = [
        f"{name} {value}" for name, value in one.point.varied.items() if name not in (left_out, CONTEXT)
    ]
    name = one.called.family
    return f"{name} · {', '.join(others)}" if others else name


def _sizes_axis(label: str, values: set[float]) -> Axis:
    wide = min(values) > 0 and max(values) / min(values) >= 8
    return Axis(label, log=wide, ticks=sorted(values), start=None if wide else 0.0)


def _peak(series: list[Series], varied: str, y: Axis) -> str:
    marks = [(mark.y, mark.x, one.name) for one in series for mark in one.marks]
    if not marks:
        return ""
    value, at, name = max(marks)
    where = f"{varied} {tick(at)}" if varied != "requests at once" else f"{tick(at)} at once"
    return f"Highest with {name} at {where}: {number(value)}."


def _wins(best: PointSummary, chosen: list[PointSummary], prompt: str) -> bool:
    speeds = {one.name: one.prompts[prompt].speed.mean for one in chosen if prompt in one.prompts}
    return bool(speeds) and max(speeds, key=lambda name: speeds[name]) == best.name


def _contexts(one: PointSummary) -> dict[str, float]:
    return {name: prompt.context for name, prompt in one.prompts.items() if prompt.context}


def _by_family(points: list[PointSummary]) -> dict[str, list[PointSummary]]:
    ordered = sorted(points, key=lambda one: one.called.family)
    return {name: list(row) for name, row in groupby(ordered, key=lambda one: one.called.family)}


def _families(summary: Summary) -> dict[str, PointSummary]:
    found: dict[str, PointSummary] = {}
    for one in summary.points.values():
        found.setdefault(one.called.family, one)
    return found


def _at_once(summary: Summary, cell: CellSummary) -> int:
    return summary.points[cell.names[0]].point.concurrency


def _size(summary: Summary, cell: CellSummary) -> str:
    sizes = {one.point.concurrency for one in summary.points.values()}
    return f", {_at_once(summary, cell)} at once" if len(sizes) > 1 else ""
