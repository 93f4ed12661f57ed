"""Whether patch sets make what they say of the wheels that fleetctl keeps: no host is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fleetctl.errors import FleetError
from fleetctl.inventory.document import Problem
from fleetctl.inventory.problems import together
from fleetctl.patches.hunks import DiffError, sha256
from fleetctl.patches.patchset import Change, PatchSet
from fleetctl.patches.trees import Wheel

WHEELHOUSE = Path(".fleetctl") / "wheelhouse"


def wheels(root: Path, distribution: str, versions: Sequence[str]) -> list[Path]:
    """The distribution's wheels that the fleet folder keeps from earlier builds."""
    stem, folder = distribution.replace("-", "_"), root / WHEELHOUSE
    return sorted(path for version in versions for path in folder.glob(f"{stem}-{version}-*.whl"))


def wrong_on_wheels(root: Path, sets: Sequence[PatchSet]) -> list[FleetError]:
    """One error a patch set whose hunks do not turn ``before`` into ``after``; sets without a kept wheel pass.

    ``before`` may be the wheel's file, or what another set makes of it.
    """
    errors = []
    for patch_set in sets:
        paths = [change.path for change in patch_set.changes if change.before is not None]
        for path in wheels(root, patch_set.distribution, patch_set.manifest.versions) if paths else ():
            others = [one for one in sets if one.distribution == patch_set.distribution]
            problems = list(_problems(patch_set, others, path))
            if problems:
                named = f"the patch set {patch_set.name}"
                errors.append(together(patch_set.document, patch_set.shown, problems, named))
                break
    return errors


def _problems(patch_set: PatchSet, others: Sequence[PatchSet], path: Path) -> Iterator[Problem]:
    changes = [change for change in patch_set.changes if change.before is not None]
    held = Wheel(path).contents([change.path for change in changes])
    for change in changes:
        content = held[change.path]
        if content is None:
            yield Problem((*change.key, "path"), f"{path.name} has no {change.path}", "correct the path")
            continue
        states = _states(content, change.path, others)
        if change.before not in states:
            right = f"if it is made for that wheel: before: {sha256(content)}"
            what = f"{change.path} of {path.name} is another file than before says"
            yield Problem((*change.key, "before"), what, right)
            continue
        yield from _made(change, states[change.before])


def _states(content: bytes, path: str, sets: Sequence[PatchSet]) -> dict[str, bytes]:
    """The file as the wheel has it and as the sets make it, one on the other, by digest."""
    states = {sha256(content): content}
    changes = [change for one in sets for change in one.changes if change.path == path]
    for _ in changes:
        for change in changes:
            if change.before in states and change.after not in states:
                try:
                    made = change.make(states[change.before])
                except DiffError:
                    continue
                states[sha256(made)] = made
    return states


def _made(change: Change, before: bytes) -> Iterator[Problem]:
    try:
        made = sha256(change.make(before))
    except DiffError as error:
        fix = "make the diff of the file again: fleetctl patch new"
        yield Problem((*change.key, "diff"), f"{change.path}: {error}", fix)
        return
    if made != change.after:
        what = f"the diff makes another {change.path} than the digest says"
        yield Problem((*change.key, "after"), what, f"if the diff is right: after: {made}")
