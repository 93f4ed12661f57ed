"""Drift: what stands in B beside, within or instead of the files that its records name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetctl.environment.difference import Difference, Group, Severity, Step, listed
from fleetctl.environment.sides import Sides
from fleetctl.environment.view import Entry, View
from fleetctl.words import counted

SHOWN = 50


def drift_differences(sides: Sides) -> Iterator[Difference]:
    """Every difference of group drift."""
    if sides.b.is_specification:
        return
    yield from _nested(sides)
    yield from _twice(sides)
    yield from _files(sides)
    if not sides.a.is_specification:
        yield from _contents(sides)
        yield from _unowned(sides)
        yield from _problems(sides)


def _nested(sides: Sides) -> Iterator[Difference]:
    known = {sides.a.inside(path) for path in sides.a.nested}
    for path in sides.b.nested:
        inside = sides.b.inside(path)
        if inside in known:
            continue
        what = f"{inside} is a copy of the package inside itself, left by a copy that landed too deep"
        names = map(sides.b.inside, sides.b.bom["unowned"].get("files", ()))
        files = [name for name in names if name.startswith(f"{inside}/")]
        step = Step("remove", (), "no RECORD names it", paths=(inside,))
        yield _drift("nested-copy", "error", inside.split("/")[0], what, files[:3], step)


def _twice(sides: Sides) -> Iterator[Difference]:
    known = {entry["name"]: entry["versions"] for entry in sides.a.bom.get("twice", ())}
    for entry in sides.b.bom.get("twice", ()):
        name = entry["name"]
        if known.get(name) != entry["versions"]:
            what = f"{name} has two dist-infos, of {listed(entry['versions'])}: which one counts is chance"
            yield _drift("twice", "error", name, what, entry["infos"], _again(sides, name))


def _files(sides: Sides) -> Iterator[Difference]:
    """Files that are not as RECORD says, and records that say nothing."""
    for name, entry in sides.b.distributions.items():
        theirs = {} if sides.a.is_specification else sides.a.distributions.get(name, {})
        yield from _record(sides, name, entry, theirs)
        told = [key for key in ("changed", "missing", "outside") if _of(entry, key) != _of(theirs, key)]
        lines = [f"{key}: {listed(entry.get(key, ()), 3)}" for key in told if entry.get(key)]
        if lines:
            counts = " and ".join(
                counted(_count(entry, key), *_WORDS[key]) for key in told if _count(entry, key)
            )
            what = f"{name} {entry['version']} is not as it was installed: {counts}"
            worst: Severity = "error" if "missing" in told and entry.get("missing") else "warning"
            yield _drift("files", worst, name, what, lines, _again(sides, name))


_WORDS = {
    "changed": ("file changed", "files changed"),
    "missing": ("file missing", "files missing"),
    "outside": ("file outside the environment", "files outside the environment"),
}


def _record(sides: Sides, name: str, entry: Entry, theirs: Entry) -> Iterator[Difference]:
    record = entry.get("record") or {}
    state = record.get("state", "ok")
    if state != "ok" and (theirs.get("record") or {}).get("state") != state:
        what = (
            f"{name} {entry['version']} has a RECORD that is {state}: its files cannot be checked or replaced"
        )
        evidence = [record["why"]] if record.get("why") else []
        yield _drift("record", "warning", name, what, evidence, _again(sides, name))
    editable = entry.get("editable")
    if editable and editable != theirs.get("editable"):
        what = f"{name} runs from {editable}, a folder that anybody may edit"
        yield _drift("editable", "warning", name, what, [], _again(sides, name))


def _contents(sides: Sides) -> Iterator[Difference]:
    for name in sides.both:
        if name not in sides.stack.distributions and sides.record_differs(name):
            what = (
                f"{name} {sides.b.versions[name]} has other files than {sides.a_name}'s of the same version"
            )
            if sides.b.patch_sets != sides.a.patch_sets:
                what += f"; patch sets: {_patched(sides.b)} here, {_patched(sides.a)} there"
            evidence = [
                f"{label}: {_origin(view.distributions[name])}"
                for label, view in (("here", sides.b), (f"in {sides.a_name}", sides.a))
            ]
            step = sides.bring([name], f"{sides.a_name} has another build of that version")
            yield _drift("contents", "warning", name, what, evidence, step)


def _unowned(sides: Sides) -> Iterator[Difference]:
    """Files of no distribution; nested copies are told on their own."""
    ours, theirs = (view.bom.get("unowned") or {} for view in (sides.b, sides.a))
    nested = tuple(f"{sides.b.inside(path)}/" for path in sides.b.nested)
    known = set(map(sides.a.inside, theirs.get("files", ())))
    names = map(sides.b.inside, ours.get("files", ()))
    files = [name for name in names if not name.startswith(nested) and name not in known]
    packages = [path for path in ours.get("packages", ()) if path not in sides.b.nested]
    packages = [path for path in packages if path not in theirs.get("packages", ())]
    if files or packages:
        about = f", among them the packages {listed(map(sides.b.inside, packages))}" if packages else ""
        what = (
            f"{counted(len(files), 'file')} that no distribution owns and {sides.a_name} does not have{about}"
        )
        step = Step("none", (), "nothing says where they came from: look at them")
        yield _drift("unowned", "warning", "", what, files[:SHOWN], step)


def _problems(sides: Sides) -> Iterator[Difference]:
    known = {(entry["where"], entry["what"]) for entry in sides.a.bom.get("problems", ())}
    found = [one for one in sides.b.bom.get("problems", ()) if (one["where"], one["what"]) not in known]
    if found:
        what = f"{counted(len(found), 'thing')} in {sides.b_name} could not be read as expected"
        lines = [f"{one['where']}: {one['what']}" for one in found]
        yield _drift("problem", "warning", "", what, lines[:SHOWN], Step("none"))


def _again(sides: Sides, name: str) -> Step:
    """A's distribution where it is whole and of the wanted version, else the distribution's own wheel."""
    theirs = sides.a.distributions.get(name)
    if theirs is not None and not sides.a.is_specification and _is_whole(theirs):
        return sides.bring([name], f"{sides.a_name} has it whole")
    return Step("reinstall", (name,), "its wheel has the files as they were")


def _is_whole(entry: Entry) -> bool:
    record = entry.get("record") or {}
    return record.get("state") == "ok" and not any(entry.get(key) for key in _WORDS)


def _of(entry: Entry, key: str) -> tuple[Any, ...]:
    return _count(entry, key), *sorted(entry.get(key) or ())


def _count(entry: Entry, key: str) -> int:
    return int(entry.get(f"{key}_count", len(entry.get(key) or ())))


def _origin(entry: Entry) -> str:
    url = (entry.get("direct_url") or {}).get("url")
    return f"installed by {entry.get('installer') or 'nobody knows what'}" + (f" from {url}" if url else "")


def _patched(view: View) -> str:
    return listed(view.patch_sets) or "none"


def _drift(
    id: str, severity: Severity, subject: str, what: str, evidence: list[str], step: Step
) -> Difference:
    return Difference(id, Group.DRIFT, severity, subject, what, tuple(evidence), step)
