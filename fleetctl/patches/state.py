"""In what state an environment's files are, by their digests alone. Pure.

Patch sets can stand on one another: where one's ``before`` is another's ``after``, a file may be further on, or
further back, than the set itself says; the sets in between are then ``over`` it or ``needed`` first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from packaging.version import Version

from fleetctl.patches.patchset import Change, PatchSet

Digests = Mapping[str, str | None]


class State(StrEnum):
    """Of a patch set in an environment."""

    PRISTINE = "pristine"
    PATCHED = "patched"
    FOREIGN = "foreign"
    PARTLY = "partly"
    OTHER_VERSION = "other-version"
    MISSING = "missing"


class FileState(StrEnum):
    """Of one of its files."""

    BEFORE = "before"
    AFTER = "after"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class PatchState:
    """A patch set in an environment; ``advice`` says which version or patch set fits where it does not."""

    patch_set: PatchSet
    state: State
    version: str | None
    files: Mapping[str, FileState] = field(default_factory=dict)
    needed: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object (``--json``)."""
        return {
            "name": self.patch_set.name,
            "distribution": self.patch_set.distribution,
            "version": self.version,
            "state": self.state.value,
            "files": {path: state.value for path, state in self.files.items()},
            "needed": list(self.needed),
            "over": list(self.over),
            "advice": self.advice,
        }


def judge(
    patch_set: PatchSet, version: str | None, found: Digests, known: Sequence[PatchSet] = ()
) -> PatchState:
    """The state of a patch set where its distribution is at ``version`` (None: not installed).

    ``found``: sha256 by path, None where there is no file; every path of the set is in it. ``known``: all patch
    sets, for those that stand on one another and for advice.
    """
    if version is None:
        return PatchState(patch_set, State.MISSING, None)
    others = [entry for entry in known if entry.name != patch_set.name and fits(entry, version)]
    files: dict[str, FileState] = {}
    needed: dict[str, None] = {}
    over: dict[str, None] = {}
    for change in patch_set.changes:
        files[change.path], below, above = _file(change, found[change.path], others)
        needed.update(dict.fromkeys(below))
        over.update(dict.fromkeys(above))
    states = set(files.values())
    if not fits(patch_set, version):
        advice = _advice(patch_set, version, known, FileState.FOREIGN not in states)
        return PatchState(patch_set, State.OTHER_VERSION, version, files, advice=advice)
    if FileState.FOREIGN in states:
        state = State.FOREIGN
    elif len(states) == 2:
        state = State.PARTLY
    else:
        state = State.PRISTINE if FileState.BEFORE in states else State.PATCHED
    return PatchState(patch_set, state, version, files, tuple(needed), tuple(over))


def fits(patch_set: PatchSet, version: str) -> bool:
    """Whether the set is for this version; ``1.0`` and ``1.0.0`` are one, ``1.0+cu130`` is another."""
    try:
        return Version(version) in [Version(entry) for entry in patch_set.manifest.versions]
    except ValueError:
        return version in patch_set.manifest.versions


def _file(
    change: Change, found: str | None, others: Sequence[PatchSet]
) -> tuple[FileState, tuple[str, ...], tuple[str, ...]]:
    """The file's state, the sets needed before this one, and those that stand on it."""
    if found == change.after:
        return FileState.AFTER, (), ()
    if found == change.before:
        return FileState.BEFORE, (), ()
    steps = [
        (other.before, other.after, entry.name)
        for entry in others
        for other in entry.changes
        if other.path == change.path
    ]
    above = _between(change.after, found, steps)
    if above:
        return FileState.AFTER, (), above
    below = _between(found, change.before, steps)
    return (FileState.BEFORE, below, ()) if below else (FileState.FOREIGN, (), ())


def _between(
    start: str | None, end: str | None, steps: Sequence[tuple[str | None, str, str]]
) -> tuple[str, ...]:
    """The names of the steps that lead from one digest to another; none where nothing does."""
    ways: dict[str | None, tuple[str, ...]] = {start: ()}
    todo = [start]
    for at in todo:
        for before, after, name in steps:
            if before == at and after not in ways:
                ways[after] = (*ways[at], name)
                todo.append(after)
    return ways.get(end, ())


def _advice(patch_set: PatchSet, version: str, known: Sequence[PatchSet], same_files: bool) -> str:
    for other in known:
        if other.distribution == patch_set.distribution and fits(other, version):
            return f"the patch set {other.name} is for {version}"
    if same_files:
        return f"its files are as they are in {patch_set.manifest.versions[0]}: add {version} to its versions"
    return f"the nearest version that fits is {nearest_version(version, patch_set.manifest.versions)}"


def nearest_version(version: str, versions: Sequence[str]) -> str:
    """The newest of ``versions`` that is not newer than ``version``, else the oldest."""
    ordered = sorted(versions, key=Version)
    try:
        older = [entry for entry in ordered if Version(entry) <= Version(version)]
    except ValueError:
        older = []
    return older[-1] if older else ordered[0]
