"""A patch set made from a changed tree gives exactly that tree, and taken out again exactly the base."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetctl
from fleetctl.errors import Exit, FleetError
from fleetctl.patches.create import create
from fleetctl.patches.patchset import FOLDER, MANIFEST, load
from fleetctl.patches.plan import unmade
from fleetctl.patches.trees import Read, Wheel
from tests.patches.trees import ENGINE, carry_out, code, edit, installed, patch_set, planned, wheel, write

PATHS = st.sampled_from(
    ["engine/__init__.py", "engine/a.py", "engine/sub/b.py", "engine/data.txt", "engine/é.py"]
)
LINE = st.sampled_from([b"a", b"b", b"", b"x = 1", b"\xff\xfe", b"-- a", b"\x0c", "…".encode()])
TEXT = st.builds(
    lambda lines, end, last: end.join(lines) + (end if last else b""),
    st.lists(LINE, max_size=30),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(PATHS, TEXT, min_size=1), st.dictionaries(PATHS, TEXT, min_size=1))
def test_there_and_back(base: dict[str, bytes], changes: dict[str, bytes]) -> None:
    changed = {**base, **changes}
    if changed == base:
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        tree = patch_set(root, "tree", changed, base)
        packages = installed(root / "env", wheel(root, base))
        assert code(packages) == base
        carry_out(packages, planned(root / "env", tree))
        assert code(packages) == changed
        carry_out(packages, [unmade(tree, code(packages))])
        assert code(packages) == base


def test_it_is_refused_until_its_whys_are_written(tmp_path: Path) -> None:
    base = Wheel(wheel(tmp_path))
    changed = installed(tmp_path / "env", wheel(tmp_path))
    write(changed, {"engine/info.py": b"NAMES = []\n", "engine/tree.py": b"TREE = 1\n"})
    write(changed, {"engine/__pycache__/tree.cpython-311.pyc": b"\0"})
    folder = create(tmp_path, "tree", "Engine", base, Read("env", str(tmp_path / "env")))
    data = yaml.safe_load((folder / MANIFEST).read_text())
    assert [entry["path"] for entry in data["files"]] == ["engine/tree.py"]
    assert [entry["path"] for entry in data["hunks"]] == ["engine/info.py"]
    with pytest.raises(FleetError, match="2 errors in the patch set tree") as caught:
        load(tmp_path, "tree")
    assert all("still to be written" in line for line in caught.value.evidence)
    assert edit(tmp_path, "tree").manifest.versions == ["1.0"]
    assert not list((tmp_path / FOLDER).glob(".*"))


def test_hunks_are_as_small_as_diff_makes_them(tmp_path: Path) -> None:
    chosen = random.Random(1)
    lines = [f"line {chosen.randrange(40)}\n" for _ in range(4000)]  # to difflib each of them is junk
    changed = [*lines[:1000], "new\n", *lines[1000:2000], *lines[2001:]]
    base, after = "".join(lines).encode(), "".join(changed).encode()
    patch_set(tmp_path, "tree", {"engine/big.py": after}, {**ENGINE, "engine/big.py": base})
    ours = (tmp_path / FOLDER / "tree" / "hunks" / "engine/big.py.diff").read_text().splitlines()
    write(tmp_path, {"a": base, "b": after})
    theirs = subprocess.run(
        ["diff", "-u", "a", "b"], cwd=tmp_path, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    assert len(ours) == len(theirs) == 18


def refused(tmp_path: Path, changed: Path, distribution: str = "engine") -> FleetError:
    with pytest.raises(FleetError) as caught:
        create(tmp_path, "tree", distribution, Wheel(wheel(tmp_path)), Read(str(changed), str(changed)))
    assert not (tmp_path / FOLDER / "tree").exists()
    return caught.value


def test_what_no_patch_set_can_say_is_refused(tmp_path: Path) -> None:
    gone = write(tmp_path / "gone", {path: held for path, held in ENGINE.items() if path != "engine/info.py"})
    error = refused(tmp_path, gone)
    assert (error.exit, error.evidence) == (Exit.PREFLIGHT, ["engine/info.py"])
    binary = write(tmp_path / "binary", {**ENGINE, "engine/info.py": b"\0"})
    assert refused(tmp_path, binary).what == "engine/info.py is binary; patch sets hold source text"
    library = write(tmp_path / "library", {**ENGINE, "engine/_c.so": b"\x7fELF\0"})
    assert refused(tmp_path, library).what == "engine/_c.so is binary; patch sets hold source text"
    same = write(tmp_path / "same", ENGINE)
    assert refused(tmp_path, same).what == "no file of engine differs"
    assert refused(tmp_path, same, "other").what == "no other there"
    newer = installed(tmp_path / "newer", wheel(tmp_path / "two", version="2.0"))
    assert refused(tmp_path, newer).what == f"{newer} has engine 2.0, engine-1.0-py3-none-any.whl has 1.0"
    linked = write(tmp_path / "linked", ENGINE)
    (linked / "engine" / "out.py").symlink_to("/etc/hostname")
    error = refused(tmp_path, linked)
    assert error.evidence == ["engine/out.py: a link that leads out of the environment"]


def test_it_never_writes_over_another(tmp_path: Path) -> None:
    patch_set(tmp_path, "tree", {"engine/info.py": b"1\n"})
    changed = write(tmp_path / "changed", {**ENGINE, "engine/info.py": b"2\n"})
    for name, said in (("tree", "the patch set tree exists"), ("../x", "not a patch set's name")):
        with pytest.raises(FleetError, match=said):
            create(tmp_path, name, "engine", Wheel(wheel(tmp_path)), Read("changed", str(changed)))


def test_a_folder_that_cannot_be_written_is_said_before_trees_are_read(tmp_path: Path) -> None:
    (tmp_path / "runtime_patches").write_text("a file is in the folder's place")
    nothing = Read("nowhere", str(tmp_path / "nowhere"))
    with pytest.raises(FleetError, match="the patch set cannot be written") as caught:
        create(tmp_path, "new", "engine", nothing, nothing)
    assert caught.value.exit == Exit.INPUT
    assert str(tmp_path / "runtime_patches") in (caught.value.where or "")


def test_a_new_file_that_is_fleetctls_own_is_named_not_copied(tmp_path: Path) -> None:
    own = (Path(fleetctl.__file__).parent / "ddtree" / "tree.py").read_bytes()
    tree = patch_set(tmp_path, "tree", {"engine/tree.py": own})
    assert tree.manifest.files[0].own == "fleetctl/ddtree/tree.py"
    assert tree.changes[0].content == own
    assert not (tmp_path / FOLDER / "tree" / "files").exists()


def test_a_wheel_that_is_none(tmp_path: Path) -> None:
    path = wheel(tmp_path)
    with pytest.raises(FleetError, match="not a wheel's name"):
        Wheel(Path(shutil.copy(path, tmp_path / "engine.whl")))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(FleetError, match="cannot be read"):
        Wheel(path)


def test_a_wheel_and_its_installation_are_one_tree(tmp_path: Path) -> None:
    path = wheel(tmp_path, {**ENGINE, "engine-1.0.data/purelib/engine/more.py": b"M = 1\n"})
    packages = installed(tmp_path / "env", wheel(tmp_path / "flat", {**ENGINE, "engine/more.py": b"M = 1\n"}))
    first, second = Wheel(path), Read("env", str(packages))
    assert first.distributions(["engine", "other"]) == second.distributions(["engine", "other"])
    assert first.files(["engine"]) == second.files(["engine"])
    some = ["engine/more.py", "engine/none.py"]
    assert first.contents(some) == second.contents(some)
    assert first.digests(some) == second.digests(some)
