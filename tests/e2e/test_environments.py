"""The brief's faults 2 to 8 and their cure: what differs is named, the cure derived, patched, verified and served."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fleetctl.patches.hunks import make as make_diff
from tests import warm
from tests.conftest import Lab
from tests.standins.hosts import REFERENCE, TRAINING, install, snapshot
from tests.standins.stack import reference, training

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[2]
PORT = 32990
STACK = ["torch", "torchvision", "triton", "nvidia-*", "sglang-kernel", "sglang", "flashinfer-*", "xgrammar"]
ARGS_BEFORE = "CHOICES = ['EAGLE', 'DFLASH']\n"
ARGS_AFTER = "CHOICES = ['EAGLE', 'DFLASH', 'DDTREE']\n"


class Fleet:
    """A fleet folder with both hosts, whose environments are stand-ins."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        shutil.copytree(ROOT / "templates", folder / "templates")
        (folder / "inventories").mkdir()
        for host in ("ct200", "ct129"):
            self._host(host)
        overlay = {
            "source": {"host": "ct129", "path": REFERENCE},
            "distributions": [*STACK, "soundfile"],
            "remove": ["sglang/sglang"],
        }
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        tag = f"cp{python.replace('.', '')}-torch2.11-cu130"
        serving = {"name": "serving", "python": python, "base": {"path": TRAINING}, "overlays": [overlay]}
        self._spec({**serving, "imports": ["torch", "sgl_kernel", "soundfile"], "abi": tag})
        self._spec(
            {"name": "tree", "python": python, "base": {"spec": "serving"}, "patches": ["ddtree-choice"]}
        )
        self._patch_set()

    def _host(self, name: str) -> None:
        service = {"slot": "gpu", "engine": "sglang", "model": "m", "drafter": "m", "environment": "tree"}
        host = {
            "host": name,
            "ssh": {
                "hostname": self.lab.address(name),
                "user": "root",
                "identity_file": str(self.lab.identity),
                "known_hosts": str(self.lab.known_hosts),
            },
            "gpus": {"count": 8},
            "slots": {"gpu": {"gpus": [], "port": PORT}},
            "environments": {"tree": {"spec": "tree"}},
            "models": {"m": {"path": "/etc/hostname"}},
            "services": {"dflash": {**service, "mode": "linear", "unit": "standin-dflash.service"}},
        }
        (self.folder / f"inventories/{name}.yaml").write_text(yaml.safe_dump(host))

    def _spec(self, spec: dict[str, object]) -> None:
        (self.folder / "envs").mkdir(exist_ok=True)
        (self.folder / f"envs/{spec['name']}.yaml").write_text(yaml.safe_dump(spec))

    def _patch_set(self) -> None:
        made = self.folder / "runtime_patches/ddtree-choice"
        made.mkdir(parents=True)
        path, utils = "sglang/srt/server_args.py", b"BUDGET = 15\n"
        (made / "args.diff").write_bytes(make_diff(ARGS_BEFORE.encode(), ARGS_AFTER.encode(), path))
        (made / "utils.py").write_bytes(utils)
        digests = [hashlib.sha256(text.encode()).hexdigest() for text in (ARGS_BEFORE, ARGS_AFTER)]
        manifest = {
            "name": "ddtree-choice",
            "distribution": "sglang",
            "versions": ["0.5.11"],
            "why": "DDTREE can be asked for",
            "upstream": None,
            "files": [
                {
                    "path": "sglang/srt/speculative/ddtree_utils.py",
                    "source": "utils.py",
                    "sha256": hashlib.sha256(utils).hexdigest(),
                }
            ],
            "hunks": [
                {
                    "path": path,
                    "diff": "args.diff",
                    "before": digests[0],
                    "after": digests[1],
                    "why": "a choice more",
                }
            ],
            "imports": ["sglang.srt.speculative.ddtree_utils"],
            "checks": [
                {
                    "what": "DDTREE is a choice",
                    "python": "from sglang.srt.server_args import CHOICES; assert 'DDTREE' in CHOICES",
                }
            ],
        }
        (made / "manifest.yaml").write_text(yaml.safe_dump(manifest))

    def run(self, *words: str, expect: int = 0, json_only: bool = False) -> str:
        """Run ``fleetctl`` here; its output (``json_only``: without its progress) after checking its exit code."""
        env = {**os.environ, "FLEETCTL_FLEET": str(self.folder), "FLEETCTL_INVENTORY": "inventories"}
        done = warm.run(words, env, 280)
        said = done.stdout + done.stderr
        assert done.returncode == expect, f"{' '.join(words)}: exit {done.returncode}\n{said}"
        assert not any(line.startswith("Traceback") for line in said.splitlines()), said
        return done.stdout if json_only else said


@pytest.fixture(scope="module")
def fleet(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Both environments as the brief found them, the training one with a nested copy of sglang."""
    folder = tmp_path_factory.mktemp("fleet")
    install(lab, "ct129", REFERENCE, reference(), folder / "wheels")
    install(lab, "ct200", TRAINING, training(), folder / "wheels")
    lab.run(
        "ct200", f"cd {TRAINING}/lib/python3.*/site-packages/sglang && mkdir sglang && cp -r *.py srt sglang"
    )
    yield Fleet(lab, folder)
    lab.run("ct200", "systemctl disable --now standin-dflash.service", check=False)
    unit = "/etc/systemd/system/standin-dflash.service"
    made = "/var/lib/fleetctl/envs/{serving,tree,reference,above,half}-* /var/lib/fleetctl/{specs,slots/gpu.json}"
    lab.run("ct200", f"bash -c 'rm -rf {unit} {TRAINING} {made}'; systemctl daemon-reload")
    lab.run("ct129", f"rm -rf {REFERENCE}")


def test_one_diff_names_every_fault(fleet: Fleet) -> None:
    said = fleet.run("env", "diff", f"ct129:{REFERENCE}", f"ct200:{TRAINING}")
    for word in ("sglang 0.5.9", "dflash_worker", "sglang/sglang", "0.6.3", "cu128", "soundfile", "0.1.10"):
        assert word in said, f"{word} in\n{said}"


def test_the_training_environment_cannot_serve_as_it_is(fleet: Fleet) -> None:
    said = fleet.run("env", "verify", f"ct200:{TRAINING}", expect=5)
    assert "CUDA" in said
    assert "sglang/sglang" in said


def test_derived_patched_verified_and_served_while_the_old_one_stays_as_it_was(fleet: Fleet) -> None:
    before = snapshot(fleet.lab, "ct200", TRAINING), snapshot(fleet.lab, "ct129", REFERENCE)
    planned = fleet.run("env", "build", "ct200", "serving", "--plan", expect=10)
    assert f"distributions of ct129:{REFERENCE}" in planned
    assert "verified" in fleet.run("env", "build", "ct200", "serving")
    assert "nothing to do" in fleet.run("env", "build", "ct200", "serving")
    assert "ddtree-choice" in fleet.run("deploy", "ct200", "--service", "dflash", "--plan", expect=10)
    assert "serves" in fleet.run("deploy", "ct200", "--service", "dflash")
    assert "nothing to do" in fleet.run("deploy", "ct200", "--service", "dflash")
    listed = json.loads(fleet.run("env", "list", "ct200", "--json", json_only=True))["hosts"]["ct200"]
    tree = next(one for one in listed if one["name"] == "tree")
    assert tree["slots"] == {"gpu": "current"}
    assert "is what it says it is" in fleet.run("env", "verify", f"ct200:{tree['path']}")
    assert "patched" in fleet.run("patch", "status", f"ct200:{tree['path']}")
    same = fleet.run("env", "diff", f"ct129:{REFERENCE}", f"ct200:{tree['path']}")
    assert "cu128" not in same
    assert before == (snapshot(fleet.lab, "ct200", TRAINING), snapshot(fleet.lab, "ct129", REFERENCE))
    assert not list((fleet.lab.state("ct200") / "incoming").glob("*"))


def test_a_clone_from_another_host_is_the_same_and_a_second_is_there_already(fleet: Fleet) -> None:
    planned = fleet.run("env", "clone", f"ct129:{REFERENCE}", "ct200:reference", "--plan", expect=10)
    assert "sent" in planned
    assert "cloned" in fleet.run("env", "clone", f"ct129:{REFERENCE}", "ct200:reference")
    assert "nothing to do" in fleet.run("env", "clone", f"ct129:{REFERENCE}", "ct200:reference")
    said = fleet.run("env", "diff", f"ct129:{REFERENCE}", "ct200:reference", "--json", json_only=True)
    assert [one for one in json.loads(said)["differences"] if one["group"] != "facts"] == [], said


def test_what_the_specification_cannot_have_is_refused_before_anything_is_touched(fleet: Fleet) -> None:
    path = fleet.folder / "envs/serving.yaml"
    good = path.read_text()
    overlay = yaml.safe_load(good)["overlays"][0]
    for changed, exit_code, word in (
        ({**overlay, "distributions": ["sglang-kernel", "sglang"]}, 5, "reasons against this overlay"),
        ({**overlay, "distributions": ["torhc"]}, 5, "did you mean torch"),
        ({**overlay, "remove": ["sglang/srt"]}, 5, "no sglang/srt to remove"),
        ({**overlay, "source": {"host": "ct130", "path": REFERENCE}}, 2, "no host ct130"),
    ):
        path.write_text(yaml.safe_dump({**yaml.safe_load(good), "overlays": [changed]}))
        said = fleet.run("env", "build", "ct200", "serving", expect=exit_code)
        path.write_text(good)
        assert word in said


def test_what_fails_its_proof_leaves_no_environment(fleet: Fleet) -> None:
    serving = yaml.safe_load((fleet.folder / "envs/serving.yaml").read_text())
    half = {**serving, "name": "half", "patches": ["ddtree-choice"], "imports": ["nowhere"]}
    fleet._spec(half)
    before = fleet.lab.run("ct200", "ls -A /var/lib/fleetctl/envs").stdout
    said = fleet.run("env", "build", "ct200", "half", expect=5)
    assert "nowhere does not load" in said
    fleet._spec({**half, "imports": [], "abi": "cp311-torch9.9"})
    assert "must have cp311-torch9.9" in fleet.run("env", "build", "ct200", "half", expect=5)
    assert fleet.lab.run("ct200", "ls -A /var/lib/fleetctl/envs").stdout == before


def test_nothing_is_made_of_an_environment_that_was_edited_in_place(fleet: Fleet) -> None:
    listed = json.loads(fleet.run("env", "list", "ct200", "--json", json_only=True))["hosts"]["ct200"]
    serving = next(one["path"] for one in listed if one["name"] == "serving")
    fleet._spec(
        {"name": "above", "python": ">=3.9", "base": {"spec": "serving"}, "patches": ["ddtree-choice"]}
    )
    edited = f"{serving}/lib/python3.*/site-packages/soundfile.py"
    fleet.lab.run("ct200", f"cp -p {edited} /var/tmp/kept.py && sed -i 's/read/raed/' {edited}")
    before = fleet.lab.run("ct200", "ls -A /var/lib/fleetctl/envs").stdout
    for words in (
        ("env", "build", "ct200", "above"),
        ("patch", "apply", f"ct200:{serving}", "ddtree-choice", "--as", "above", "--plan"),
        ("patch", "apply", f"ct200:{serving}", "ddtree-choice", "--as", "above"),
    ):
        said = fleet.run(*words, expect=5)
        assert "edited in place" in said and "soundfile.py" in said and "env verify" in said
    assert fleet.lab.run("ct200", "ls -A /var/lib/fleetctl/envs").stdout == before
    fleet.lab.run("ct200", f"mv /var/tmp/kept.py {edited}")
    assert "verified" in fleet.run("env", "build", "ct200", "above")


def test_an_environment_that_was_changed_is_not_put_into_service(fleet: Fleet) -> None:
    listed = json.loads(fleet.run("env", "list", "ct200", "--json", json_only=True))["hosts"]["ct200"]
    tree = next(one["path"] for one in listed if one["name"] == "tree")
    fleet.lab.run("ct200", "systemctl stop standin-dflash.service")
    touched = f"{tree}/lib/python3.*/site-packages/soundfile.py"
    fleet.lab.run("ct200", f"cp {touched} /var/tmp/kept.py && sed -i 's/read/raed/' {touched}")
    said = fleet.run("deploy", "ct200", "--service", "dflash", expect=5)
    assert "soundfile" in said
    fleet.lab.run("ct200", f"mv /var/tmp/kept.py {touched}")
    assert "serves" in fleet.run("deploy", "ct200", "--service", "dflash")
