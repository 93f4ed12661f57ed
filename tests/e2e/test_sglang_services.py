"""The four services of inventories/ct200.yaml on a host with cards on paper: plan, patch set, unit, preflight, swaps.

The environment is one of stand-ins in which the files that the patch set changes are SGLang's own; its launcher reads
the flags by the patched parser. No GPU is there, so no kernel runs: those are seen on a GPU host (docs/ddtree.md).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.lab import gpus, hardware
from fleetctl.lab.paths import HostPaths
from tests import warm
from tests.conftest import Lab
from tests.doctor.builders import CONFIG, DRAFTER_CONFIG
from tests.patches_sglang.conftest import sglang_wheel  # noqa: F401  a fixture
from tests.standins.hosts import install, snapshot
from tests.standins.native import library
from tests.standins.stack import Distribution, reference

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[2]
SET = "ddtree-sglang-0.5.11"
SPEC = "sglang-0.5.11-ddtree"
BASE = "/root/sglang-0.5.11"
DRIVER = "usr/lib/x86_64-linux-gnu/libcuda.so.1"
SERVICES = ("autoregressive", "dflash", "shadow", "ddtree")
WIDTHS = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "head_dim": 256,
    "hidden_size": 5120,
    "vocab_size": 248320,
}
LAUNCH = """import argparse, itertools, json, sys
import torch, soundfile, sgl_kernel, flashinfer
from xgrammar import StructuralTag
given = dict(itertools.pairwise(sys.argv[1:]))
if given.get("--speculative-algorithm") == "DDTREE":
    from sglang.srt.speculative import ddtree_args
    parser = argparse.ArgumentParser(allow_abbrev=False)
    ddtree_args.add_cli_args(parser)
    found, left = parser.parse_known_args()
    if any("ddtree" in word for word in left):
        parser.error("unrecognized arguments: " + " ".join(left))
    print("drafts trees:", found.speculative_ddtree_mode, found.speculative_ddtree_budget, flush=True)
sys.argv[1:] = [json.dumps({"port": int(given["--port"]), "model": given["--served-model-name"]})]
from sglang import standin
standin.main()
"""


def _sglang(wheel: Path) -> Distribution:
    """The stand-in of SGLang, with the real files that the patch set changes."""
    made = next(one for one in reference() if one.name == "sglang")
    manifest = yaml.safe_load((ROOT / f"runtime_patches/{SET}/manifest.yaml").read_text())
    files = dict(made.files)
    with zipfile.ZipFile(wheel) as packed:
        for hunk in manifest["hunks"]:
            files[hunk["path"]] = packed.read(hunk["path"])
    for name in ("managers", "model_executor"):
        files[f"sglang/srt/{name}/__init__.py"] = b""
    return replace(made, files={**files, "sglang/launch_server.py": LAUNCH.encode()})


class Fleet:
    """The repository's own inventory of ct200, pointed at the lab's host."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        for name in ("templates", "runtime_patches"):
            shutil.copytree(ROOT / name, folder / name)
        (folder / "fleetctl/ddtree").mkdir(parents=True)
        shutil.copy(ROOT / "fleetctl/ddtree/batched.py", folder / "fleetctl/ddtree")
        self._manifest()
        self._spec()
        self.host = self._host()
        self.write()

    def _manifest(self) -> None:
        """The patch set as it is, without what needs the real torch."""
        path = self.folder / f"runtime_patches/{SET}/manifest.yaml"
        manifest = yaml.safe_load(path.read_text())
        manifest["imports"] = ["sglang.srt.speculative.ddtree_args", "sglang.srt.speculative.spec_info"]
        manifest["checks"] = manifest["checks"][:1]
        path.write_text(yaml.safe_dump(manifest, sort_keys=False))

    def _spec(self) -> None:
        """``envs/sglang-0.5.11-ddtree.yaml``, on a base that is there instead of one of 11 GB."""
        spec = yaml.safe_load((ROOT / f"envs/{SPEC}.yaml").read_text())
        assert spec["base"] == {"spec": "sglang-0.5.11-cu130"} and spec["patches"] == [SET]
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        imports = [name for name in spec["imports"] if not name.startswith("sglang.")]
        (self.folder / "envs").mkdir()
        changed = {"python": python, "base": {"path": BASE}, "imports": imports, "abi": "torch2.11-cu130"}
        (self.folder / f"envs/{SPEC}.yaml").write_text(yaml.safe_dump({**spec, **changed}))

    def _host(self) -> dict[str, Any]:
        host: dict[str, Any] = yaml.safe_load((ROOT / "inventories/ct200.yaml").read_text())
        host["ssh"] = {
            "hostname": self.lab.address("ct200"),
            "user": "root",
            "identity_file": str(self.lab.identity),
            "known_hosts": str(self.lab.known_hosts),
        }
        host["slots"] = {"trees": {"gpus": [1], "port": 32970}}
        host["default_slot"] = "trees"
        host["services"] = {name: {**host["services"][name], "slot": "trees"} for name in SERVICES}
        return host

    def write(self, service: str = "", **args: Any) -> None:
        """The inventory, with arguments of a service changed."""
        (self.folder / "inventories").mkdir(exist_ok=True)
        host = json.loads(json.dumps(self.host))
        if service:
            host["services"][service]["args"].update(args)
        (self.folder / "inventories/ct200.yaml").write_text(yaml.safe_dump(host))

    def run(self, *words: str, expect: int = 0) -> str:
        """Run ``fleetctl`` here; all that it says, after checking its exit code."""
        env = {**os.environ, "FLEETCTL_FLEET": str(self.folder), "FLEETCTL_INVENTORY": "inventories"}
        done = warm.run(words, env, 280)
        said = done.stdout + done.stderr
        assert done.returncode == expect, f"{' '.join(words)}: exit {done.returncode}\n{said}"
        assert "Traceback" not in said
        return said

    def unit(self, name: str) -> str:
        """The command that a unit on the host starts; empty where there is none."""
        text = self.lab.run("ct200", f"cat /etc/systemd/system/{name}", check=False).stdout
        return next((line for line in text.splitlines() if line.startswith("ExecStart=")), "")


def _model(lab: Lab, path: str, config: dict[str, Any], gib: int) -> None:
    """A model's folder on the host: its configuration, and weights that are a header and a hole."""
    size = gib << 30
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    script = (
        f"import pathlib; p = pathlib.Path({path!r}); p.mkdir(parents=True, exist_ok=True); "
        f"(p / 'config.json').write_text({json.dumps(config)!r}); "
        f"f = (p / 'model.safetensors').open('wb'); f.write(({len(header)}).to_bytes(8, 'little') + {header!r}); "
        f"f.truncate({8 + len(header) + size})"
    )
    lab.run("ct200", f"/usr/bin/python3 -c {shlex.quote(script)}")


@pytest.fixture(scope="module")
def fleet(lab: Lab, sglang_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:  # noqa: F811
    folder = tmp_path_factory.mktemp("fleet")
    stack = [_sglang(sglang_wheel) if one.name == "sglang" else one for one in reference()]
    install(lab, "ct200", BASE, stack, folder / "wheels")
    hardware.toolkit("ct200")
    driver = HostPaths("ct200").root / DRIVER
    driver.write_bytes(library("libcuda.so.1", []))
    lab.run("ct200", "/sbin/ldconfig")
    made = Fleet(lab, folder)
    models = made.host["models"]
    _model(lab, models["qwen3.6-27b"]["path"], {**CONFIG, **WIDTHS}, 54)
    drafter = {**DRAFTER_CONFIG, "hidden_size": 5120, "vocab_size": 248320, "num_target_layers": 64}
    _model(lab, models["qwen3.6-27b-dflash"]["path"], drafter, 3)
    yield made
    driver.unlink()
    lab.run("ct200", "/sbin/ldconfig")
    hardware.forget("ct200")
    units = " ".join(service["unit"] for service in made.host["services"].values())
    lab.run("ct200", f"systemctl disable --now {units}", check=False)
    gone = f"{BASE} /var/lib/fleetctl/envs/{SPEC}-* /var/lib/fleetctl/specs/{SPEC}-* /dev/shm/Qwen3.6-27B*"
    files = " ".join(f"/etc/systemd/system/{unit}" for unit in units.split())
    lab.run("ct200", f"bash -c 'rm -rf {gone} {files} /var/lib/fleetctl/slots/trees.json'")
    lab.run("ct200", "systemctl daemon-reload")


def test_the_plan_says_what_would_be_made_and_started_and_touches_nothing(fleet: Fleet) -> None:
    before = snapshot(fleet.lab, "ct200", BASE)
    said = fleet.run("deploy", "ct200", "--service", "ddtree", "--plan", expect=10)
    assert f"patch it with {SET} as /var/lib/fleetctl/envs/{SPEC}-" in said
    for words in (
        "--speculative-algorithm DDTREE",
        "--speculative-ddtree-budget 15",
        "--max-running-requests 6",
    ):
        assert words in said, said
    assert fleet.unit("sglang-ddtree-tree.service") == ""
    assert snapshot(fleet.lab, "ct200", BASE) == before


def test_the_four_modes_are_deployed_and_swapped_in_one_patched_environment(fleet: Fleet) -> None:
    before = snapshot(fleet.lab, "ct200", BASE)
    assert "serves" in fleet.run("deploy", "ct200", "--service", "ddtree")
    assert "nothing to do" in fleet.run("deploy", "ct200", "--service", "ddtree")
    assert "drafts trees: tree 15" in fleet.run("logs", "ct200", "ddtree", "-n", "40")
    for leaves, comes in (("ddtree", "shadow"), ("shadow", "dflash"), ("dflash", "autoregressive")):
        fleet.run("swap", leaves, comes)
    units = [service["unit"] for service in fleet.host["services"].values()]
    commands = {name: fleet.unit(unit) for name, unit in zip(SERVICES, units, strict=True)}
    assert len({command.split("/bin/python")[0] for command in commands.values()}) == 1
    assert f"/envs/{SPEC}-" in commands["shadow"]
    assert "--speculative-ddtree-mode shadow" in commands["shadow"]
    assert "--speculative-algorithm DFLASH" in commands["dflash"]
    assert "--speculative" not in commands["autoregressive"]
    assert snapshot(fleet.lab, "ct200", BASE) == before
    environment = commands["ddtree"].removeprefix("ExecStart=").split("/bin/python")[0]
    assert "patched" in fleet.run("patch", "status", f"ct200:{environment}")


def test_patch_apply_makes_a_patched_environment_of_one_as_published(fleet: Fleet) -> None:
    before = snapshot(fleet.lab, "ct200", BASE)
    assert "pristine" in fleet.run("patch", "status", f"ct200:{BASE}")
    fleet.run("patch", "apply", f"ct200:{BASE}", SET, "--as", "by-hand")
    listed = json.loads(fleet.run("env", "list", "ct200", "--json"))["hosts"]["ct200"]
    made = next(one["path"] for one in listed if one["name"] == "by-hand")
    assert fleet.run("patch", "status", f"ct200:{made}").split()[-1] == "patched"
    parser = "import sglang.srt.speculative.ddtree_args as args; print(args.MODES)"
    assert "tree" in fleet.lab.run("ct200", f"{made}/bin/python -c {shlex.quote(parser)}").stdout
    assert snapshot(fleet.lab, "ct200", BASE) == before


def test_what_the_27b_cannot_hold_is_refused_before_anything_is_stopped(fleet: Fleet) -> None:
    fleet.write("ddtree", **{"max-running-requests": 48})
    said = fleet.run("deploy", "ct200", "--service", "ddtree", "--plan", expect=5)
    assert "recurrent states of 48 requests take 117.1 GiB" in said and "--max-running-requests 7" in said
    fleet.write("ddtree", **{"attention-backend": "flashinfer"})
    assert "need the triton" in fleet.run("deploy", "ct200", "--service", "ddtree", "--plan", expect=5)
    fleet.write("ddtree", **{"page-size": 16})
    assert "DDTree needs --page-size 1" in fleet.run(
        "deploy", "ct200", "--service", "ddtree", "--plan", expect=5
    )
    fleet.write()


def test_preflight_sees_a_stranger_on_the_card(fleet: Fleet) -> None:
    fleet.lab.run("ct200", "systemctl stop sglang-autoregressive.service")
    gpus.occupy("ct200", 1, 60000, pid=1, name="someone")
    try:
        said = fleet.run("deploy", "ct200", "--service", "ddtree", expect=5)
        assert "GPU 1" in said
    finally:
        gpus.release("ct200", 1)


def test_an_unpatched_environment_is_refused_with_the_way_to_the_patch_set(fleet: Fleet) -> None:
    kept = fleet.host["environments"]["sglang"]
    fleet.host["environments"]["sglang"] = {"path": BASE}
    fleet.write()
    try:
        said = fleet.run("deploy", "ct200", "--service", "ddtree", "--plan", expect=5)
        assert "without their patch set" in said and "patch apply" in said and SPEC in said
    finally:
        fleet.host["environments"]["sglang"] = kept
        fleet.write()
