"""The brief's hosts as doctor sees them: every fault of the day named in one run, the reference host without any."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.lab import gpus, hardware
from fleetctl.lab.paths import HostPaths
from tests import warm
from tests.conftest import Lab
from tests.standins.hosts import REFERENCE, TRAINING, install
from tests.standins.native import library
from tests.standins.stack import reference, training

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[2]
DRIVER = "usr/lib/x86_64-linux-gnu/libcuda.so.1"
MODEL, DRAFTER = "/dev/shm/Qwen3.6-27B", "/root/models/drafter"
SKELETON = "/root/venv_sglang"
HYBRID = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "num_hidden_layers": 64,
    "full_attention_interval": 4,
    "max_position_embeddings": 262144,
}
DFLASH = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "num_hidden_layers": 5,
    "num_target_layers": 64,
    "block_size": 16,
    "dflash_config": {"mask_token_id": 1, "target_layer_ids": [1, 16, 31, 46, 61]},
    "max_position_embeddings": 262144,
}
HEADER = b"\x02\0\0\0\0\0\0\0{}"


class Fleet:
    """Both hosts with their environments, models and one hybrid service each; ct200's as it was before the cure."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        shutil.copytree(ROOT / "templates", folder / "templates")
        (folder / "inventories").mkdir()
        fixed = {"disable-radix-cache": True, "attention-backend": "triton", "max-running-requests": 8}
        self.host("ct129", {"ml": REFERENCE}, "ml", fixed)
        self.host("ct200", {"training": TRAINING, "skeleton": SKELETON}, "training", {})

    def host(self, name: str, environments: dict[str, str], used: str, args: dict[str, Any]) -> None:
        """Write a host's inventory file."""
        service = {"slot": "native", "engine": "sglang", "mode": "linear", "model": "m", "drafter": "d"}
        host = {
            "host": name,
            "ssh": {
                "hostname": self.lab.address(name),
                "user": "root",
                "identity_file": str(self.lab.identity),
                "known_hosts": str(self.lab.known_hosts),
            },
            "gpus": {"count": 8},
            "slots": {"native": {"gpus": [0], "port": 31990}},
            "environments": {key: {"path": path} for key, path in environments.items()},
            "models": {"m": {"path": MODEL}, "d": {"path": DRAFTER}},
            "services": {"dflash": {**service, "environment": used, "args": args}},
        }
        (self.folder / f"inventories/{name}.yaml").write_text(yaml.safe_dump(host))

    def run(self, *words: str, expect: int = 0) -> str:
        """Run ``fleetctl``; its stdout, after checking its exit code."""
        env = {**os.environ, "FLEETCTL_FLEET": str(self.folder), "FLEETCTL_INVENTORY": "inventories"}
        done = warm.run(words, env, 280)
        said = f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == expect, said
        assert "Traceback" not in said
        return done.stdout


def put_models(lab: Lab, name: str) -> None:
    """A hybrid model and its drafter: configurations, and weights that hold nothing."""
    for path, config in ((MODEL, HYBRID), (DRAFTER, DFLASH)):
        packed = lab.state(name) / "config.json"
        packed.write_text(json.dumps(config))
        (lab.state(name) / "model.safetensors").write_bytes(HEADER)
        lab.run(
            name,
            f"mkdir -p {path} && mv /var/lib/fleetctl/config.json /var/lib/fleetctl/*.safetensors {path}",
        )


@pytest.fixture(scope="module")
def fleet(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The day of the brief: a half-patched training venv, a skeleton, an old toolkit; a GPU that died on ct129."""
    folder = tmp_path_factory.mktemp("fleet")
    install(lab, "ct129", REFERENCE, reference(), folder / "wheels")
    install(lab, "ct200", TRAINING, training(), folder / "wheels")
    lab.run(
        "ct200", f"cd {TRAINING}/lib/python3.*/site-packages/sglang && mkdir sglang && cp -r *.py srt sglang"
    )
    lab.run("ct200", f"mkdir -p {SKELETON}/bin && ln -s /usr/bin/python3.99 {SKELETON}/bin/python3")
    for name in ("ct129", "ct200"):
        put_models(lab, name)
        (HostPaths(name).root / DRIVER).write_bytes(library("libcuda.so.1", []))
        lab.run(name, "/sbin/ldconfig")
    hardware.toolkit("ct200")
    hardware.toolkit("ct129", "13.0", "13.0.88")
    yield Fleet(lab, folder)
    for name in ("ct129", "ct200"):
        (HostPaths(name).root / DRIVER).unlink()
        lab.run(name, f"/sbin/ldconfig; rm -rf {REFERENCE} {TRAINING} {SKELETON} {MODEL} /root/models")
        hardware.forget(name)


def test_every_fault_of_the_day_is_named_in_one_run(fleet: Fleet) -> None:
    gpus.lose("ct129", 1, "GPU is lost")
    try:
        document = json.loads(fleet.run("doctor", "--json", expect=5))
    finally:
        gpus.reset("ct129")
    assert document["schema"] == 1
    hosts = {host["host"]: host for host in document["hosts"]}
    errors = {
        name: {one["rule"] for one in host["findings"] if one["severity"] == "error"}
        for name, host in hosts.items()
    }
    assert errors["ct129"] == {"gpu-lost"}, "its environment is the one that is known to work"
    assert errors["ct200"] >= {
        "abi-cuda-major",
        "pkg-environment-unreadable",
        "arch-flashinfer-sm12x",
        "cfg-hybrid-radix",
        "pkg-nested-copy",
        "pkg-soundfile",
        "pkg-structural-tag",
    }, json.dumps(hosts["ct200"]["findings"], indent=1)


def test_the_screen_shows_the_worst_first_and_the_markdown_names_nobody(fleet: Fleet) -> None:
    lines = fleet.run("doctor", "ct200", expect=5).splitlines()
    assert lines[0].startswith("ct200  8 × ")
    assert "checks passed" in lines[1]
    heads = [line.split(":")[0] for line in lines if line.startswith(("error: ", "warning: ", "note: "))]
    assert heads == sorted(heads, key=["error", "warning", "note"].index)
    assert len(lines) < 80, "one screen"
    said = fleet.run("doctor", "ct200", "--markdown", expect=5)
    assert "libcudart.so.13" in said
    for secret in ("ct200", fleet.lab.address("ct200"), "/root/", str(fleet.lab.identity)):
        assert secret not in said


def test_recorded_facts_say_the_same_as_the_host(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    fleet.run("facts", "ct200", "--json", "-o", str(path))
    here = json.loads(fleet.run("doctor", "ct200", "--json", expect=5))["hosts"][0]["findings"]
    there = json.loads(fleet.run("doctor", "ct200", "--facts", str(path), "--json", expect=5))["hosts"][0][
        "findings"
    ]
    used = [one for one in here if SKELETON not in json.dumps(one)]
    assert {one["rule"] for one in there} >= {one["rule"] for one in used if one["severity"] == "error"}
    alone = json.loads(fleet.run("doctor", "--facts", str(path), "--json", expect=5))["hosts"][0]
    assert TRAINING in alone["examined"]


def test_an_environment_alone_and_a_service_in_another_environment(fleet: Fleet) -> None:
    assert "pkg-nested-copy" in fleet.run("doctor", "ct200", "--env", TRAINING, expect=5)
    assert "cfg-hybrid-radix" not in fleet.run("doctor", "--env", f"ct200:{TRAINING}", expect=5)
    said = fleet.run("doctor", "ct200", "--service", "dflash", "--env", "skeleton", expect=5)
    assert "pkg-environment-unreadable" in said
    assert "pkg-nested-copy" not in said
    fleet.run("doctor", "ct129", "--service", "dflash")


def test_a_log_is_checked_by_the_host_it_is_from(fleet: Fleet, tmp_path: Path) -> None:
    log = tmp_path / "journal.txt"
    log.write_text("ModuleNotFoundError: No module named 'soundfile'\n")
    said = fleet.run("doctor", "ct200", "--service", "dflash", "--log", str(log), expect=5)
    assert "pkg-soundfile" in said.splitlines()[2]


def test_a_host_that_is_away_leaves_the_others_result(fleet: Fleet) -> None:
    path = fleet.folder / "inventories/ct129.yaml"
    good = path.read_text()
    path.write_text(
        good.replace(fleet.lab.address("ct129"), "198.18.0.99").replace("ssh:", "ssh:\n  connect_timeout: 2")
    )
    try:
        document = json.loads(fleet.run("doctor", "--json", expect=8))
        assert [bool(host.get("error")) for host in document["hosts"]] == [True, False]
        fleet.run("doctor", "ct129", expect=3)
    finally:
        path.write_text(good)
