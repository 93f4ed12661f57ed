"""Patch sets on a real host: made from a changed copy, applied into a clone, proven, looked at, taken out."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.errors import Exit
from tests.conftest import Lab
from tests.patches.trees import edit, wheel

pytestmark = pytest.mark.lab

REPOSITORY = Path(__file__).parents[2]
ENVS = "/var/lib/fleetctl/envs"
BASE = f"{ENVS}/engine-0123456789ab"
INFO = b'NAMES = ["linear", "tree"]\n\n\ndef is_linear(name):\n    return name in NAMES\n'
CHANGED = {"engine/info.py": INFO, "engine/crlf.py": b"A = 1\r\nB = 3\r\n", "engine/tree.py": b"TREE = 1\n"}
CLEAN = f"rm -rf {ENVS}/engine* {ENVS}/other*"
CHECK = "from engine.info import is_linear\nassert is_linear('tree') and is_linear('linear')\n"
MAKE = f"""
set -e
python3 -m venv --without-pip {BASE}
python3 -m zipfile -e {ENVS}/{{wheel}} {BASE}/lib/python3*/site-packages
chmod 755 {BASE}/lib/python3*/site-packages/engine/info.py
python3 -m compileall -q {BASE}/lib/python3*/site-packages
"""


class Controller:
    """A fleet folder without patch sets, and the command line run in it."""

    def __init__(self, root: Path, lab: Lab) -> None:
        self.root = root
        self.lab = lab
        shutil.copytree(REPOSITORY / "inventories" / "lab", root / "inventories")

    def run(self, *words: str, code: int = 0) -> str:
        argv = [sys.executable, "-m", "fleetctl", "--fleet", str(self.root), "patch", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=280)
        said = done.stdout + done.stderr
        assert not any(line.startswith("Traceback") for line in said.splitlines()), said
        assert done.returncode == code, said
        return said

    def last(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code).splitlines()[-1])

    def document(self, *words: str, code: int = 0) -> Any:
        said = self.run(*words, "--json", code=code)
        return json.loads(said[said.index("{\n") :])

    def on(self, command: str) -> str:
        return self.lab.run("ct200", command).stdout.strip()

    def state(self, path: str, name: str) -> Path:
        """A file of the host, as a path here."""
        return self.lab.state("ct200") / Path(path).relative_to("/var/lib/fleetctl") / name

    def runs_in(self, name: str, check: str) -> None:
        """Give the patch set its whys, an import and two checks."""
        checks = [
            {"what": "tree is linear too", "python": check},
            {"what": "runs", "argv": ["python", "-m", "engine.tree"]},
        ]
        edit(self.root, name, imports=["engine.tree"], checks=checks)

    def environments(self) -> list[str]:
        return self.on(f"ls -d {ENVS}/engine*/").replace("/\n", "\n").rstrip("/").split()

    def sums(self, path: str) -> str:
        contents = f"find {path} -type f | sort | xargs -d '\\n' sha256sum | sha256sum"
        return self.on(f"{contents}; ls -lR --time-style=full-iso {path} | sha256sum")


@pytest.fixture(scope="module")
def made(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """A base on ct200, and the patch set ``tree`` made from a copy of it that was changed there by hand."""
    controller = Controller(tmp_path_factory.mktemp("patches") / "fleet", lab)
    controller.on(f"{CLEAN} {BASE}; mkdir -p {ENVS}")
    path = wheel(lab.state("ct200") / "envs")
    controller.on(MAKE.format(wheel=path.name))
    kept = Path(shutil.move(path, controller.root))
    tag = controller.on("python3 -c \"import sys; print('cp%d%d' % sys.version_info[:2])\"")
    marker = {"schema": 1, "name": "engine", "digest": "0123456789ab", "python": {"tag": tag, "version": "3"}}
    marker.update(abi=None, wheels=[], built_at="2026-11-29T00:00:00Z", files=1, bytes=1)
    copy = f"{ENVS}/other"
    controller.on(f"cp -a {BASE} {copy}")
    controller.state(BASE, ".fleetctl-env.json").write_text(json.dumps(marker))
    (packages,) = controller.on(f"echo {copy}/lib/python3*/site-packages").split()
    for name, content in CHANGED.items():
        controller.state(packages, name).write_bytes(content)
    trees = ["--base", str(kept), "--changed", f"ct200:{copy}"]
    controller.run("new", "tree", "--distribution", "engine", *trees)
    assert "still to be written" in controller.run("list", code=Exit.INPUT)
    controller.runs_in("tree", CHECK)
    yield controller
    controller.on(f"{CLEAN} {BASE}")


@pytest.fixture
def controller(made: Controller) -> Iterator[Controller]:
    yield made
    made.on(f"ls -d {ENVS}/*/ | grep -v {BASE} | xargs -r rm -r")


def test_applied_proven_and_reverted(controller: Controller) -> None:
    before = controller.sums(BASE)
    place = f"ct200:{BASE}"
    assert controller.document("status", place)["states"][0]["state"] == "pristine"
    planned = controller.last("apply", place, "tree", "--plan", code=Exit.PLAN_CHANGES)
    assert [entry["path"] for entry in planned["patches"][0]["files"]] == [
        "engine/tree.py",
        "engine/crlf.py",
        "engine/info.py",
    ]
    assert controller.environments() == [BASE]
    made = controller.last("apply", place, "tree")
    assert (made["built"], made["path"]) == (True, planned["path"])
    new = f"ct200:{made['path']}"
    assert "is there, nothing to do" in controller.run("apply", place, "tree")
    assert "has them, nothing to do" in controller.run("apply", new, "tree")
    assert controller.sums(BASE) == before
    held = controller.on(
        f"cd {made['path']}/lib/python3*/site-packages/engine && sha256sum < info.py; stat -c %a info.py tree.py"
    )
    assert held.split() == [hashlib.sha256(INFO).hexdigest(), "-", "755", "644"]
    proof = controller.document("verify", new)
    assert (proof["ok"], proof["patch_sets"], proof["ran"]) == (True, ["tree"], 3)
    assert "no difference" in controller.run("diff", new)
    reverted = controller.last("revert", new)
    assert (reverted["path"], reverted["derived"]) == (BASE, False)
    assert any("fleetctl deploy ct200" in step for step in reverted["steps"])


def test_the_documentation_works_in_its_order(controller: Controller) -> None:
    text = (REPOSITORY / "docs" / "patches.md").read_text().partition("## Using it")[2].split("```")[1]
    lines = [line.partition("#")[0].split()[2:] for line in text.strip().splitlines()]
    assert [words[0] for words in lines] == ["status", "apply", "apply", "verify", "diff", "revert"]
    mine = {"ct200:serving": "ct200:engine", "engine-tree": "tree", "trees": "engine-trees"}
    mine["ct200:trees"] = "ct200:engine-trees"
    for words in lines:
        code = Exit.PLAN_CHANGES if "--plan" in words else Exit.OK
        controller.run(*(mine.get(word, word) for word in words), code=code)


def test_the_parent_is_gone(controller: Controller) -> None:
    made = controller.last("apply", f"ct200:{BASE}", "tree", "--as", "other-tree")
    assert made["path"].startswith(f"{ENVS}/other-tree-")
    code = "cd {0}/lib/python3*/site-packages && find engine -name '*.py' | sort | xargs sha256sum"
    before = controller.on(code.format(BASE))
    controller.on(f"mv {BASE} {BASE}.away")
    new = f"ct200:{made['path']}"
    planned = controller.last("revert", new, "--plan", code=Exit.PLAN_CHANGES)
    assert planned["patches"][0]["files"][0]["after"] is None
    reverted = controller.last("revert", new)
    assert (reverted["path"], reverted["derived"]) == (planned["path"], True)
    assert controller.on(code.format(reverted["path"])) == before
    assert controller.document("status", f"ct200:{reverted['path']}")["states"][0]["state"] == "pristine"
    controller.on(f"mv {BASE}.away {BASE}")


def test_what_was_edited_afterwards_is_found(controller: Controller) -> None:
    made = controller.last("apply", f"ct200:{BASE}", "tree")
    new = f"ct200:{made['path']}"
    controller.on(f"sed -i 's/tree/trea/' {made['path']}/lib/python3*/site-packages/engine/info.py")
    assert "tree is foreign: engine/info.py (foreign)" in controller.run("verify", new, code=Exit.PREFLIGHT)
    said = controller.run("diff", new, "tree")
    assert '-NAMES = ["linear", "trea"]' in said
    assert "from what is there to before" in said and "from what is there to after" in said
    error = controller.last("apply", new, "tree", code=Exit.PREFLIGHT)["error"]
    assert "has other files than tree was made for" in error["what"]


def test_a_check_that_fails_leaves_no_environment(controller: Controller) -> None:
    controller.runs_in("tree", CHECK.replace("is_linear('linear')", "not is_linear('linear')"))
    error = controller.last("apply", f"ct200:{BASE}", "tree", code=Exit.PREFLIGHT)["error"]
    controller.runs_in("tree", CHECK)
    assert error["what"] == "a check of the patch tree failed: tree is linear too (exit status 1)"
    assert "AssertionError" in "\n".join(error["evidence"])
    assert controller.environments() == [BASE]


def test_the_operators_mistakes(controller: Controller) -> None:
    assert "did you mean tree?" in controller.run("apply", f"ct200:{BASE}", "tre", code=Exit.INPUT)
    assert "no environment there" in controller.run("status", "ct200:/nowhere", code=Exit.INPUT)
    assert "no host ct20" in controller.run("status", "ct20:/x", code=Exit.INPUT)
    assert "not an environment's name" in controller.run(
        "apply", f"ct200:{BASE}", "tree", "--as", "../x", code=Exit.INPUT
    )
    assert "no patch set is in it" in controller.run("revert", f"ct200:{BASE}", code=Exit.PREFLIGHT)
    bare = f"{ENVS}/bare"
    controller.on(f"cp -a {BASE} {bare}; rm -r {bare}/lib/python3*/site-packages/engine*")
    for verb in ("diff", "apply"):
        said = controller.run(verb, f"ct200:{bare}", "tree", code=Exit.PREFLIGHT)
        assert "it has no engine, which tree is for" in said
        assert "name an environment that has engine" in said
    controller.on(f"rm -r {bare}")
