"""What points are called in reports: their service, with only what it takes to tell one from another. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.bench.record import Point

CONTEXT = "context_tokens"


@dataclass(frozen=True)
class Name:
    """``family``: the service. ``label``: with what was varied, unlike any other of its cell. ``whole``: with
    concurrency and part too, unlike any other."""

    family: str
    label: str
    whole: str


def name_points(points: Sequence[Point], runs: Sequence[str], by: Sequence[str | None]) -> list[Name]:
    """The names of ``points``, each measured first in the run of the same index, by the load generator of the same."""
    many_hosts = len({point.host for point in points}) > 1
    many_sizes = len({point.concurrency for point in points}) > 1
    many_parts = len({part(point) for point in points}) > 1
    families = [f"{point.host}:{point.service}" if many_hosts else point.service for point in points]
    families = [f"{family} by {tool}" if tool else family for family, tool in zip(families, by, strict=True)]
    details = [_details(point) for point in points]
    sizes = [(point.concurrency if many_sizes else 0, part(point) if many_parts else "") for point in points]
    families = _told_apart(
        families, list(zip(families, details, sizes, strict=True)), [run[:15] for run in runs]
    )
    digests = [point.digest[:8] for point in points]
    families = _told_apart(families, list(zip(families, details, sizes, strict=True)), digests)
    names = []
    for family, detail, (size, where) in zip(families, details, sizes, strict=True):
        label = f"{family} · {detail}" if detail else family
        whole = f"{label} @{size}" if size else label
        names.append(Name(family, label, f"{whole}, {where}" if where else whole))
    return _unlike(names)


def part(point: Point) -> str:
    """What of the suite a point belongs to: prompts of one length are not compared with those of another."""
    length = point.varied.get(CONTEXT)
    return point.suite_part if length is None else f"{length} tokens of context"


def _details(point: Point) -> str:
    varied = [(name, value) for name, value in point.varied.items() if name != CONTEXT]
    return ", ".join(f"{name} {_plain(value)}" for name, value in varied)


def _told_apart(families: list[str], keys: list[Any], marks: list[str]) -> list[str]:
    """Families with their mark where two points would have one name, and those marks differ."""
    marked: dict[Any, set[str]] = {}
    for key, mark in zip(keys, marks, strict=True):
        marked.setdefault(key, set()).add(mark)
    torn = {key[0] for key, found in marked.items() if len(found) > 1}
    return [
        f"{family} ({mark})" if family in torn else family
        for family, mark in zip(families, marks, strict=True)
    ]


def _unlike(names: list[Name]) -> list[Name]:
    """Names of which no two are the same, whatever was recorded."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name.whole] = seen.get(name.whole, 0) + 1
        number = f" #{seen[name.whole]}" if seen[name.whole] > 1 else ""
        found.append(Name(name.family + number, name.label + number, name.whole + number))
    return found


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
