"""Where a fault strikes: a kind of rollout, and a point in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """A step, and where in it: ``begin`` (nothing done yet), ``end`` (all done, not yet recorded), or behind a call."""

    step: str
    at: str = "begin"

    @property
    def name(self) -> str:
        """As reports have it."""
        words = {"begin": "", "end": ", done"}
        return self.step + words.get(self.at, f", behind {self.at.partition('.')[2]}")


LADDER = ("process", "unit", "port", "health", "models", "generate")
COMMIT = (
    Point("commit"),
    Point("commit", "trial.make_last"),
    Point("commit", "systemd.disable"),
    Point("commit", "systemd.enable"),
    Point("commit", "end"),
)
ON = (
    Point("free"),
    Point("install"),
    Point("install", "end"),
    Point("start"),
    Point("start", "end"),
    *(Point(rung) for rung in LADDER),
)
LOOK = (Point("lock"), Point("preflight"), Point("record"))
OFF = (Point("drain"), Point("stop"), Point("stop", "end"))
BACK = (
    Point("restore-stop"),
    Point("restore-free"),
    Point("restore-units"),
    Point("restore-units", "end"),
    Point("restore-start"),
    Point("restore-start", "end"),
    Point("restore-health"),
    Point("restore-generate"),
)


@dataclass(frozen=True)
class Kind:
    """A way to fill a slot: ``fails`` where the new service never proves itself, ``empties`` where there is none."""

    name: str
    points: tuple[Point, ...]
    has_old: bool = True
    same_unit: bool = False
    fails: bool = False
    empties: bool = False


def _without(points: tuple[Point, ...], *names: str) -> tuple[Point, ...]:
    return tuple(point for point in points if point.at not in names)


DEPLOY = Kind("deploy", (*LOOK, *ON, *_without(COMMIT, "systemd.disable")), has_old=False)
SWAP = Kind("swap", (*LOOK, *OFF, *ON, *COMMIT))
REDEPLOY = Kind("redeploy", (*LOOK, *OFF, *ON, *_without(COMMIT, "systemd.disable")), same_unit=True)
SWAP_BACK = Kind("swap that fails", BACK, fails=True)
REDEPLOY_BACK = Kind("redeploy that fails", BACK, same_unit=True, fails=True)
STOP = Kind(
    "stop", (*LOOK, *OFF, Point("free"), *_without(COMMIT, "systemd.enable", "trial.make_last")), empties=True
)
KINDS = (DEPLOY, SWAP, REDEPLOY, SWAP_BACK, REDEPLOY_BACK, STOP)


@dataclass(frozen=True)
class Cell:
    """One rollout of the matrix."""

    kind: Kind
    point: Point

    @property
    def name(self) -> str:
        """As reports have it."""
        return f"{self.kind.name}: {self.point.name}"


def cells(*kinds: Kind) -> list[Cell]:
    """All points of these kinds."""
    return [Cell(kind, point) for kind in kinds for point in kind.points]
