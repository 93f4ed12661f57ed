"""The page: one file with its style and drawings in it, no script, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from itertools import pairwise
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fleetctl import __version__
from fleetctl.bench.pointsummary import PointSummary
from fleetctl.bench.report import facts, view
from fleetctl.bench.report.charts import Chart
from fleetctl.bench.report.choose import charts
from fleetctl.bench.report.series import main_cell, representatives, styles
from fleetctl.bench.report.svg import draw, glyph
from fleetctl.bench.report.trees import drafts, draw_tree, layout
from fleetctl.bench.report.words import bounds, number, plain, seconds, visible
from fleetctl.bench.summary import CellSummary, Summary
from fleetctl.words import counted

WIDE, NARROW = 620.0, 350.0
MOST_PROMPTS = 40
MOST_DRAWN = 10
MOST_STEPS = 8
MOST_ANSWER = 20_000
MOST_VALUES = 12
CHARTS_TABLE = {"rows": ("Service", "Prompt"), "lines": ("Service", "At"), "steps": ("Service", "Share")}


def render(summary: Summary) -> str:
    """The page of a summary."""
    environment = _environment()
    style = environment.loader and environment.loader.get_source(environment, "report.css")[0]
    shown = list(summary.prompts)[:MOST_PROMPTS]
    return environment.get_template("report.html.j2").render(
        version=__version__,
        css=Markup(style or ""),
        title=summary.title,
        description=facts.description(summary),
        verdict=view.verdicts(summary),
        notices=view.notices(summary),
        facts=facts.run_facts(summary),
        cells=[_cell(summary, cell) for cell in summary.cells],
        charts=[_chart(chart) for chart in charts(summary)],
        agreement=view.agreement(summary),
        prompts=[_prompt(summary, name, index < MOST_DRAWN) for index, name in enumerate(shown)],
        prompts_left_out=len(summary.prompts) - len(shown),
        care=view.care(summary),
        hosts=[{"name": name, "facts": told} for name, told in facts.machines(summary)],
        services=[_service(one) for one in summary.points.values()],
        commands=facts.commands(summary),
        method=view.METHOD,
        records=", ".join(run.id for run in summary.runs),
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    def told(value: Any) -> Any:
        return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    return Environment(
        loader=PackageLoader("fleetctl.bench.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=told,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _cell(summary: Summary, cell: CellSummary) -> dict[str, Any]:
    rows = [{**asdict(row), "glyph": Markup(glyph(row.style))} for row in view.rows(summary, cell)]
    for above, row in reversed(list(pairwise(rows))):
        row["mode"] = "" if row["mode"] == above["mode"] else row["mode"]
    return {"title": view.cell_title(summary, cell), "base": summary.points[cell.base].label, "rows": rows}


def _chart(chart: Chart) -> dict[str, Any]:
    return {
        "key": chart.key,
        "tall": chart.kind == "rows" and len(chart.rows) * (len(chart.series) + 1) > 24,
        "title": chart.title,
        "lead": chart.lead,
        "note": chart.note,
        "legend": [
            {"name": one.name, "style": one.style, "glyph": Markup(glyph(one.style))} for one in chart.series
        ],
        "wide": Markup(draw(chart, WIDE, "wide")),
        "narrow": Markup(draw(chart, NARROW, "narrow")),
        "columns": (*CHARTS_TABLE[chart.kind], chart.x.label if chart.kind != "lines" else chart.y.label),
        "numbers": list(_numbers(chart)),
    }


def _numbers(chart: Chart) -> Iterator[tuple[str, str, str, str]]:
    for series in chart.series:
        for mark in series.marks:
            between = f"{number(mark.low)} to {number(mark.high)}" if mark.low is not None else "–"
            if chart.kind == "rows":
                yield series.name, chart.rows[int(mark.y)], number(mark.x), between
            elif chart.kind == "steps":
                yield series.name, f"{mark.y:.0%}", number(mark.x), between
            else:
                yield series.name, number(mark.x), number(mark.y), between


def _prompt(summary: Summary, name: str, draw_trees: bool) -> dict[str, Any]:
    having = [one for one in summary.points.values() if name in one.prompts]
    first = having[0]
    style = styles(summary)
    differences = [found for cell in summary.cells for found in cell.differences if found.prompt == name]
    best = max(having, key=lambda one: one.prompts[name].mean)
    headline = f"{best.name}: {number(best.prompts[name].mean)} tokens/s" if len(having) > 1 else ""
    return {
        "name": name,
        "kind": first.prompts[name].kind,
        "headline": headline,
        "text": facts.prompt_text(summary, name),
        "rows": [_prompt_row(one, name, style.get(one.called.family, 0)) for one in having],
        "differs": bool(differences),
        "differences": differences[:MOST_STEPS],
        "answer": first.prompts[name].text[:MOST_ANSWER],
        "answered_by": first.name,
        "trees": [
            _trees(one, name)
            for one in _drafting(summary)
            if draw_trees and name in one.prompts and drafts(one.prompts[name].trees)
        ],
    }


def _drafting(summary: Summary) -> list[PointSummary]:
    """The points whose trees are drawn: one a service, since a sweep has dozens."""
    return representatives(summary, main_cell(summary))


def _prompt_row(one: PointSummary, name: str, style: int) -> dict[str, Any]:
    prompt = one.prompts[name]
    values = [number(value) for value in prompt.values.values()]
    more = f" and {len(values) - MOST_VALUES} more" if len(values) > MOST_VALUES else ""
    return {
        "name": one.name,
        "style": style,
        "glyph": Markup(glyph(style)),
        "speed": number(prompt.mean),
        "bounds": bounds(prompt.speed),
        "accepted": number(prompt.accepted),
        "first": seconds(prompt.first_s),
        "repeats": "  ".join(values[:MOST_VALUES]) + more,
    }


def _trees(one: PointSummary, name: str) -> dict[str, Any]:
    steps = []
    for tree in one.prompts[name].trees[:MOST_STEPS]:
        found = layout(tree)
        if found is None:
            continue
        drafts = len(tree.tokens) - 1
        words = f"Step {tree.step + 1}: {found.accepted} of {counted(drafts, 'draft')} accepted"
        words += f", {found.rows} branches" if found.rows > 1 else ""
        words += f"; after them the model's own token {visible(tree.next)}" if tree.next is not None else ""
        cut = f"; {found.cut} nodes are not drawn" if found.cut else ""
        steps.append({"words": f"{words}{cut}.", "svg": Markup(draw_tree(tree))})
    return {
        "name": one.label,
        "words": "Left the last token that was certain, to the right what was drafted after it. Filled boxes and thick "
        "lines: what the model confirmed. Point at a box for the drafter's probability.",
        "steps": steps,
        "more": counted(len(steps) - 2, "more step"),
    }


def _service(one: PointSummary) -> dict[str, Any]:
    return {
        "name": one.name,
        "engine": f"{one.point.engine}, {one.point.mode}",
        "arguments": facts.arguments(one.point.args),
        "facts": facts.point_facts(one),
    }
