"""The LaTeX document: complete source with pgfplots, and its PDF where a TeX is found."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fleetctl import __version__
from fleetctl.bench.report import facts, view
from fleetctl.bench.report.charts import Chart, Mark, Series
from fleetctl.bench.report.choose import charts
from fleetctl.bench.report.scale import Scale, scale, values_of
from fleetctl.bench.report.series import main_cell, representatives
from fleetctl.bench.report.texwords import declarations, escape
from fleetctl.bench.report.trees import Node, column_widths, drafts, layout, shorten
from fleetctl.bench.report.words import tick
from fleetctl.bench.summary import CellSummary, Summary
from fleetctl.words import counted

MARKS = ("*", "square*", "triangle*", "diamond*", "pentagon*", "+", "otimes*", "x")
DASHES = (
    "solid",
    "dashed",
    "dotted",
    "dash dot",
    "loosely dashed",
    "densely dashed",
    "densely dotted",
    "dash dot dot",
)
MOST_DIFFERENCES = 6
MOST_WIDE_CM = 16.0
COMPILERS = ("pdflatex", "tectonic")
COMPILE_S = 120


def render(summary: Summary) -> str:
    """The document's source."""
    body = (
        _environment()
        .get_template("report.tex.j2")
        .render(
            version=__version__,
            title=summary.title,
            description=facts.description(summary),
            moment=facts.run_facts(summary)[1][1],
            verdict=view.verdicts(summary),
            notices=view.notices(summary),
            facts=facts.run_facts(summary),
            cells=[_cell(summary, cell) for cell in summary.cells],
            charts=[
                {"title": one.title, "lead": one.lead, "note": one.note, "plot": plot(one)}
                for one in charts(summary)
            ],
            agreement=view.agreement(summary),
            differences=[found for cell in summary.cells for found in cell.differences][:MOST_DIFFERENCES],
            trees=_trees(summary),
            care=view.care(summary),
            hosts=facts.machines(summary),
            services=[
                {
                    "name": one.name,
                    "arguments": facts.arguments(one.point.args),
                    "facts": facts.point_facts(one),
                }
                for one in summary.points.values()
            ],
            commands=facts.commands(summary),
            method=view.METHOD,
        )
    )
    return body.replace("%%CHARACTERS%%", declarations(body))


def compile_pdf(source: Path) -> tuple[Path | None, str]:
    """The PDF of ``source``, and why there is none: no TeX here, or what its log says."""
    compiler = next((name for name in COMPILERS if shutil.which(name)), None)
    if compiler is None:
        return None, f"no PDF: none of {', '.join(COMPILERS)} is installed; {source.name} is complete"
    command = {
        "pdflatex": [
            "pdflatex",
            "-interaction=nonstopmode",
            "-halt-on-error",
            "-no-shell-escape",
            source.name,
        ],
        "tectonic": ["tectonic", "--untrusted", source.name],
    }[compiler]
    pdf = source.with_suffix(".pdf")
    pdf.unlink(missing_ok=True)
    try:
        done = subprocess.run(
            command,
            cwd=source.parent,
            env={**os.environ, "openout_any": "p", "openin_any": "p"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMPILE_S,
        )
    except subprocess.TimeoutExpired:
        return None, f"no PDF: {compiler} took more than {COMPILE_S} s; {source.name} is complete"
    if done.returncode:
        return None, f"no PDF: {compiler} failed: {_first_error(done.stdout.decode(errors='replace'))}"
    for suffix in (".aux", ".log", ".out"):
        source.with_suffix(suffix).unlink(missing_ok=True)
    return (pdf, "") if pdf.is_file() else (None, f"no PDF: {compiler} wrote none")


def _first_error(log: str) -> str:
    lines = log.splitlines()
    at = next((index for index, line in enumerate(lines) if line.startswith("!")), None)
    if at is None:
        return lines[-1] if lines else "it said nothing"
    where = next((line for line in lines[at:] if re.match(r"l\.\d+", line)), "")
    return f"{lines[at][2:]} {where}".strip()


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """Jinja with LaTeX's own characters left alone; every value is escaped unless it is said to be source."""
    return Environment(
        loader=PackageLoader("fleetctl.bench.report"),
        undefined=StrictUndefined,
        finalize=lambda value: value.text if isinstance(value, Source) else escape(str(value)),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )


class Source:
    """LaTeX that is not escaped."""

    def __init__(self, text: str) -> None:
        self.text = text


def _cell(summary: Summary, cell: CellSummary) -> dict[str, Any]:
    return {
        "title": view.cell_title(summary, cell),
        "base": summary.points[cell.base].label,
        "rows": view.rows(summary, cell),
    }


def plot(chart: Chart) -> Source:
    """A chart as a pgfplots axis; its scale is the page's."""
    across = scale(chart.x, values_of(chart, along_x=True), wanted=6)
    rows = chart.kind == "rows"
    options = [
        f"width=\\linewidth, height={0.9 + len(chart.rows) * (len(chart.series) * 0.26 + 0.3):.2f}cm"
        if rows
        else "width=\\linewidth, height=6.2cm",
        *(_axis("x", chart.x.label, across)),
    ]
    if rows:
        names = ",".join(f"{{{escape(row)}}}" for row in chart.rows)
        places = ",".join(str(index) for index in range(len(chart.rows)))
        options += ["y dir=reverse", "ymin=-0.5", f"ymax={len(chart.rows) - 0.5}", f"ytick={{{places}}}"]
        options += [f"yticklabels={{{names}}}", "ytick style={draw=none}", "xmajorgrids"]
    else:
        up = scale(chart.y, values_of(chart, along_x=False), wanted=5)
        options += [*_axis("y", chart.y.label, up, chart.kind == "steps"), "ymajorgrids"]
    lines = [f"\\begin{{axis}}[{', '.join(options)}]"]
    for index, series in enumerate(chart.series):
        lines += _series(chart, series, index)
    return Source("\n".join([*lines, "\\end{axis}"]))


def _axis(letter: str, label: str, found: Scale, shares: bool = False) -> list[str]:
    ticks = ",".join(f"{value:g}" for value in found.ticks)
    names = ",".join(f"{{{escape(f'{value:.0%}' if shares else tick(value))}}}" for value in found.ticks)
    return [
        f"{letter}label={{{escape(label)}}}",
        f"{letter}min={found.low:g}, {letter}max={found.high:g}",
        f"{letter}tick={{{ticks}}}, {letter}ticklabels={{{names}}}",
        *([f"{letter}mode=log"] if found.log else []),
    ]


def _series(chart: Chart, series: Series, index: int) -> list[str]:
    style = f"series{series.style}"
    legend = f"\\addlegendentry{{{escape(series.name)}}}"
    if chart.kind == "steps":
        path = " ".join(f"({x:.5g},{y:.5g})" for x, y in series.faint)
        dots = " ".join(f"({mark.x:.5g},{mark.y:.5g})" for mark in series.marks)
        return [
            f"\\addplot[{style}, no marks, const plot, forget plot] coordinates {{{path}}};",
            f"\\addplot[{style}, only marks] coordinates {{{dots}}};",
            legend,
        ]
    shift = (
        (index - (len(chart.series) - 1) / 2) * (0.8 / max(1, len(chart.series)))
        if chart.kind == "rows"
        else 0.0
    )
    along = "x" if chart.kind == "rows" else "y"
    joined = "" if series.joined else ", only marks"
    bars = f"error bars/.cd, {along} dir=both, {along} explicit"
    points = " ".join(_coordinate(mark, along, shift) for mark in series.marks)
    return [f"\\addplot[{style}{joined}, {bars}] coordinates {{{points}}};", legend]


def _coordinate(mark: Mark, along: str, shift: float) -> str:
    value = mark.x if along == "x" else mark.y
    less = value - mark.low if mark.low is not None else 0.0
    more = mark.high - value if mark.high is not None else 0.0
    amounts = (f"{more:.5g}", "0") if along == "x" else ("0", f"{more:.5g}")
    lesser = (f"{less:.5g}", "0") if along == "x" else ("0", f"{less:.5g}")
    return f"({mark.x:.5g},{mark.y + shift:.5g}) += ({','.join(amounts)}) -= ({','.join(lesser)})"


def _trees(summary: Summary) -> list[dict[str, Any]]:
    """One step of each drafting service on the first prompt that has trees, the one that accepted most."""
    found = []
    for one in representatives(summary, main_cell(summary)):
        prompt = next((prompt for prompt in one.prompts.values() if drafts(prompt.trees)), None)
        if prompt is None:
            continue
        tree = max(prompt.trees, key=lambda tree: len(tree.accepted))
        placed = layout(tree)
        if placed is None:
            continue
        words = f"{one.label} on {prompt.name}, step {tree.step + 1}: {placed.accepted} of "
        found.append(
            {
                "words": f"{words}{counted(len(tree.tokens) - 1, 'draft')} accepted",
                "drawing": _drawing(placed.nodes),
            }
        )
    return found


def _drawing(nodes: list[Node]) -> Source:
    """TikZ in centimetres, made smaller where it would be wider than the page."""
    widths = [width / 26 for width in column_widths(nodes, 5.2)]
    lefts = [sum(width + 0.5 for width in widths[:depth]) for depth in range(len(widths))]
    shrink = min(1.0, MOST_WIDE_CM / (lefts[-1] + widths[-1]))
    lines = [f"\\begin{{tikzpicture}}[scale={shrink:.3f}, every node/.style={{transform shape}}]"]
    for taken in (False, True):
        for node in nodes[1:]:
            if node.accepted == taken:
                lines.append(_edge(node, nodes[node.parent], lefts, widths))
    for node in nodes:
        kind = "treeroot" if not node.index else "treetaken" if node.accepted else "treeleft"
        x, y = lefts[node.depth] + widths[node.depth] / 2, -0.62 * node.row
        text = escape(shorten(node.text))
        lines.append(
            f"\\node[{kind}, minimum width={widths[node.depth]:.2f}cm] at ({x:.2f},{y:.2f}) {{{text}}};"
        )
    return Source("\n".join([*lines, "\\end{tikzpicture}"]))


def _edge(node: Node, parent: Node, lefts: list[float], widths: list[float]) -> str:
    x1, y1 = lefts[parent.depth] + widths[parent.depth], -0.62 * parent.row
    x2, y2 = lefts[node.depth], -0.62 * node.row
    kind = "edgetaken" if node.accepted else "edgeleft"
    return f"\\draw[{kind}] ({x1:.2f},{y1:.2f}) -- ({x1 + 0.25:.2f},{y1:.2f}) |- ({x2:.2f},{y2:.2f});"
