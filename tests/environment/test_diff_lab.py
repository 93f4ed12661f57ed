"""``env diff`` and ``env overlay`` between the lab's hosts: a reference environment and a half-patched training one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from fleetctl.cli.env_diff import diff
from fleetctl.cli.env_overlay import overlay
from fleetctl.errors import Exit, FleetError
from fleetctl.transport.agent import open_agent
from tests.conftest import LAB_INVENTORY, Lab
from tests.environment.boms import Bom, reference, training
from tests.environment.standins import write_environment

pytestmark = pytest.mark.lab
FOLDER = "/var/lib/fleetctl/stand-ins"
REFERENCE, TRAINING = f"ct129:{FOLDER}/ml-env", f"ct200:{FOLDER}/venv"
SAME_HOST = f"ct200:{FOLDER}/ml-env"
Fleetctl = Callable[..., Result]


@pytest.fixture(scope="module")
def environments(lab: Lab) -> Iterator[None]:
    """The reference environment on both hosts, the training one on ct200."""
    for host, name, bom in (
        ("ct129", "ml-env", reference()),
        ("ct200", "ml-env", reference()),
        ("ct200", "venv", training()),
    ):
        make(lab, host, name, bom)
    yield
    for host in ("ct129", "ct200"):
        shutil.rmtree(lab.state(host) / "stand-ins", ignore_errors=True)
        for made in (lab.state(host) / "envs").glob("stood-in-*"):
            shutil.rmtree(made)


def make(lab: Lab, host: str, name: str, bom: Bom) -> None:
    lab.run(host, f"/usr/bin/python3 -m venv --without-pip {FOLDER}/{name}")
    write_environment(lab.state(host) / "stand-ins" / name, bom)


@pytest.fixture
def fleetctl(lab: Lab, environments: None, monkeypatch: pytest.MonkeyPatch) -> Fleetctl:
    """Run a command on the lab's inventory."""
    monkeypatch.setenv("FLEETCTL_FLEET", str(LAB_INVENTORY.parents[1]))
    monkeypatch.setenv("FLEETCTL_INVENTORY", "inventories/lab")
    app = typer.Typer()
    app.command()(diff)
    app.command()(overlay)
    return lambda *words: CliRunner().invoke(app, words)


def differences(result: Result) -> dict[tuple[str, str], dict[str, Any]]:
    document = json.loads(result.stdout)
    return {(one["id"], one["subject"]): one for one in document["differences"]}


def test_every_fault_in_one_run(fleetctl: Fleetctl) -> None:
    result = fleetctl("diff", REFERENCE, TRAINING, "--json")
    assert result.exit_code == 0, result.output
    found = differences(result)
    assert {
        ("missing-modules", "sglang"),
        ("nested-copy", "sglang"),
        ("version", "flashinfer-python"),
        ("version", "flashinfer-cubin"),
        ("abi-cuda", "torch"),
        ("missing", "soundfile"),
        ("version", "xgrammar"),
    } <= set(found)
    kernel = [
        one for (id, subject), one in found.items() if id.startswith("abi-") and subject == "sglang-kernel"
    ]
    assert any("libcublas.so.13" in line for one in kernel for line in one["evidence"]), kernel
    assert {tuple(one["step"]["distributions"]) for one in kernel} == {
        tuple(found["abi-cuda", "torch"]["step"]["distributions"])
    }
    assert "sglang-kernel" in found["abi-cuda", "torch"]["step"]["distributions"]


def test_it_fits_a_screen_and_the_same_is_said_to_be(fleetctl: Fleetctl) -> None:
    lines = fleetctl("diff", REFERENCE, TRAINING).stdout.splitlines()
    assert len(lines) < 60
    assert lines[3].startswith("ABI")
    same = fleetctl("diff", REFERENCE, SAME_HOST)
    assert (same.exit_code, same.stdout.splitlines()[-1]) == (0, "They are the same: nothing to do")
    assert fleetctl("diff", REFERENCE, SAME_HOST, "--plan").exit_code == 0


def test_the_plan_carried_out_is_like_the_reference(fleetctl: Fleetctl, lab: Lab) -> None:
    """On one host: the command that --plan prints, then the same comparison again."""
    planned = fleetctl("diff", SAME_HOST, TRAINING, "--plan")
    assert planned.exit_code == Exit.PLAN_CHANGES
    (line,) = planned.stdout.splitlines()
    words = line.split()
    assert words[:4] == ["fleetctl", "env", "overlay", TRAINING]
    words[4] = "stood-in"
    before = contents(lab.state("ct200") / "stand-ins" / "venv")
    preview = fleetctl(*words[2:], "--plan", "--json")
    assert preview.exit_code == Exit.PLAN_CHANGES, preview.output
    path = json.loads(preview.stdout)["path"]
    made = fleetctl(*words[2:])
    assert made.exit_code == 0, (made.output, made.exception, getattr(made.exception, "evidence", ""))
    assert path in made.stdout
    again = fleetctl(*words[2:])
    assert again.exit_code == 0 and "nothing to do" in again.stdout
    left = differences(fleetctl("diff", SAME_HOST, f"ct200:{path}", "--json"))
    assert {one["group"] for one in left.values()} <= {"fact"}, left
    assert contents(lab.state("ct200") / "stand-ins" / "venv") == before, "the base is as it was"
    with open_agent(fleet_host("ct200")) as agent:
        verified = agent.call("environment.verify", path=path)
    assert verified["ok"], verified["findings"]


def test_what_is_refused_leaves_nothing(fleetctl: Fleetctl, lab: Lab) -> None:
    refused = fleetctl(
        "overlay", TRAINING, "stood-in-broken", "--from", REFERENCE, "--dist", "torch"
    ).exception
    assert isinstance(refused, FleetError)
    assert refused.exit == Exit.PREFLIGHT
    assert not list((lab.state("ct200") / "envs").glob("stood-in-broken*"))


def test_a_host_that_is_cut_off(fleetctl: Fleetctl, lab: Lab) -> None:
    lab.run("ct129", "systemctl stop ssh.socket ssh.service 2>/dev/null; true", check=False)
    try:
        error = fleetctl("diff", REFERENCE, TRAINING).exception
        assert isinstance(error, FleetError)
        assert error.exit == Exit.PARTIAL
    finally:
        lab.reset()


def fleet_host(name: str) -> Any:
    from fleetctl.inventory.loader import load_fleet

    return load_fleet(LAB_INVENTORY.parents[1], "inventories/lab").hosts[name]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
