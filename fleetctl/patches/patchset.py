"""Patch sets as loaded from ``runtime_patches/``: manifest, diffs and new files, all checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import fleetctl
from fleetctl.errors import FleetError
from fleetctl.inventory.document import Document, Key, Problem, read
from fleetctl.inventory.nearest import hint
from fleetctl.inventory.problems import in_words, together
from fleetctl.patches.hunks import DiffError, Hunk, apply, is_binary, parse, reverse, sha256
from fleetctl.patches.manifest import Manifest, NewFile

FOLDER = "runtime_patches"
MANIFEST = "manifest.yaml"


@dataclass(frozen=True)
class Change:
    """One file: a new one whole (``content``), or one that is there by its ``hunks``; ``before`` null is new."""

    path: str
    before: str | None
    after: str
    why: str
    content: bytes = b""
    hunks: tuple[Hunk, ...] = ()
    key: Key = ()

    def make(self, found: bytes | None) -> bytes:
        """The file as it is to be, from what is there; :class:`DiffError` where the hunks do not fit."""
        return self.content if self.before is None else apply(found or b"", self.hunks)

    def undo(self, found: bytes) -> bytes | None:
        """The file as it was, from what it is now; None where it was not there."""
        return None if self.before is None else reverse(found, self.hunks)


@dataclass(frozen=True)
class PatchSet:
    """A patch set that is whole: what it changes, and the manifest it says so in."""

    manifest: Manifest
    changes: tuple[Change, ...]
    shown: str
    document: Document = field(repr=False)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.manifest.name

    @property
    def distribution(self) -> str:
        """The distribution's canonical name."""
        return self.manifest.distribution

    @property
    def digest(self) -> str:
        """sha256 of what it writes: each path with its digests; an environment's marker names it by that."""
        lines = sorted(f"{change.path}\0{change.before}\0{change.after}" for change in self.changes)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def where(self, *key: str | int) -> str:
        """``file:line`` of a key of the manifest."""
        return f"{self.shown}:{self.document.line(key)}"


def names(root: Path) -> list[str]:
    """The patch sets of a fleet folder."""
    return sorted(path.parent.name for path in (root / FOLDER).glob(f"*/{MANIFEST}"))


def load(root: Path, name: str) -> PatchSet:
    """The patch set of that name; FleetError (exit 2) naming every error with its file and line."""
    folder = root / FOLDER / name
    if name not in names(root):
        raise FleetError(
            f"no patch set {name}", where=str(folder.parent), fix=hint(name, names(root), "patch sets")
        )
    document, shown = read(folder / MANIFEST), f"{FOLDER}/{name}/{MANIFEST}"
    manifest, problems = _parse(document, name)
    changes: list[Change] = []
    if manifest is not None:
        for change in _changes(manifest, folder):
            if isinstance(change, Problem):
                problems.append(change)
            else:
                changes.append(change)
    if manifest is None or problems:
        raise together(document, shown, problems, f"the patch set {name}")
    return PatchSet(manifest, tuple(changes), shown, document)


def load_all(root: Path) -> tuple[list[PatchSet], list[FleetError]]:
    """Every patch set that is whole, and what is wrong with the others."""
    good: list[PatchSet] = []
    errors: list[FleetError] = []
    for name in names(root):
        try:
            good.append(load(root, name))
        except FleetError as error:
            errors.append(error)
    return good, errors


def _parse(document: Document, name: str) -> tuple[Manifest | None, list[Problem]]:
    if document.problems:
        return None, document.problems
    if not isinstance(document.data, dict):
        return None, [Problem((), "the file describes no patch set", "begin with name: NAME")]
    try:
        manifest = Manifest.model_validate(document.data)
    except ValidationError as error:
        return None, in_words(error, document.data, Manifest)
    problems = [*_twice(manifest)]
    if manifest.name != name:
        problems.append(
            Problem(("name",), f"the folder is {name}, the name {manifest.name}", "make them one")
        )
    if not manifest.files and not manifest.hunks:
        problems.append(Problem((), "the patch set changes nothing", "add files: or hunks:"))
    return manifest, problems


def _twice(manifest: Manifest) -> Iterator[Problem]:
    seen: set[str] = set()
    paths = [("files", index, new.path) for index, new in enumerate(manifest.files)]
    paths += [("hunks", index, changed.path) for index, changed in enumerate(manifest.hunks)]
    for kind, index, path in paths:
        if path in seen:
            yield Problem((kind, index, "path"), f"{path} stands twice", "keep one of them")
        seen.add(path)
    for index, changed in enumerate(manifest.hunks):
        if changed.before == changed.after:
            yield Problem(("hunks", index, "after"), "before and after are the same", "take the hunk out")


def _changes(manifest: Manifest, folder: Path) -> Iterator[Change | Problem]:
    for index, new in enumerate(manifest.files):
        yield _new(new, folder, ("files", index))
    for index, changed in enumerate(manifest.hunks):
        key: Key = ("hunks", index)
        diff = _content(folder, changed.diff, (*key, "diff"))
        if isinstance(diff, Problem):
            yield diff
            continue
        try:
            hunks = parse(diff)
        except DiffError as error:
            yield Problem(
                (*key, "diff"), f"{changed.diff} is {error}", "fleetctl patch new writes such diffs"
            )
            continue
        yield Change(changed.path, changed.before, changed.after, changed.why, hunks=hunks, key=key)


def _new(new: NewFile, folder: Path, key: Key) -> Change | Problem:
    if new.source is not None:
        content = _content(folder, new.source, (*key, "source"))
    else:
        content = _content(Path(fleetctl.__file__).parents[1], str(new.own), (*key, "from"))
    if isinstance(content, Problem):
        return content
    shown, found = new.source or new.own, sha256(content)
    if found != new.sha256:
        return Problem(
            (*key, "sha256"),
            f"{shown} is another file than the digest says",
            f"if it is right: sha256: {found}",
        )
    if is_binary(content):
        return Problem(key, f"{shown} is binary; patch sets hold source text", "ship it in a wheel")
    return Change(new.path, None, new.sha256, new.why or "", content=content, key=key)


def _content(folder: Path, name: str, key: Key) -> bytes | Problem:
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            return Problem(key, f"{name} is a link out of {folder.name}", "put the file itself there")
        return path.read_bytes()
    except OSError as error:
        return Problem(key, f"{name} cannot be read: {error.strerror}", "correct the name, or add the file")


def to_dict(patch_set: PatchSet) -> dict[str, Any]:
    """What a patch set is, as one JSON object (``--json``)."""
    manifest = patch_set.manifest
    return {
        "name": patch_set.name,
        "distribution": patch_set.distribution,
        "versions": manifest.versions,
        "why": manifest.why,
        "upstream": manifest.upstream,
        "digest": patch_set.digest,
        "files": [
            {"path": change.path, "before": change.before, "after": change.after, "why": change.why}
            for change in patch_set.changes
        ],
        "imports": manifest.imports,
        "checks": [check.what for check in manifest.checks],
    }
