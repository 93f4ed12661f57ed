"""Charts over what was varied: budgets and the like, requests at once, length of context. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

import numpy as np

from fleetctl.bench.naming import CONTEXT
from fleetctl.bench.pointsummary import PointSummary
from fleetctl.bench.report.charts import Axis, Chart, Mark, Series
from fleetctl.bench.report.series import MOST_SERIES, STYLES, main_cell, mark_of, styles
from fleetctl.bench.report.words import number, tick
from fleetctl.bench.statistics import Interval
from fleetctl.bench.summary import Summary

LINES = "Whiskers: 95 % intervals over prompts and repeats."
Pick = Callable[[PointSummary], Interval | None]


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
    return [mark_of(one.writing, x, along_x=False)] if one.writing else [], [Mark(x, first)] if first else []


def _each_length(one: PointSummary) -> tuple[list[Mark], list[Mark]]:
    """The same for each prompt of a point, which has prompts of many lengths."""
    found = [(context, one.prompts[name]) for name, context in _contexts(one).items()]
    writing = [Mark(x, prompt.writing) for x, prompt in found if prompt.writing is not None]
    return writing, [Mark(x, prompt.first_s) for x, prompt in found if prompt.first_s is not None]


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
            rows.setdefault(rest[one.name], []).append(mark_of(found, position[one.name], along_x=False))
    for name in rows:
        style.setdefault(name, len(style) % STYLES)
    series = [
        Series(name, style[name], sorted(marks, key=lambda mark: mark.x)) for name, marks in rows.items()
    ]
    return series[:MOST_SERIES]


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


def _contexts(one: PointSummary) -> dict[str, float]:
    return {name: prompt.context for name, prompt in one.prompts.items() if prompt.context}


def _by_family(points: list[PointSummary]) -> dict[str, list[PointSummary]]:
    ordered = sorted(points, key=lambda one: one.called.family)
    return {name: list(row) for name, row in groupby(ordered, key=lambda one: one.called.family)}
