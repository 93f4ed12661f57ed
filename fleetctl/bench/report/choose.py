"""Which charts a summary gives, the most telling first. Pure."""

from __future__ import annotations

from collections.abc import Callable

from fleetctl.bench.pointsummary import PointSummary, Spread
from fleetctl.bench.report.charts import Axis, Chart, Mark, Series
from fleetctl.bench.report.over import over_concurrency, over_context, over_varied
from fleetctl.bench.report.series import at_once, main_cell, mark_of, representatives, size_words, styles
from fleetctl.bench.report.words import seconds
from fleetctl.bench.summary import Summary
from fleetctl.words import counted

MOST_FAINT = 40
MOST_ROWS = 12
LEAST_MS = 1.0
ALL = "all prompts"
WHISKERS = "Dots: means of all repeats; whiskers: 95 % intervals; small dots: single requests."


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


def by_prompt(summary: Summary) -> list[Chart]:
    """Tokens/s of each prompt and service, with intervals and single requests."""
    cell = main_cell(summary)
    chosen = representatives(summary, cell)
    answered = list(dict.fromkeys(name for one in chosen for name in one.prompts))
    prompts = _spread_out(chosen, answered)
    style = styles(summary)
    series = []
    for one in chosen:
        marks, faint = [], []
        if one.speed and len(prompts) > 1:
            marks.append(mark_of(one.speed, 0, along_x=True))
        for row, name in enumerate(prompts, int(len(prompts) > 1)):
            prompt = one.prompts.get(name)
            if prompt:
                marks.append(mark_of(prompt.speed, row, along_x=True))
                faint += [(value, float(row)) for value in list(prompt.values.values())[:MOST_FAINT]]
        series.append(Series(one.label, style.get(one.called.family, 0), marks, faint, joined=False))
    best = summary.points[cell.best]
    wins = [name for name in answered if _wins(best, chosen, name)]
    lead = f"{best.label} is fastest on {len(wins)} of {counted(len(answered), 'prompt')}."
    picked = "" if len(prompts) == len(answered) else f" {len(prompts)} prompts, from fast to slow."
    rows = [ALL, *prompts] if len(prompts) > 1 else prompts
    title = "Tokens per second by prompt" + size_words(summary, cell)
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


def latencies(summary: Summary) -> list[Chart]:
    """Shares of requests by their time to the first token, and of pauses within streams."""
    cell = max(summary.cells, key=lambda cell: (at_once(summary, cell), len(cell.names)))
    chosen = representatives(summary, cell)
    size = size_words(summary, cell)
    note = "Dots: the median, 90 % and 99 %. To the left is faster; what is below 1 ms is drawn there."
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
    having.sort(key=lambda name: -chosen[-1].prompts[name].mean)
    count = min(MOST_ROWS, len(having))
    return [having[round(index * (len(having) - 1) / max(1, count - 1))] for index in range(count)]


def _steps(name: str, style: int, spread: Spread, most: int = 120) -> Series:
    count = len(spread.values)
    if not count:
        return Series(name, style, [])
    shares = sorted({min(1.0, (index + 1) / min(count, most)) for index in range(min(count, most))})
    shown = [(max(LEAST_MS, 1000 * spread.step(share)), share) for share in shares]
    dots = [Mark(max(LEAST_MS, 1000 * spread.step(share)), share) for share in (0.5, 0.9, 0.99)]
    return Series(name, style, dots, [(shown[0][0], 0.0), *shown])


def _wins(best: PointSummary, chosen: list[PointSummary], prompt: str) -> bool:
    speeds = {one.name: one.prompts[prompt].mean for one in chosen if prompt in one.prompts}
    return bool(speeds) and max(speeds, key=lambda name: speeds[name]) == best.name
