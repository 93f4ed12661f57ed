"""What patch sets write, and when they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fleetctl.errors import Exit, FleetError
from fleetctl.patches.hunks import sha256
from fleetctl.patches.patchset import FOLDER, MANIFEST, load
from fleetctl.patches.plan import derived_digest, unmade
from tests.patches.trees import ENGINE, carry_out, code, edit, installed, patch_set, planned, wheel, write

CHANGED = {
    "engine/info.py": b"NAMES = []\n",
    "engine/sub/tree.py": b"TREE = 1\n",
    "engine/empty.py": b"A = 1\n",
}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    installed(tmp_path / "env", wheel(tmp_path / "wheels"))
    return tmp_path / "env"


def refused(environment: Path, *sets: object) -> FleetError:
    with pytest.raises(FleetError) as caught:
        planned(environment, *sets)  # type: ignore[arg-type]
    return caught.value


def test_applied_once_then_nothing_to_do_and_taken_out_again(tmp_path: Path, environment: Path) -> None:
    tree = patch_set(tmp_path, "tree", CHANGED)
    packages = environment / "lib/python3.11/site-packages"
    carry_out(packages, planned(environment, tree))
    assert code(packages) == {**ENGINE, **CHANGED}
    assert planned(environment, tree) == []
    carry_out(packages, [unmade(tree, code(packages))])
    assert code(packages) == ENGINE


def test_two_sets_of_different_files(tmp_path: Path, environment: Path) -> None:
    one = patch_set(tmp_path, "one", {"engine/info.py": b"1\n"})
    two = patch_set(tmp_path, "two", {"engine/last.py": b"2"})
    assert [entry.patch_set.name for entry in planned(environment, two, one)] == ["two", "one"]


def test_two_sets_of_one_file_are_refused_unless_they_stand_on_one_another(
    tmp_path: Path, environment: Path
) -> None:
    one = patch_set(tmp_path, "one", {"engine/info.py": b"1\n"})
    other = patch_set(tmp_path, "other", {"engine/info.py": b"2\n"})
    error = refused(environment, one, other)
    assert error.exit == Exit.PREFLIGHT
    assert error.what == "one and other both change engine/info.py, and do not stand on one another"
    upper = patch_set(tmp_path, "upper", {"engine/info.py": b"3\n"}, {**ENGINE, "engine/info.py": b"1\n"})
    entries = planned(environment, one, upper)
    assert [entry.writes[0].content for entry in entries] == [b"1\n", b"3\n"]
    assert entries[1].writes[0].before == entries[0].writes[0].after
    error = refused(environment, upper, one)
    assert (error.what, error.fix) == ("upper stands on one", "apply them first: one upper")


def test_a_foreign_file_and_a_half_applied_set_are_refused(tmp_path: Path, environment: Path) -> None:
    tree = patch_set(tmp_path, "tree", CHANGED)
    packages = environment / "lib/python3.11/site-packages"
    write(packages, {"engine/sub/tree.py": CHANGED["engine/sub/tree.py"]})
    error = refused(environment, tree)
    assert "some files as tree makes them, others not" in error.what
    assert "engine/sub/tree.py: as the patch set makes it" in error.evidence
    write(packages, {"engine/info.py": b"mine\n"})
    error = refused(environment, tree)
    assert (error.exit, "has other files than tree was made for" in error.what) == (Exit.PREFLIGHT, True)
    assert "engine/info.py: another file than both" in error.evidence


def test_another_version_names_the_nearest(tmp_path: Path) -> None:
    tree = patch_set(tmp_path, "tree", CHANGED)
    installed(tmp_path / "two", wheel(tmp_path, {**ENGINE, "engine/info.py": b"new\n"}, "2.0"))
    error = refused(tmp_path / "two", tree)
    assert error.exit == Exit.PREFLIGHT
    assert error.what == "it has engine 2.0; tree is for 1.0"
    assert error.fix == "the nearest version that fits is 1.0"
    (tmp_path / "none").mkdir()
    assert refused(tmp_path / "none", tree).what == "it has no engine, which tree is for"


def test_a_wrong_digest_after_is_shown_right(tmp_path: Path, environment: Path) -> None:
    patch_set(tmp_path, "tree", {"engine/info.py": b"1\n"})
    path = tmp_path / FOLDER / "tree" / MANIFEST
    data = yaml.safe_load(path.read_text())
    data["hunks"][0]["after"] = "0" * 64
    tree = edit(tmp_path, "tree", hunks=data["hunks"])
    error = refused(environment, tree)
    assert (error.exit, error.where) == (Exit.INPUT, tree.where("hunks", 0, "after"))
    assert error.fix == f"if the diff is right: after: {sha256(b'1' + bytes([10]))}"


def test_a_path_outside_the_distributions_packages_is_refused(tmp_path: Path, environment: Path) -> None:
    patch_set(tmp_path, "tree", CHANGED)
    path = tmp_path / FOLDER / "tree" / MANIFEST
    path.write_text(path.read_text().replace("path: engine/sub/tree.py", "path: other/tree.py"))
    tree = load(tmp_path, "tree")
    error = refused(environment, tree)
    assert (error.exit, error.where) == (Exit.PREFLIGHT, tree.where("files", 0, "path"))
    assert error.what == "other/tree.py is not in the packages of engine"
    assert error.fix == "its packages in here: engine"


def test_the_new_digest_depends_on_base_order_and_what_is_written(tmp_path: Path) -> None:
    one = patch_set(tmp_path, "one", {"engine/info.py": b"1\n"})
    two = patch_set(tmp_path, "two", {"engine/last.py": b"2"})
    made = {
        derived_digest("0" * 12, [one, two]),
        derived_digest("0" * 12, [two, one]),
        derived_digest("1" * 12, [one, two]),
        derived_digest("0" * 12, [one, two], "revert"),
    }
    assert len(made) == 4
    assert all(len(digest) == 12 for digest in made)
    reworded = edit(tmp_path, "one", upstream="2.0")
    assert derived_digest("0" * 12, [reworded, two]) in made
