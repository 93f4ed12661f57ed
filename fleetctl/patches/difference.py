"""What stands between the files of an environment and what patch sets make of them, as unified diffs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetctl.patches.hunks import is_binary, make, sha256
from fleetctl.patches.patchset import Change, PatchSet
from fleetctl.patches.plan import made
from fleetctl.patches.state import FileState, PatchState
from fleetctl.patches.trees import Tree


@dataclass(frozen=True)
class Difference:
    """One file of a patch set: from what is there to ``to``; ``diff`` is empty where ``note`` says all."""

    patch_set: str
    path: str
    to: str
    diff: str
    note: str = ""


def differences(state: PatchState, tree: Tree, bases: Sequence[Tree]) -> Iterator[Difference]:
    """Each file that is not as the patch set makes it.

    One as before is compared with what the set makes of it; a foreign one with before and after both, where one
    of ``bases`` has the file as before (only its digest is known otherwise).
    """
    todo = [change for change in state.patch_set.changes if state.files[change.path] != FileState.AFTER]
    contents = tree.contents([change.path for change in todo])
    for change in todo:
        found = contents[change.path]
        if state.files[change.path] == FileState.FOREIGN:
            yield from _foreign(state.patch_set, change, found, bases)
        elif found is not None and sha256(found) != change.before:
            note = f"is as before {', '.join(state.needed)}, which {state.patch_set.name} stands on"
            yield Difference(state.patch_set.name, change.path, "after", "", note)
        else:
            yield _to(state.patch_set, change.path, "after", found, made(state.patch_set, change, found))


def _foreign(
    patch_set: PatchSet, change: Change, found: bytes | None, bases: Sequence[Tree]
) -> Iterator[Difference]:
    before = _base(change, bases)
    if change.before is not None and before is None:
        note = "is another file than both, and the file as it was before is not at hand: name it with --base"
        yield Difference(patch_set.name, change.path, "before", "", note)
        return
    if change.before is not None:
        yield _to(patch_set, change.path, "before", found, before)
    yield _to(patch_set, change.path, "after", found, made(patch_set, change, before))


def _base(change: Change, bases: Sequence[Tree]) -> bytes | None:
    for base in bases if change.before else ():
        if base.digests([change.path])[change.path] == change.before:
            return base.contents([change.path])[change.path]
    return None


def _to(patch_set: PatchSet, path: str, to: str, found: bytes | None, wanted: bytes | None) -> Difference:
    found, wanted = found or b"", wanted or b""
    if is_binary(found):
        return Difference(patch_set.name, path, to, "", "is binary")
    text = make(found, wanted, path).decode("utf-8", "replace")
    return Difference(patch_set.name, path, to, text)
