"""A patch set made from a tree that somebody changed: new files whole, changed ones as hunks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name

import fleetctl
from fleetctl.errors import Exit, FleetError
from fleetctl.patches.hunks import apply, is_binary, make, parse, sha256
from fleetctl.patches.manifest import OWN
from fleetctl.patches.patchset import FOLDER, MANIFEST
from fleetctl.patches.trees import Installed, Tree

TODO = "TODO: say why"
AT_ONCE = 16
NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,62}$")


def create(root: Path, name: str, distribution: str, base: Tree, changed: Tree) -> Path:
    """Write ``runtime_patches/<name>/``: what makes ``base`` into ``changed``; its folder.

    Its whys are still to be written, and it is refused until they are. FleetError: exit 2 where it exists, cannot
    be written or nothing differs; exit 5 where the trees cannot be told apart by a patch set (files that went away
    or are binary, another version).
    """
    folder = root / FOLDER / name
    if not NAME.match(name):
        raise FleetError(f"not a patch set's name: {name!r}", fix="use lower case letters, digits, . _ and -")
    if folder.exists():
        raise FleetError(f"the patch set {name} exists", where=str(folder), fix="choose another name")
    draft = folder.with_name(f".{name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        _make(draft)
        return _write_set(draft, folder, str(canonicalize_name(distribution)), base, changed)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write_set(draft: Path, folder: Path, distribution: str, base: Tree, changed: Tree) -> Path:
    installed = _same_version(distribution, base, changed)
    before, after = base.files(installed.packages), changed.files(installed.packages)
    _require_kept(before, after, base, changed)
    new = [path for path in after if path not in before]
    differing = [path for path in after if path in before and after[path] != before[path]]
    if not new and not differing:
        raise FleetError(
            f"no file of {distribution} differs",
            where=f"{base.shown} and {changed.shown}",
            fix="name the tree that was changed: --changed",
        )
    manifest = {
        "name": folder.name,
        "distribution": distribution,
        "versions": [installed.version],
        "why": TODO,
        "upstream": None,
        "files": _new(draft, new, changed),
        "hunks": _hunks(draft, differing, base, changed),
        "imports": [],
        "checks": [],
    }
    text = yaml.safe_dump(manifest, sort_keys=False, width=1000, allow_unicode=True)
    _write(draft / MANIFEST, text.encode())
    draft.rename(folder)
    return folder


def _same_version(distribution: str, base: Tree, changed: Tree) -> Installed:
    there = base.distributions([distribution])[distribution]
    if there is None:
        raise FleetError(
            f"no {distribution} there", where=base.shown, fix="name the base that has it: --base"
        )
    if not there.packages:
        raise FleetError(
            f"{distribution} has no RECORD",
            where=base.shown,
            fix="give its wheel: --base",
            exit=Exit.PREFLIGHT,
        )
    other = changed.distributions([distribution])[distribution]
    if other is not None and other.version != there.version:
        raise FleetError(
            f"{changed.shown} has {distribution} {other.version}, {base.shown} has {there.version}",
            fix="a patch set is for one version: give that version's base",
            exit=Exit.PREFLIGHT,
        )
    return there


def _require_kept(before: Mapping[str, str], after: Mapping[str, str], base: Tree, changed: Tree) -> None:
    gone = [path for path in before if path not in after]
    if gone:
        raise FleetError(
            f"{len(gone)} files of {base.shown} are not in {changed.shown}; patch sets take none away",
            where=changed.shown,
            fix="put them back; a folder must hold the packages whole, as site-packages does",
            evidence=gone[:10],
            exit=Exit.PREFLIGHT,
        )


def _new(draft: Path, paths: list[str], changed: Tree) -> list[dict[str, Any]]:
    own = _own_sources() if paths else {}
    entries = []
    for path, content in _contents(changed, paths):
        _require_text(path, content)
        digest = sha256(content)
        if digest in own and content:
            entries.append({"path": path, "from": own[digest], "sha256": digest})
            continue
        _write(draft / "files" / path, content)
        entries.append({"path": path, "source": f"files/{path}", "sha256": digest})
    return entries


def _hunks(draft: Path, paths: list[str], base: Tree, changed: Tree) -> list[dict[str, Any]]:
    entries = []
    for (path, before), (_, after) in zip(_contents(base, paths), _contents(changed, paths), strict=True):
        _require_text(path, before)
        _require_text(path, after)
        diff = make(before, after, path)
        assert apply(before, parse(diff)) == after, path
        _write(draft / "hunks" / f"{path}.diff", diff)
        digests = {"before": sha256(before), "after": sha256(after)}
        entries.append({"path": path, "diff": f"hunks/{path}.diff", **digests, "why": TODO})
    return entries


def _contents(tree: Tree, paths: list[str]) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for start in range(0, len(paths), AT_ONCE):
        some = paths[start : start + AT_ONCE]
        contents = tree.contents(some)
        for path in some:
            content = contents[path]
            if content is None:
                raise FleetError(
                    f"{path} went away", where=tree.shown, fix="leave the tree alone, and try again"
                )
            found.append((path, content))
    return found


def _require_text(path: str, content: bytes) -> None:
    if is_binary(content):
        raise FleetError(
            f"{path} is binary; patch sets hold source text",
            where=path,
            fix="ship it in a wheel of its own",
            exit=Exit.PREFLIGHT,
        )


def _own_sources() -> dict[str, str]:
    """Digest → path of fleetctl's own modules: a new file that is one of them is kept there, not twice."""
    package = Path(fleetctl.__file__).parent
    return {
        sha256(path.read_bytes()): f"{OWN}{path.relative_to(package).as_posix()}"
        for path in sorted(package.rglob("*.py"))
    }


def _write(path: Path, content: bytes) -> None:
    _make(path.parent)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise _not_written(path, error) from None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_written(folder, error) from None


def _not_written(path: Path, error: OSError) -> FleetError:
    return FleetError(
        f"the patch set cannot be written: {error.strerror}",
        where=str(path),
        fix="make the folder writable and see that its disk has room, or name another fleet folder: --fleet",
    )
