"""Charts as SVG for the page: colours by its style sheet, so that they follow light, dark and print.

Drawn here and not by a plotting library, since their SVG brings its own fonts and colours, and takes seconds to make.
"""

from __future__ import annotations

from html import escape

from fleetctl.bench.report.charts import Chart, Mark, Series
from fleetctl.bench.report.scale import Scale, scale, values_of
from fleetctl.bench.report.words import number, plain, tick

DASHES = ("", "7 3", "2 3", "8 3 2 3", "12 4", "4 2", "1 3", "10 3 2 3 2 3")
BAND, GAP = 17.0, 14.0
LETTER = 6.4


class Canvas:
    """Elements of one drawing, and how large it is in CSS pixels at its natural size."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._parts: list[str] = []

    def add(self, name: str, text: str | None = None, **attributes: object) -> None:
        """An element; ``_`` in attributes stands for ``-``, ``class_`` for ``class``."""
        given = " ".join(
            f'{key.rstrip("_").replace("_", "-")}="{_value(value)}"'
            for key, value in attributes.items()
            if value not in (None, "")
        )
        content = f">{escape(plain(text))}</{name}>" if text is not None else "/>"
        self._parts.append(f"<{name} {given}{content}")

    def open(self, **attributes: object) -> None:
        """Begin a group."""
        given = " ".join(f'{key.rstrip("_")}="{_value(value)}"' for key, value in attributes.items())
        self._parts.append(f"<g {given}>")

    def close(self) -> None:
        """End a group."""
        self._parts.append("</g>")

    def render(self, label: str, kind: str = "") -> str:
        """The whole element, with ``label`` for those who do not see it."""
        return (
            f'<svg class="{kind}" role="img" aria-label="{escape(plain(label))}" '
            f'viewBox="0 0 {_value(self.width)} {_value(self.height)}" '
            f'width="{_value(self.width)}" height="{_value(self.height)}">{"".join(self._parts)}</svg>'
        )


def draw(chart: Chart, width: float, kind: str) -> str:
    """A chart ``width`` pixels wide; ``kind`` is the element's class."""
    canvas = _rows(chart, width) if chart.kind == "rows" else _plane(chart, width)
    return canvas.render(f"{chart.title}. {chart.lead} The numbers are in the table below.", kind)


def glyph(style: int) -> str:
    """A series' line and marker, for legends and tables."""
    canvas = Canvas(26, 12)
    canvas.open(class_=f"s{style}")
    canvas.add("path", class_="line", d="M1 6H25", stroke_dasharray=DASHES[style])
    _marker(canvas, style, 13, 6)
    canvas.close()
    return canvas.render("", "glyph").replace('role="img" aria-label=""', 'aria-hidden="true"')


def _rows(chart: Chart, width: float) -> Canvas:
    narrow = width < 480
    longest = max((len(row) for row in chart.rows), default=0)
    left = 6.0 if narrow else min(190.0, 14 + LETTER * longest)
    right = 46.0
    inner = width - left - right
    lane = BAND if len(chart.series) < 7 else 13.0
    head = 18.0 if narrow else 0.0
    band = head + lane * len(chart.series) + GAP
    height = band * len(chart.rows) + 46
    canvas = Canvas(width, height)
    across = scale(chart.x, values_of(chart, along_x=True), wanted=4 if narrow else 6)
    bottom = height - 42
    middle_x = width / 2 if narrow else left + inner / 2
    for value in across.ticks:
        x = left + inner * across.place(value)
        canvas.add("line", class_="grid", x1=x, x2=x, y1=2, y2=bottom)
        _tick(canvas, value, x, bottom + 15)
    canvas.add("text", chart.x.label, class_="axis", x=middle_x, y=height - 8, text_anchor="middle")
    for row, name in enumerate(chart.rows):
        top = row * band
        if row:
            canvas.add("line", class_="rule", x1=0, x2=width, y1=top, y2=top)
        middle = top + head + GAP / 2 + lane * len(chart.series) / 2
        shown = name if len(name) < 29 else name[:27] + "…"
        if narrow:
            canvas.add("text", shown, class_="row", x=left, y=top + 16)
        else:
            canvas.add("text", shown, class_="row", x=left - 10, y=middle + 4, text_anchor="end")
        for lane_index, series in enumerate(chart.series):
            y = top + head + GAP / 2 + lane * (lane_index + 0.5)
            _lane(canvas, series, row, y, left, inner, across, width)
    return canvas


def _lane(
    canvas: Canvas, series: Series, row: int, y: float, left: float, inner: float, across: Scale, width: float
) -> None:
    mark = next((mark for mark in series.marks if mark.y == row), None)
    if mark is None:
        return
    canvas.open(class_=f"s{series.style}")
    for value in (pair[0] for pair in series.faint if pair[1] == row):
        canvas.add("circle", class_="faint", cx=left + inner * across.place(value), cy=y, r=2)
    if mark.low is not None and mark.high is not None:
        low, high = (left + inner * across.place(end) for end in (mark.low, mark.high))
        canvas.add("path", class_="whisker", d=f"M{low:.1f} {y:.1f}H{high:.1f}")
        canvas.add("path", class_="whisker", d=f"M{low:.1f} {y - 3:.1f}v6M{high:.1f} {y - 3:.1f}v6")
    _marker(
        canvas, series.style, left + inner * across.place(mark.x), y, f"{series.name}: {_told(mark, True)}"
    )
    canvas.close()
    canvas.add("text", number(mark.x), class_="value", x=width - 2, y=y + 4, text_anchor="end")


def _plane(chart: Chart, width: float) -> Canvas:
    narrow = width < 480
    height = 250.0 if narrow else 320.0
    canvas = Canvas(width, height)
    up = scale(chart.y, values_of(chart, along_x=False), wanted=5)
    across = scale(chart.x, values_of(chart, along_x=True), wanted=4 if narrow else 7)
    names = [f"{value:.0%}" if chart.kind == "steps" else tick(value) for value in up.ticks]
    left = 14 + LETTER * max((len(name) for name in names), default=1)
    right, top, bottom = 14.0, 24.0, height - 42
    inner, tall = width - left - right, bottom - top

    def x(value: float) -> float:
        return left + inner * across.place(value)

    def y(value: float) -> float:
        return bottom - tall * up.place(value)

    canvas.add("text", chart.y.label, class_="axis", x=2, y=12)
    for value, name in zip(up.ticks, names, strict=True):
        canvas.add("line", class_="grid", x1=left, x2=width - right, y1=y(value), y2=y(value))
        canvas.add("text", name, class_="tick", x=left - 7, y=y(value) + 4, text_anchor="end")
    canvas.add("line", class_="base", x1=left, x2=width - right, y1=bottom, y2=bottom)
    last = -100.0
    for value in across.ticks:
        canvas.add("line", class_="base", x1=x(value), x2=x(value), y1=bottom, y2=bottom + 4)
        if x(value) - last > LETTER * len(tick(value)) + 8:
            _tick(canvas, value, x(value), bottom + 17)
            last = x(value)
    canvas.add("text", chart.x.label, class_="axis", x=left + inner / 2, y=height - 8, text_anchor="middle")
    for index, series in enumerate(chart.series):
        canvas.open(class_=f"s{series.style}")
        drawn = series.faint if chart.kind == "steps" else [(mark.x, mark.y) for mark in series.marks]
        if series.joined and len(drawn) > 1:
            step = "H{0:.1f}V{1:.1f}" if chart.kind == "steps" else "L{0:.1f} {1:.1f}"
            path = "".join(step.format(x(a), y(b)) for a, b in drawn[1:])
            canvas.add(
                "path",
                class_="line",
                d=f"M{x(drawn[0][0]):.1f} {y(drawn[0][1]):.1f}{path}",
                stroke_dasharray=DASHES[series.style],
            )
        for mark in series.marks:
            shift = 0.0 if chart.kind == "steps" else (index - (len(chart.series) - 1) / 2) * 3
            if chart.kind != "steps" and mark.low is not None and mark.high is not None:
                at = x(mark.x) + shift
                canvas.add("path", class_="whisker pale", d=f"M{at:.1f} {y(mark.low):.1f}V{y(mark.high):.1f}")
            _marker(canvas, series.style, x(mark.x), y(mark.y), f"{series.name}: {_told(mark, False)}")
        canvas.close()
    return canvas


def _tick(canvas: Canvas, value: float, x: float, y: float) -> None:
    """A tick's number in the middle below it, moved inwards where it would be cut."""
    half = LETTER * len(tick(value)) / 2 + 1
    inside = min(max(x, half), canvas.width - half)
    canvas.add("text", tick(value), class_="tick", x=inside, y=y, text_anchor="middle")


def _told(mark: Mark, along_x: bool) -> str:
    value = number(mark.x if along_x else mark.y)
    between = f" ({number(mark.low)} to {number(mark.high)})" if mark.low is not None else ""
    return f"{value}{between}" if along_x else f"{value}{between} at {number(mark.x)}"


_SHAPES = (
    "M{x} {y}m-4.2 0a4.2 4.2 0 1 0 8.4 0a4.2 4.2 0 1 0 -8.4 0Z",
    "M{x} {y}m-3.9 -3.9h7.8v7.8h-7.8Z",
    "M{x} {y}m0 -5l4.8 8.4h-9.6Z",
    "M{x} {y}m0 -5.4l5.4 5.4l-5.4 5.4l-5.4 -5.4Z",
    "M{x} {y}m0 5l4.8 -8.4h-9.6Z",
    "M{x} {y}m-1.6 -5h3.2v3.4h3.4v3.2h-3.4v3.4h-3.2v-3.4h-3.4v-3.2h3.4Z",
    "M{x} {y}m-4.6 -2.6l4.6 -2.7l4.6 2.7v5.3l-4.6 2.7l-4.6 -2.7Z",
    "M{x} {y}m-4.6 -3l1.6 -1.6l3 3l3 -3l1.6 1.6l-3 3l3 3l-1.6 1.6l-3 -3l-3 3l-1.6 -1.6l3 -3Z",
)


def _marker(canvas: Canvas, style: int, x: float, y: float, title: str = "") -> None:
    path = _SHAPES[style].format(x=f"{x:.1f}", y=f"{y:.1f}")
    if title:
        canvas.open(class_="mark")
        canvas.add("title", title)
        canvas.add("path", class_="dot", d=path)
        canvas.close()
    else:
        canvas.add("path", class_="dot", d=path)


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return escape(str(value))
