"""The brief's faults 8 and 9 on a host: doctor stops the deploy, ``--fix`` starts what they stopped, and goes again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.lab import hardware
from fleetctl.lab.paths import HostPaths
from tests import warm
from tests.conftest import Lab
from tests.standins.hosts import install
from tests.standins.native import library
from tests.standins.stack import Distribution, reference

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[2]
PORT = 32980
OLD, GOOD = "/root/venv_old", "/root/venv_good"
DRIVER = "usr/lib/x86_64-linux-gnu/libcuda.so.1"
UNIT = "standin-remedied.service"


def old_xgrammar() -> list[Distribution]:
    """The reference stack, in which xgrammar stayed as old as the brief's."""
    files = {"xgrammar/__init__.py": b""}
    return [
        replace(one, version="0.1.10", files=files) if one.name == "xgrammar" else one for one in reference()
    ]


class Fleet:
    """One service on ct200's GPU 6, in an environment of stand-ins, with a toolkit of CUDA 12.8."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        shutil.copytree(ROOT / "templates", folder / "templates")
        (folder / "inventories").mkdir()
        self.write()

    def write(self, environment: str = OLD, **service: Any) -> None:
        """The inventory, with a service changed."""
        made = {"slot": "fixed", "engine": "sglang", "mode": "autoregressive", "model": "m", "unit": UNIT}
        host = {
            "host": "ct200",
            "ssh": {
                "hostname": self.lab.address("ct200"),
                "user": "root",
                "identity_file": str(self.lab.identity),
                "known_hosts": str(self.lab.known_hosts),
            },
            "gpus": {"count": 8},
            "slots": {"fixed": {"gpus": [6], "port": PORT}},
            "environments": {"standin": {"path": environment}},
            "models": {"m": {"path": "/etc/hostname"}},
            "services": {"plain": {**made, "environment": "standin", **service}},
        }
        (self.folder / "inventories/ct200.yaml").write_text(yaml.safe_dump(host))

    def run(self, *words: str, expect: int = 0) -> str:
        """Run ``fleetctl`` here; all that it says, after checking its exit code."""
        env = {**os.environ, "FLEETCTL_FLEET": str(self.folder), "FLEETCTL_INVENTORY": "inventories"}
        done = warm.run(words, env, 280)
        said = done.stdout + done.stderr
        assert done.returncode == expect, f"{' '.join(words)}: exit {done.returncode}\n{said}"
        assert "Traceback" not in said
        return said

    def unit(self) -> str:
        """The unit's text on the host; empty where there is none."""
        return self.lab.run("ct200", f"cat /etc/systemd/system/{UNIT}", check=False).stdout


@pytest.fixture(scope="module")
def fleet(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """An environment with an old xgrammar and one without fault, beside an old toolkit."""
    folder = tmp_path_factory.mktemp("fleet")
    install(lab, "ct200", OLD, old_xgrammar(), folder / "old")
    install(lab, "ct200", GOOD, reference(), folder / "good")
    hardware.toolkit("ct200")
    driver = HostPaths("ct200").root / DRIVER
    driver.write_bytes(library("libcuda.so.1", []))
    lab.run("ct200", "/sbin/ldconfig")
    yield Fleet(lab, folder)
    driver.unlink()
    lab.run("ct200", "/sbin/ldconfig")
    hardware.forget("ct200")
    lab.run("ct200", f"systemctl disable --now {UNIT}", check=False)
    lab.run("ct200", f"rm -rf {OLD} {GOOD} /etc/systemd/system/{UNIT} /var/lib/fleetctl/slots/fixed.json")
    lab.run("ct200", "systemctl daemon-reload")


def test_the_server_dies_of_both_faults_where_nobody_asks_doctor(fleet: Fleet) -> None:
    launch = f"{OLD}/bin/python -m sglang.launch_server --port {PORT} --served-model-name m"
    said = fleet.lab.run("ct200", f"CUDA_VISIBLE_DEVICES=6 {launch}", check=False)
    assert "StructuralTag" in said.stderr
    said = fleet.lab.run("ct200", f"CUDA_VISIBLE_DEVICES=6 {launch} --grammar-backend none", check=False)
    assert "sm75" in said.stderr


def test_doctor_refuses_and_names_the_way(fleet: Fleet) -> None:
    fleet.write()
    planned = fleet.run("deploy", "ct200", "--service", "plain", "--plan", expect=5)
    assert "--fix adds --grammar-backend none" in planned
    said = fleet.run("deploy", "ct200", "--service", "plain", expect=5)
    for word in (
        "pkg-structural-tag",
        "arch-flashinfer-sm12x",
        "--fix",
        "remedies: auto",
        "nothing was changed",
    ):
        assert word in said, f"{word} in\n{said}"
    assert fleet.unit() == ""


def test_fix_starts_what_the_faults_stopped_and_status_shows_what_is_in_force(fleet: Fleet) -> None:
    fleet.write()
    planned = fleet.run("deploy", "ct200", "--service", "plain", "--fix", "--plan", expect=10)
    assert "add the remedy pkg-structural-tag: --grammar-backend none" in planned
    assert "serves" in fleet.run("deploy", "ct200", "--service", "plain", "--fix")
    text = fleet.unit()
    assert "# remedy pkg-structural-tag: --grammar-backend none" in text
    assert "--attention-backend triton" in text
    assert "remedies in force" in fleet.run("status", "ct200")
    shown = json.loads(fleet.run("status", "ct200", "--json"))["hosts"][0]["slots"][0]
    assert any("pkg-structural-tag" in line for line in shown["remedies"])
    assert "nothing to do" in fleet.run("deploy", "ct200", "--service", "plain")


def test_a_remedy_goes_when_its_cause_is_gone(fleet: Fleet) -> None:
    fleet.write()
    fleet.run("deploy", "ct200", "--service", "plain", "--fix")
    fleet.write(GOOD)
    planned = fleet.run("deploy", "ct200", "--service", "plain", "--plan", expect=10)
    assert "drop the remedy pkg-structural-tag: --grammar-backend none (its cause is gone)" in planned
    assert "serves" in fleet.run("deploy", "ct200", "--service", "plain")
    assert "--grammar-backend" not in fleet.unit()
    assert "arch-flashinfer-sm12x" in fleet.unit()
    hardware.forget("ct200")
    hardware.toolkit("ct200", "13.0", "13.0.88")
    try:
        assert "drop the remedy arch-flashinfer-sm12x" in fleet.run("deploy", "ct200", "--plan", expect=10)
        assert "serves" in fleet.run("deploy", "ct200")
        assert "remedy" not in fleet.unit()
        assert "nothing to do" in fleet.run("deploy", "ct200")
    finally:
        hardware.forget("ct200")
        hardware.toolkit("ct200")


def test_remedies_auto_needs_no_fix_and_the_services_own_words_win(fleet: Fleet) -> None:
    fleet.write(remedies="auto")
    assert "serves" in fleet.run("deploy", "ct200", "--service", "plain")
    assert "--grammar-backend none" in fleet.unit()
    fleet.write(remedies="auto", args={"attention-backend": "flashinfer"})
    said = fleet.run("deploy", "ct200", "--service", "plain", expect=5)
    assert "own --attention-backend flashinfer" in said
    assert "--attention-backend triton" in fleet.unit()
