"""Manifests: what is wrong with them, on which line, and what to write instead."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import fleetctl
from fleetctl.errors import Exit, FleetError
from fleetctl.patches.patchset import FOLDER, MANIFEST, load, load_all
from tests.patches.trees import write

NEW = b"TREE = 1\n"
SHA = hashlib.sha256(NEW).hexdigest()
DIFF = b"--- a/engine/info.py\n+++ b/engine/info.py\n@@ -1 +1 @@\n-a\n+b\n"
GOOD = f"""name: tree
distribution: Engine
versions: ["1.0", 1.0.1]
why: trees
upstream: null
files:
  - path: engine/tree.py
    source: files/tree.py
    sha256: {SHA}
hunks:
  - path: engine/info.py
    diff: hunks/info.diff
    before: {"a" * 64}
    after: {"b" * 64}
    why: names
imports: [engine.tree]
checks:
  - what: it loads
    python: import engine.tree
  - what: it answers
    argv: [python, -m, engine.tree]
"""


def folder(root: Path, text: str, name: str = "tree") -> Path:
    files = {
        MANIFEST: text.encode(),
        "files/tree.py": NEW,
        "files/binary.py": b"\0\1",
        "hunks/info.diff": DIFF,
    }
    write(root / FOLDER / name, {**files, "hunks/none.diff": b"nothing\n"})
    return root


def refused(root: Path, old: str, new: str) -> FleetError:
    assert old in GOOD
    with pytest.raises(FleetError) as caught:
        load(folder(root, GOOD.replace(old, new)), "tree")
    assert caught.value.exit == Exit.INPUT
    return caught.value


def test_a_good_one(tmp_path: Path) -> None:
    patch_set = load(folder(tmp_path, GOOD), "tree")
    assert (patch_set.name, patch_set.distribution) == ("tree", "engine")
    assert [(change.path, change.before is None) for change in patch_set.changes] == [
        ("engine/tree.py", True),
        ("engine/info.py", False),
    ]
    assert patch_set.where("hunks", 0, "after") == "runtime_patches/tree/manifest.yaml:14"
    assert patch_set.manifest.checks[0].command() == ["python", "-I", "-B", "-c", "import engine.tree"]


def test_its_digest_is_of_what_it_writes_not_of_its_words(tmp_path: Path) -> None:
    one = load(folder(tmp_path / "1", GOOD), "tree").digest
    assert load(folder(tmp_path / "2", GOOD.replace("why: names", "why: other words")), "tree").digest == one
    assert load(folder(tmp_path / "3", GOOD.replace("b" * 64, "c" * 64)), "tree").digest != one


@pytest.mark.parametrize(
    ("old", "new", "line", "what", "fix"),
    [
        ("versions:", "version:", 3, "unknown key version", "did you mean versions?"),
        ("    why: names", "    whi: names", 15, "unknown key hunks[0].whi", "did you mean why?"),
        ("    source: f", "    form: f", 8, "unknown key files[0].form", "did you mean from?"),
        ("checks:\n", "environment: {A: b}\nchecks:\n", 17, "unknown key environment", "keys:"),
        ("path: engine/info.py", "path: ../engine/info.py", 11, "leads elsewhere", ""),
        ("path: engine/info.py", "path: /engine/info.py", 11, "relative to site-packages", ""),
        ("path: engine/info.py", "path: engine/../../x.py", 11, "leads elsewhere", ""),
        ("path: engine/info.py", "path: engine//x.py", 11, "leads elsewhere", ""),
        ("path: engine/info.py", "path: engine-1.0.dist-info/RECORD", 11, "no file of the distribution", ""),
        ("path: engine/info.py", "path: x.pth", 11, "no file of the distribution", ""),
        ("path: engine/info.py", "path: engine/tree.py", 11, "engine/tree.py stands twice", "keep one"),
        ("diff: hunks/info.diff", "diff: ../info.diff", 12, "leads elsewhere", ""),
        ("diff: hunks/info.diff", "diff: hunks/inf.diff", 12, "cannot be read", "correct the name"),
        ("diff: hunks/info.diff", "diff: hunks/none.diff", 12, "a diff of 0 files", "patch new"),
        (f"    after: {'b' * 64}\n", "", 11, "hunks[0] has no after", "add after:"),
        ("b" * 64, "b" * 63, 14, "is no sha256", ""),
        ("b" * 64, "a" * 64, 14, "before and after are the same", "take the hunk out"),
        (SHA, "c" * 64, 9, "files/tree.py is another file than the digest says", f"sha256: {SHA}"),
        ("source: files/tree.py", "from: fleetctl/../x.py", 8, "no source of fleetctl", ""),
        ("source: files/tree.py", "from: fleetctl/x.py", 8, "fleetctl/x.py cannot be read", ""),
        ("    source: files/tree.py\n", "", 7, "exactly one of source and from", ""),
        ("why: trees", "why: TODO later", 4, "why is still to be written", ""),
        ("why: names", "why: 'todo: say why'", 15, "hunks[0].why is still to be written", ""),
        ("upstream: null\n", "", 1, "the key upstream is missing", "add upstream:"),
        ("1.0.1", '">=1.0"', 3, "is no exact version", ""),
        ('["1.0", 1.0.1]', "[]", 3, "versions is an empty list", ""),
        ('["1.0", 1.0.1]', "[1.0]", 3, "versions[0] is 1.0, not text", 'quote it: "1.0"'),
        ("Engine", "'a b'", 2, "is no distribution's name", ""),
        ("name: tree", "name: three", 1, "the folder is tree, the name three", "make them one"),
        ("[engine.tree]", "['engine tree']", 16, "imports[0] cannot be", ""),
        ("    python: import engine.tree\n", "", 18, "exactly one of python and argv", ""),
        ("[python, -m", "[sh, -c", 20, "must begin with python", ""),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, what: str, fix: str
) -> None:
    error = refused(tmp_path, old, new)
    said = "\n".join([error.where, error.what, error.fix, *error.evidence])
    assert error.where == f"runtime_patches/tree/manifest.yaml:{line}", said
    assert what in said and fix in said, said


def test_all_errors_are_one_error(tmp_path: Path) -> None:
    error = refused(tmp_path, "why: trees\nupstream: null", "why: TODO\nupstraem: null")
    assert error.what == "2 errors in the patch set tree"
    assert [line.split(": ")[0] for line in error.evidence] == [
        "runtime_patches/tree/manifest.yaml:4",
        "runtime_patches/tree/manifest.yaml:5",
    ]


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    sha = hashlib.sha256(b"\0\1").hexdigest()
    error = refused(tmp_path, f"tree.py\n    sha256: {SHA}", f"binary.py\n    sha256: {sha}")
    assert error.what == "files/binary.py is binary; patch sets hold source text"


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder(tmp_path, GOOD)
    source = tmp_path / FOLDER / "tree" / "files" / "tree.py"
    source.rename(tmp_path / "tree.py")
    source.symlink_to(tmp_path / "tree.py")
    with pytest.raises(FleetError, match="is a link out of tree"):
        load(tmp_path, "tree")


def test_a_file_of_fleetctl_is_kept_once(tmp_path: Path) -> None:
    own = (Path(fleetctl.__file__).parent / "ddtree" / "tree.py").read_bytes()
    text = GOOD.replace("source: files/tree.py", "from: fleetctl/ddtree/tree.py")
    patch_set = load(folder(tmp_path, text.replace(SHA, hashlib.sha256(own).hexdigest())), "tree")
    assert patch_set.changes[0].content == own


def test_a_broken_one_does_not_hide_the_others(tmp_path: Path) -> None:
    folder(tmp_path, GOOD)
    folder(tmp_path, "name: [", "broken")
    good, errors = load_all(tmp_path)
    assert [entry.name for entry in good] == ["tree"]
    assert ["not YAML" in error.what for error in errors] == [True]
    with pytest.raises(FleetError, match="no patch set tre") as caught:
        load(tmp_path, "tre")
    assert "did you mean tree?" in caught.value.fix
