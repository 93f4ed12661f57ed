"""Which points a chart shows, and in which style: the same service looks the same in all charts. Pure."""

from __future__ import annotations

from fleetctl.bench.pointsummary import PointSummary
from fleetctl.bench.report.charts import Mark
from fleetctl.bench.statistics import Interval
from fleetctl.bench.summary import CellSummary, Summary

STYLES = 8
MOST_SERIES = 8


def styles(summary: Summary) -> dict[str, int]:
    """A style for each service and for each other name of a series; the one without drafting has the grey one."""
    drafting = [name for name, one in families(summary).items() if one.point.mode != "autoregressive"]
    plain = [name for name in families(summary) if name not in drafting]
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
    return min(summary.cells, key=lambda cell: (at_once(summary, cell), -len(cell.names)))


def mark_of(found: Interval, at: float, along_x: bool) -> Mark:
    """A mark at an interval's mean; ``at`` is its place on the other axis."""
    x, y = (found.mean, at) if along_x else (at, found.mean)
    return Mark(float(x), float(y), found.low, found.high)


def at_once(summary: Summary, cell: CellSummary) -> int:
    """How many requests at once all points of a cell had."""
    return summary.points[cell.names[0]].point.concurrency


def size_words(summary: Summary, cell: CellSummary) -> str:
    """``, 8 at once`` for titles, where that differs between points; what was asked too, where that differs."""
    sizes = {one.point.concurrency for one in summary.points.values()}
    size = f", {at_once(summary, cell)} at once" if len(sizes) > 1 else ""
    return size + asked_words(summary, cell)


def asked_words(summary: Summary, cell: CellSummary) -> str:
    """``, at most 16 tokens`` and ``, prompts 1f2e3d4c``, each where not all cells have the same."""
    lengths = {one.max_tokens for one in summary.cells}
    digests = {one.prompts_digest for one in summary.cells}
    length = f", at most {cell.max_tokens} tokens" if len(lengths) > 1 else ""
    return length + (f", prompts {cell.prompts_digest[:8]}" if len(digests) > 1 else "")


def families(summary: Summary) -> dict[str, PointSummary]:
    """Each service's first point, in the order of measuring."""
    found: dict[str, PointSummary] = {}
    for one in summary.points.values():
        found.setdefault(one.called.family, one)
    return found
