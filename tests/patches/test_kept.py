"""Hunks tried on the wheels that fleetctl keeps, without a host."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleetctl.cli.app import whole
from fleetctl.errors import Exit
from fleetctl.patches.hunks import sha256
from fleetctl.patches.kept import WHEELHOUSE, wrong_on_wheels
from fleetctl.patches.patchset import FOLDER, MANIFEST, load_all
from tests.patches.trees import ENGINE, patch_set, wheel

INFO = ENGINE["engine/info.py"]
ONE = INFO.replace(b"linear", b"tree")
TWO = ONE.replace(b"tree", b"bush")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A fleet folder whose set ``two`` stands on its set ``one``, and a wheel of what both are for."""
    wheel(tmp_path / WHEELHOUSE)
    patch_set(tmp_path, "one", {"engine/info.py": ONE})
    patch_set(tmp_path, "two", {"engine/info.py": TWO}, base={**ENGINE, "engine/info.py": ONE})
    return tmp_path


def said(root: Path, name: str, old: str, new: str) -> str:
    path = root / FOLDER / name / MANIFEST
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    (error,) = wrong_on_wheels(root, load_all(root)[0])
    assert error.exit == Exit.INPUT
    return "\n".join([str(error), error.fix, *error.evidence])


def test_good_ones_pass_also_where_one_stands_on_the_other(root: Path) -> None:
    good, errors = load_all(root)
    assert (len(good), errors, wrong_on_wheels(root, good)) == (2, [], [])


@pytest.mark.parametrize(("name", "made"), [("one", ONE), ("two", TWO)])
def test_a_wrong_after_is_named_with_the_right_one(root: Path, name: str, made: bytes) -> None:
    wrong = said(root, name, f"after: {sha256(made)}", f"after: {'a' * 64}")
    assert f"{FOLDER}/{name}/{MANIFEST}:" in wrong
    assert "the diff makes another engine/info.py" in wrong and f"after: {sha256(made)}" in wrong


def test_a_before_that_the_wheel_does_not_have(root: Path) -> None:
    (root / FOLDER / "two" / MANIFEST).unlink()
    wrong = said(root, "one", f"before: {sha256(INFO)}", f"before: {'a' * 64}")
    assert "engine/info.py of engine-1.0-py3-none-any.whl is another file" in wrong
    assert f"before: {sha256(INFO)}" in wrong


def test_without_a_wheel_nothing_is_said_and_the_list_ends_with_2_where_there_is_one(root: Path) -> None:
    said(root, "two", f"after: {sha256(TWO)}", f"after: {'a' * 64}")
    (root / "inventories").mkdir()
    assert CliRunner().invoke(whole(), ["--fleet", str(root), "patch", "list"]).exit_code == Exit.INPUT
    next((root / WHEELHOUSE).glob("*.whl")).unlink()
    assert wrong_on_wheels(root, load_all(root)[0]) == []
    assert CliRunner().invoke(whole(), ["--fleet", str(root), "patch", "list"]).exit_code == Exit.OK
