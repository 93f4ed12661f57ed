"""What stands between the files that are there and what a patch set makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.patches.difference import Difference, differences
from fleetctl.patches.patchset import PatchSet
from fleetctl.patches.state import judge
from fleetctl.patches.trees import Read, Tree, Wheel
from tests.patches.trees import ENGINE, installed, patch_set, wheel, write

CHANGED = {
    "engine/info.py": b"NAMES = []\n",
    "engine/tree.py": b"TREE = 1\n",
    "engine/crlf.py": b"A = 1\r\nB = 3\r\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> PatchSet:
    return patch_set(tmp_path, "tree", CHANGED)


def found(tmp_path: Path, tree: PatchSet, there: dict[str, bytes], *bases: Tree) -> list[Difference]:
    write(installed(tmp_path / "env", wheel(tmp_path)), there)
    files = Read("here", str(tmp_path / "env"))
    digests = files.digests([change.path for change in tree.changes])
    return list(differences(judge(tree, "1.0", digests, [tree]), files, bases))


def test_pristine_patched_and_partly(tmp_path: Path, tree: PatchSet) -> None:
    whole = found(tmp_path, tree, {})
    assert [(entry.path, entry.to) for entry in whole] == [
        (path, "after") for path in ("engine/tree.py", "engine/crlf.py", "engine/info.py")
    ]
    assert "@@ -0,0 +1,1 @@\n+TREE = 1\n" in whole[0].diff
    assert "-B = 2\r\n+B = 3\r\n" in whole[1].diff
    partly = found(tmp_path, tree, {"engine/tree.py": CHANGED["engine/tree.py"]})
    assert [entry.path for entry in partly] == ["engine/crlf.py", "engine/info.py"]
    assert found(tmp_path, tree, CHANGED) == []


def test_a_foreign_file_is_compared_with_both(tmp_path: Path, tree: PatchSet) -> None:
    mine = {**CHANGED, "engine/info.py": b'NAMES = ["mine"]\n'}
    (only,) = found(tmp_path, tree, mine)
    assert (only.diff, "name it with --base" in only.note) == ("", True)
    other = Wheel(wheel(tmp_path / "other", {**ENGINE, "engine/info.py": b"another\n"}))
    assert found(tmp_path, tree, mine, other) == [only]
    before, after = found(tmp_path, tree, mine, other, Wheel(wheel(tmp_path / "base")))
    assert (before.to, after.to) == ("before", "after")
    assert '-NAMES = ["mine"]\n+NAMES = ["linear"]\n' in before.diff
    assert '-NAMES = ["mine"]\n+NAMES = []\n' in after.diff


def test_a_foreign_new_file_and_a_binary_one(tmp_path: Path, tree: PatchSet) -> None:
    mine = {**CHANGED, "engine/tree.py": b"TREE = 2\n"}
    (only,) = found(tmp_path, tree, mine)
    assert (only.to, "-TREE = 2\n+TREE = 1\n" in only.diff) == ("after", True)
    (only,) = found(tmp_path, tree, {**CHANGED, "engine/tree.py": b"\0"})
    assert (only.diff, only.note) == ("", "is binary")
