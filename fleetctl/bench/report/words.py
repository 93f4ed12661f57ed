"""How reports write numbers and findings: few digits, intervals beside them, no difference claimed that is none."""

from __future__ import annotations

import math
import unicodedata

from fleetctl.bench.statistics import Interval
from fleetctl.bench.summary import CellSummary, Comparison, Summary

MODES = {
    "autoregressive": "no drafting",
    "linear": "a drafted chain is verified",
    "shadow": "trees are built, a chain is verified",
    "tree": "a drafted tree is verified",
}

DRIFT = "which does not tell a difference from a host that drifted meanwhile"


def number(value: float | None, digits: int = 3) -> str:
    """``value`` with so many significant digits, whole where it has more before its point; – of none."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}".replace(",", " ")


def tick(value: float) -> str:
    """A round value as an axis names it."""
    if 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.4g}"


def seconds(value: float | None) -> str:
    """A time in the unit that fits it."""
    if value is None:
        return "–"
    if value < 1:
        return f"{number(value * 1000)} ms"
    return f"{number(value)} s"


def bounds(found: Interval | None, digits: int = 3) -> str:
    """``low to high``; "" where one value says nothing about its spread, or all are the same."""
    if found is None or found.low is None or found.high is None:
        return ""
    low, high = number(found.low, digits), number(found.high, digits)
    return f"{low} to {high}" if low != high else ""


def times(comparison: Comparison) -> str:
    """``1.28 × (1.21 to 1.36)``."""
    between = bounds(comparison.ratio)
    return f"{number(comparison.ratio.mean)} ×" + (f" ({between})" if between else "")


def finding(summary: Summary, comparison: Comparison) -> str:
    """A comparison as a sentence without its full stop; no difference where the interval holds 1."""
    one, other = (summary.points[name].label for name in (comparison.one, comparison.other))
    if comparison.rounds == 1:
        return f"{one} was {times(comparison)} as fast as {other} in one round, {DRIFT}"
    if not comparison.sure:
        return f"No significant difference between {one} and {other}: {times(comparison)}"
    return f"{one} is {times(comparison)} as fast as {other}"


def verdict(summary: Summary, cell: CellSummary) -> list[str]:
    """What a cell says, the fastest against the base and against the second; each a sentence."""
    said = []
    over = cell.ratios.get(cell.best)
    for comparison in (over, cell.lead):
        if comparison is None or (comparison is cell.lead and over and comparison.other == over.other):
            continue
        sentence = finding(summary, comparison)
        if comparison.sure and comparison.against:
            sentence += f"; not on {', '.join(comparison.against)}"
        said.append(sentence + ".")
    if not said:
        speed = summary.points[cell.best].speed
        said.append(f"{summary.points[cell.best].label}: {number(speed.mean if speed else None)} tokens/s.")
    return said


def visible(text: str) -> str:
    """A token's text with what one cannot see made visible."""
    shown = text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")
    return "".join(char if char.isprintable() else "�" for char in shown) or "∅"


def plain(text: str) -> str:
    """``text`` without characters that no document takes: controls other than line breaks and tabs, halves of pairs."""
    return "".join(
        char if char in "\n\t" or char.isprintable() or unicodedata.category(char)[0] == "Z" else "�"
        for char in text.replace("\r\n", "\n")
    )
