"""From values to places on an axis, and the round values to name there. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.bench.report.charts import Axis, Chart


@dataclass(frozen=True)
class Scale:
    """Values from ``low`` to ``high`` on a length of 0 to 1; ``ticks`` are the values to name."""

    low: float
    high: float
    log: bool
    ticks: list[float]

    def place(self, value: float) -> float:
        """Where ``value`` lies, 0 to 1; what lies outside is moved to the end."""
        if self.log:
            low, high, value = math.log(self.low), math.log(self.high), math.log(max(value, 1e-12))
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low)))


def scale(axis: Axis, values: Sequence[float], wanted: int = 5) -> Scale:
    """A scale over ``values``, from the axis's own start where it has one, widened to round values."""
    given = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low = axis.start if axis.start is not None else min(given)
    high = axis.end if axis.end is not None else max(given)
    if axis.log:
        return _log_scale(axis, max(1e-9, min(low or min(given), min(given))), high)
    if high <= low:
        high = low + (abs(low) or 1.0)
    if axis.ticks is not None:
        pad = 0.0 if axis.end is not None else (high - low) * 0.04
        return Scale(low, high + pad, False, [tick for tick in axis.ticks if low <= tick <= high])
    step = round_step((high - low) / wanted)
    top = axis.end if axis.end is not None else math.ceil(high / step - 1e-9) * step
    bottom = math.floor(low / step + 1e-9) * step if axis.start is None else low
    first = math.ceil(bottom / step - 1e-9)
    ticks = [index * step for index in range(first, math.floor(top / step + 1e-9) + 1)]
    return Scale(bottom, top, False, ticks)


def _log_scale(axis: Axis, low: float, high: float) -> Scale:
    high = max(high, low * 1.5)
    if axis.ticks is not None:
        pad = (high / low) ** 0.04
        return Scale(low / pad, high * pad, True, axis.ticks)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1.0,) if high / low > 1e4 else (1.0, 3.0) if high / low > 100 else (1.0, 2.0, 5.0)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    low = max((tick for tick in ticks if tick <= low), default=low)
    high = min((tick for tick in ticks if tick >= high), default=high)
    return Scale(low, high, True, [tick for tick in ticks if low <= tick <= high])


def round_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * (1 - 1e-9))


def values_of(chart: Chart, along_x: bool) -> list[float]:
    """All that must have a place on one of a chart's axes."""
    found: list[float] = []
    on_marks = along_x == (chart.kind == "rows")
    for series in chart.series:
        for mark in series.marks:
            found.append(mark.x if along_x else mark.y)
            if on_marks and chart.kind != "steps":
                found += [end for end in (mark.low, mark.high) if end is not None]
        found += [pair[0 if along_x else 1] for pair in series.faint]
    return found
