"""A bill of materials as an operator reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

BIGGEST = 8
NAMED = 6
COLUMNS = ["biggest", "version", "files", "size", "drift"]
WIDTH = 12

Bom = dict[str, Any]
Screen = tuple[list[str], list[str], list[list[str]]]


def headline(bom: Bom) -> str:
    """One line: ``venv 0123456789ab, 189 distributions, 13,237 files, 4,321 MB``."""
    counts = f"{len(bom['distributions'])} distributions, {bom['files']:,} files, {megabytes(bom['bytes'])}"
    return f"{bom['kind']} {bom['digest']}, {counts}"


def screen(bom: Bom) -> Screen:
    """Lines, and the table of the biggest distributions: its columns and rows."""
    lines = [f"{bom.get('hostname', '')}:{bom['path']}", *_lines(bom)]
    ordered = sorted(bom["distributions"], key=lambda one: -one["bytes"])
    return lines, COLUMNS, [_row(one) for one in ordered[:BIGGEST]]


def megabytes(count: int) -> str:
    """``1,234 MB``; of less than one its tenths."""
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count / 1e6:.1f} MB"


def drifted(bom: Bom) -> dict[str, int]:
    """How many files of each distribution are not as its RECORD says, the most first."""
    counts = {
        f"{one['name']}": one["changed_count"] + one["missing_count"] + one["outside_count"]
        for one in bom["distributions"]
    }
    return dict(sorted(((name, count) for name, count in counts.items() if count), key=lambda one: -one[1]))


def _lines(bom: Bom) -> Iterator[str]:
    python, abi, unowned = bom["python"], bom["abi"], bom["unowned"]
    yield _line("kind", f"{bom['kind']}, digest {bom['digest']}, read {bom['captured']}")
    runs = "" if python["runs"] else f"; DOES NOT RUN: {python['why'] or 'no program'}"
    yield from _made(bom.get("made"))
    yield _line("python", f"{python['version']} ({python['tag']}), {python['real'] or python['path']}{runs}")
    yield _line("abi", abi["tag"] or "-")
    majors = ", ".join(f"{major} ({len(paths)} libraries)" for major, paths in sorted(abi["cuda"].items()))
    yield _line("torch", f"{abi['torch'] or '-'}, CUDA {majors or '-'}")
    counts = f"{len(bom['distributions'])} distributions, {len(bom['extensions'])} libraries"
    yield _line("holds", f"{counts}, {bom['files']:,} files, {megabytes(bom['bytes'])}")
    if bom["inherited"]:
        yield _line("inherits", f"{len(bom['inherited'])} distributions of {_behind(bom)}")
    yield _line("drift", _drift(bom))
    yield from _broken(bom)
    nested = "".join(f"; a copy inside itself: {name}" for name in unowned["packages"])
    yield _line("unowned", f"{unowned['count']:,} files, {megabytes(unowned['bytes'])}{nested}")
    for one in bom["twice"]:
        yield _line("twice", f"{one['name']} {' and '.join(one['versions'])}")
    for one in bom["distributions"]:
        if one["editable"]:
            yield _line("editable", f"{one['name']} from {one['editable']}")
    yield from _problems(bom)


def _behind(bom: Bom) -> str:
    """The folders that they are in."""
    return ", ".join(dict.fromkeys(str(one["info"]).rpartition("/")[0] for one in bom["inherited"]))


def _made(made: Any) -> Iterator[str]:
    """Where fleetctl derived it from, and with which patch sets."""
    if not made:
        return
    origin = made.get("origin") or {}
    place = ":".join(str(origin[key]) for key in ("host", "path") if origin.get(key))
    patches = ", ".join(str(one.get("name")) for one in made.get("patches") or ())
    said = [f"from {place}"] if place else ["from wheels"]
    yield _line("made", ", ".join([*said, *([f"patch sets: {patches}"] if patches else [])]))


def _drift(bom: Bom) -> str:
    counts = drifted(bom)
    if not counts:
        return "none" if bom.get("hashes", True) else "none seen, hashes not compared"
    named = ", ".join(f"{name} ({count})" for name, count in list(counts.items())[:NAMED])
    more = f" and {len(counts) - NAMED} more" if len(counts) > NAMED else ""
    return f"{sum(counts.values()):,} files: {named}{more}"


def _broken(bom: Bom) -> Iterator[str]:
    """Distributions without a whole RECORD, and libraries that something is missing for."""
    for state in ("missing", "unreadable", "malformed"):
        names = [one["name"] for one in bom["distributions"] if one["record"]["state"] == state]
        if names:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            yield _line("RECORD", f"{state}: {', '.join(names[:NAMED])}{more}")
    wanting = [one for one in bom["extensions"] if one["missing"] or one["undefined_count"] or one["error"]]
    for one in wanting[:NAMED]:
        said = (
            one["error"] or f"wants {', '.join(one['missing'] or one['undefined'][:3])}, which nothing gives"
        )
        yield _line("libraries", f"{one['path']}: {said}")
    if len(wanting) > NAMED:
        yield _line("", f"and {len(wanting) - NAMED} more")


def _problems(bom: Bom) -> Iterator[str]:
    for number, one in enumerate(bom["problems"][:NAMED]):
        yield _line("problems" if number == 0 else "", f"{one['where']}: {one['what']}".lstrip(": "))
    left = bom.get("problems_count", len(bom["problems"])) - NAMED
    if left > 0:
        yield _line("", f"and {left} more")


def _line(name: str, text: str) -> str:
    return f"{name:{WIDTH}}{text}"


def _row(one: dict[str, Any]) -> list[str]:
    count = one["changed_count"] + one["missing_count"]
    return [one["name"], one["version"], f"{one['files']:,}", megabytes(one["bytes"]), str(count or "-")]
