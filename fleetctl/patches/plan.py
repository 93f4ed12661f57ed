"""What patch sets would write into an environment, in order, and why they would not. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetctl.errors import Exit, FleetError
from fleetctl.patches.hunks import DiffError, sha256
from fleetctl.patches.patchset import Change, PatchSet
from fleetctl.patches.state import FileState, PatchState, State, judge
from fleetctl.patches.trees import Installed

WORDS = {
    State.FOREIGN: "has other files than {name} was made for",
    State.PARTLY: "has some files as {name} makes them, others not",
    State.OTHER_VERSION: "has {distribution} {version}; {name} is for {versions}",
}


@dataclass(frozen=True)
class Write:
    """A file to be written: digests before (None: new) and after (None: to be removed), and its new content."""

    path: str
    before: str | None
    after: str | None
    content: bytes | None

    def to_call(self) -> dict[str, Any]:
        """As ``environment.derive`` takes it."""
        content = None if self.content is None else base64.b64encode(self.content).decode()
        return {"path": self.path, "before": self.before, "after": self.after, "content": content}


@dataclass(frozen=True)
class PatchWrites:
    """One patch set, and all that it writes; nothing where the environment has it."""

    patch_set: PatchSet
    writes: tuple[Write, ...] = field(repr=False)

    def to_call(self) -> dict[str, Any]:
        """As ``environment.derive`` takes it."""
        manifest = self.patch_set.manifest
        return {
            "name": self.patch_set.name,
            "distribution": self.patch_set.distribution,
            "writes": [write.to_call() for write in self.writes],
            "imports": manifest.imports,
            "checks": [
                {"what": check.what, "argv": check.command(), "seconds": check.seconds}
                for check in manifest.checks
            ],
        }


def plan(
    sets: Sequence[PatchSet],
    installed: Mapping[str, Installed | None],
    contents: Mapping[str, bytes | None],
    known: Sequence[PatchSet],
    place: str,
) -> list[PatchWrites]:
    """What each of ``sets`` writes, one after the other; those that are there already are left out.

    ``contents`` has every path of the sets; ``place`` is for messages. FleetError: exit 5 where the base
    differs, where two sets do not stand on one another, or where a file is not in the distribution's packages;
    exit 2 where a diff does not make what its digest says.
    """
    now = dict(contents)
    planned: list[PatchWrites] = []
    for patch_set in sets:
        found = installed[patch_set.distribution]
        version = found.version if found else None
        digests = {path: None if held is None else sha256(held) for path, held in now.items()}
        state = judge(patch_set, version, digests, known)
        if state.state == State.PATCHED:
            continue
        if state.state != State.PRISTINE or state.needed or found is None:
            raise _refusal(state, [entry.patch_set for entry in planned], place)
        _require_own(patch_set, found, place)
        writes = []
        for change in patch_set.changes:
            content = made(patch_set, change, now[change.path])
            writes.append(Write(change.path, change.before, change.after, content))
            now[change.path] = content
        planned.append(PatchWrites(patch_set, tuple(writes)))
    return planned


def made(patch_set: PatchSet, change: Change, found: bytes | None) -> bytes:
    """What the change makes of the file; FleetError (exit 2) where that is not what its digest says."""
    where = patch_set.where(*change.key, "diff")
    try:
        content = change.make(found)
    except DiffError as error:
        raise FleetError(
            f"{change.path}: {error}", where=where, fix="make the diff of the file again"
        ) from None
    if sha256(content) != change.after:
        raise FleetError(
            f"the diff makes another {change.path} than the digest says",
            where=patch_set.where(*change.key, "after"),
            fix=f"if the diff is right: after: {sha256(content)}",
        )
    return content


def unmade(patch_set: PatchSet, found: Mapping[str, bytes]) -> PatchWrites:
    """What takes the patch set out again; FleetError (exit 5) where a file is not what it makes."""
    writes = []
    for change in patch_set.changes:
        try:
            content = change.undo(found[change.path])
        except DiffError as error:
            raise FleetError(
                f"{change.path}: {error}", where=patch_set.where(*change.key, "diff"), exit=Exit.PREFLIGHT
            ) from None
        digest = None if content is None else sha256(content)
        if digest != change.before:
            raise FleetError(
                f"without its hunks {change.path} is not what it was before",
                where=patch_set.where(*change.key, "before"),
                fix="build or clone the environment anew",
                exit=Exit.PREFLIGHT,
            )
        writes.append(Write(change.path, change.after, digest, content))
    return PatchWrites(patch_set, tuple(writes))


def derived_digest(base: str, sets: Sequence[PatchSet], verb: str = "") -> str:
    """12 hex digits that name the environment which ``sets``, in this order, make of the one named ``base``."""
    parts = [base, *([verb] if verb else []), [[entry.name, entry.digest] for entry in sets]]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def _require_own(patch_set: PatchSet, installed: Installed, place: str) -> None:
    for change in patch_set.changes:
        if change.path.split("/", 1)[0] not in installed.packages:
            owned = ", ".join(installed.packages) or "none: it has no RECORD"
            raise FleetError(
                f"{change.path} is not in the packages of {patch_set.distribution}",
                where=patch_set.where(*change.key, "path"),
                fix=f"its packages in {place}: {owned}",
                exit=Exit.PREFLIGHT,
            )


def _refusal(state: PatchState, before: Sequence[PatchSet], place: str) -> FleetError:
    patch_set = state.patch_set
    if state.state == State.MISSING:
        return not_installed(patch_set, place)
    evidence = [f"{path}: {words(kind)}" for path, kind in state.files.items() if kind != FileState.BEFORE]
    if state.needed:
        return FleetError(
            f"{patch_set.name} stands on {', '.join(state.needed)}",
            where=place,
            fix=f"apply them first: {' '.join([*state.needed, patch_set.name])}",
            exit=Exit.PREFLIGHT,
        )
    for other in before:
        both = sorted(
            {change.path for change in other.changes}
            & {path for path, kind in state.files.items() if kind == FileState.FOREIGN}
        )
        if both:
            return FleetError(
                f"{other.name} and {patch_set.name} both change {', '.join(both)}, and do not stand on one another",
                where=patch_set.where("hunks"),
                fix=f"make {patch_set.name} anew on an environment that has {other.name}: fleetctl patch new",
                evidence=evidence,
                exit=Exit.PREFLIGHT,
            )
    what = WORDS[state.state].format(
        name=patch_set.name,
        distribution=patch_set.distribution,
        version=state.version,
        versions=", ".join(patch_set.manifest.versions),
    )
    fix = state.advice or f"fleetctl patch diff {place} {patch_set.name} shows what differs"
    return FleetError(f"it {what}", where=place, fix=fix, evidence=evidence, exit=Exit.PREFLIGHT)


def not_installed(patch_set: PatchSet, place: str) -> FleetError:
    """What is said where the environment has nothing of what the patch set is for."""
    return FleetError(
        f"it has no {patch_set.distribution}, which {patch_set.name} is for",
        where=place,
        fix=f"name an environment that has {patch_set.distribution} {' or '.join(patch_set.manifest.versions)}",
        exit=Exit.PREFLIGHT,
    )


def words(kind: FileState) -> str:
    """A file's state for people."""
    return {
        FileState.BEFORE: "as before the patch set",
        FileState.AFTER: "as the patch set makes it",
        FileState.FOREIGN: "another file than both",
    }[kind]
