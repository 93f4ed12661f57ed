"""States of patch sets, by digests alone."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fleetctl.patches.patchset import PatchSet
from fleetctl.patches.state import FileState, State, judge, nearest_version
from tests.patches.trees import ENGINE, patch_set

CHANGED = {"engine/info.py": b"NAMES = []\n", "engine/tree.py": b"TREE = 1\n"}
MORE = {"engine/info.py": b"NAMES = [1]\n"}


def digests(*layers: dict[str, bytes | None]) -> dict[str, str | None]:
    files = {
        **ENGINE,
        "engine/tree.py": None,
        **{path: held for layer in layers for path, held in layer.items()},
    }
    return {path: None if held is None else hashlib.sha256(held).hexdigest() for path, held in files.items()}


@pytest.fixture
def tree(tmp_path: Path) -> PatchSet:
    return patch_set(tmp_path, "tree", CHANGED)


@pytest.mark.parametrize(
    ("found", "version", "state"),
    [
        (digests(), "1.0", State.PRISTINE),
        (digests(), "1.0.0", State.PRISTINE),
        (digests(CHANGED), "1.0", State.PATCHED),
        (digests({"engine/tree.py": CHANGED["engine/tree.py"]}), "1.0", State.PARTLY),
        (digests({"engine/info.py": b"mine\n"}), "1.0", State.FOREIGN),
        (digests({"engine/info.py": None}), "1.0", State.FOREIGN),
        (digests({**CHANGED, "engine/tree.py": b"mine\n"}), "1.0", State.FOREIGN),
        (digests(), "1.0+cu130", State.OTHER_VERSION),
        (digests(), None, State.MISSING),
    ],
)
def test_every_state(tree: PatchSet, found: dict[str, str | None], version: str | None, state: State) -> None:
    assert judge(tree, version, found, [tree]).state == state


def test_each_file_says_what_it_is(tree: PatchSet) -> None:
    state = judge(tree, "1.0", digests({"engine/info.py": b"mine\n"}), [tree])
    assert state.files == {"engine/tree.py": FileState.BEFORE, "engine/info.py": FileState.FOREIGN}


def test_another_version_names_what_fits(tmp_path: Path, tree: PatchSet) -> None:
    other = patch_set(tmp_path, "tree-two", CHANGED, version="2.0")
    foreign = digests({"engine/info.py": b"mine\n"})
    assert judge(tree, "2.0", foreign, [tree, other]).advice == "the patch set tree-two is for 2.0"
    assert judge(tree, "3.0", foreign, [tree, other]).advice == "the nearest version that fits is 1.0"
    assert judge(tree, "1.1", digests(), [tree]).advice.endswith("add 1.1 to its versions")


@pytest.mark.parametrize(
    ("version", "nearest"),
    [("1.5", "1.2"), ("0.5", "1.0"), ("3", "2.0"), ("1.2+cu130", "1.2"), ("odd!", "1.0")],
)
def test_the_nearest_version(version: str, nearest: str) -> None:
    assert nearest_version(version, ["2.0", "1.0", "1.2"]) == nearest


def test_sets_that_stand_on_one_another(tmp_path: Path, tree: PatchSet) -> None:
    upper = patch_set(tmp_path, "upper", MORE, {**ENGINE, **CHANGED})
    known = [tree, upper]
    both = digests(CHANGED, MORE)
    below = judge(tree, "1.0", both, known)
    assert (below.state, below.over) == (State.PATCHED, ("upper",))
    assert judge(upper, "1.0", both, known).state == State.PATCHED
    above = judge(upper, "1.0", digests(), known)
    assert (above.state, above.needed) == (State.PRISTINE, ("tree",))
    assert judge(upper, "1.0", digests(CHANGED), known).needed == ()
    assert judge(upper, "1.0", digests(), [upper]).state == State.FOREIGN
