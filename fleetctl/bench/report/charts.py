"""Charts as data: what the page and the LaTeX document draw, each in its own way. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["rows", "lines", "steps"]


@dataclass(frozen=True)
class Mark:
    """A measured value; its interval is along the axis of values: x of ``rows``, y of the others."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Marks of one name in one ``style`` (an index into colours, markers and dashes); ``faint``: raw values (x, y).

    ``joined``: a line leads through its marks. In ``steps`` the line is ``faint`` and marks lie on it.
    """

    name: str
    style: int
    marks: list[Mark]
    faint: list[tuple[float, float]] = field(default_factory=list)
    joined: bool = True


@dataclass(frozen=True)
class Axis:
    """``ticks``: values to be named, those of a round scale without; ``start``: where the axis begins, if anywhere."""

    label: str
    log: bool = False
    ticks: list[float] | None = None
    start: float | None = 0.0
    end: float | None = None


@dataclass(frozen=True)
class Chart:
    """``rows``: dots with whiskers, one row a name; ``lines``: y over x; ``steps``: shares of all below x.

    ``lead``: the one thing to see, as a sentence; ``note``: how to read it.
    """

    key: str
    kind: Kind
    title: str
    lead: str
    note: str
    x: Axis
    y: Axis
    series: list[Series]
    rows: list[str] = field(default_factory=list)
