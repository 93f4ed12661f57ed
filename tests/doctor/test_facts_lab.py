"""``fleetctl facts`` on the lab's hosts, whose nvidia-smi hangs, lies, is of another language or is not there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.doctor.facts import gather, load_facts
from fleetctl.errors import Exit
from fleetctl.inventory.loader import load_fleet
from fleetctl.lab import gpus, hardware
from fleetctl.transport.agent import open_agent
from tests.conftest import LAB_INVENTORY, Lab

pytestmark = pytest.mark.lab

FLEET = str(LAB_INVENTORY.parents[1])
HOST = "ct200"


@pytest.fixture
def host(lab: Lab) -> Iterator[str]:
    """A lab host whose hardware a test may break."""
    yield HOST
    gpus.reset(HOST)
    hardware.forget(HOST)


def fleetctl(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [
        sys.executable,
        "-m",
        "fleetctl",
        "--fleet",
        FLEET,
        "--inventory",
        "inventories/lab",
        "facts",
        *words,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=280)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def ask(**args: Any) -> dict[str, Any]:
    chosen = load_fleet(Path(FLEET), "inventories/lab").hosts[HOST]
    with open_agent(chosen) as agent:
        return gather(agent, chosen, **args)


def test_a_healthy_host_on_one_screen_and_in_a_file(host: str, tmp_path: Path) -> None:
    hardware.toolkit(host, "12.8")
    hardware.toolkit(host, "13.0", "13.0.88", default=False)
    file = tmp_path / "facts.json"
    done = fleetctl(host, "-o", str(file))
    assert (done.returncode, done.stdout.count("\n") < 24) == (Exit.OK, True), done.stderr
    assert "580.95.05, up to CUDA 13.0; toolkits: 12.8 at /usr/local/cuda-12.8 (default)" in done.stdout
    found = load_facts(file)
    assert found["hostname"] == host
    assert found["errors"] == {}
    assert [gpu["state"] for gpu in found["gpus"]["gpus"]] == ["ok"] * 8
    assert found["gpus"]["gpus"][3]["compute_cap"] == "12.0"
    assert {one["version"]: one["nvcc"] for one in found["toolkits"]} == {
        "12.8": "12.8.93",
        "13.0": "13.0.88",
    }
    assert (found["topology"]["links"]["0-1"], found["topology"]["links"]["0-4"]) == ("NODE", "SYS")
    assert found["kernel_log"]["error"] is None
    assert set(found["named"]["models"]) == {"smollm2-135m", "smollm2-135m-dflash"}
    assert "fleetctl-ddtree.service" in found["units"] and "fleetctl-ddtree.service" in found["limits"]
    assert json.loads(fleetctl(host, "--json").stdout)["schema"] == 1


def test_a_dead_card_who_holds_memory_and_what_the_kernel_said(host: str, lab: Lab) -> None:
    gpus.lose(host, 1, "GPU is lost")
    pid = int(lab.run(host, "systemctl show -p MainPID --value ssh").stdout)
    gpus.occupy(host, 2, 4096, pid, "python, odd")
    hardware.kernel_says(
        host,
        "NVRM: Xid (PCI:0000:21:00): 79, pid=1, name=python3, GPU has fallen off the bus.",
        "Out of memory: Killed process 42 (sglang::schedul) total-vm:1kB",
    )
    found = ask()
    dead = found["gpus"]["gpus"][1]
    assert (dead["index"], dead["state"], dead["bus_id"]) == (1, "lost", "00000000:21:00.0")
    assert found["gpus"]["apps"] == [
        {"pid": pid, "name": "python, odd", "used_mib": 4096, "gpu": 2, "unit": "ssh.service"}
    ]
    assert found["driver"] == {"version": "580.95.05", "cuda": "13.0", "module": None, "library": None}
    assert [one["code"] for one in found["kernel_log"]["xid"]] == [79]
    assert [one["pid"] for one in found["kernel_log"]["oom"]] == [42]
    assert "lost" in fleetctl(host).stdout


def test_what_the_driver_does_not_know_or_tell(host: str) -> None:
    gpus.older(host, "remapped_rows.failure", "mig.mode.current")
    gpus.untold(host, "ecc.errors.uncorrected.volatile.total", "power.draw")
    found = ask()["gpus"]
    assert sorted(found["unknown_fields"]) == ["mig.mode.current", "remapped_rows.failure"]
    assert found["error"] is None
    for gpu in found["gpus"]:
        assert (gpu["state"], gpu["mig"], gpu["ecc_uncorrected"], gpu["power_w"]) == ("ok", None, None, None)


def test_another_language(host: str) -> None:
    gpus.translate(host)
    found = ask()
    first = found["gpus"]["gpus"][0]
    assert (first["power_w"], first["persistence"], first["state"]) == (34.51, None, "ok")
    assert found["driver"]["cuda"] == "13.0"


def test_a_driver_that_does_not_fit_its_module(host: str) -> None:
    gpus.mismatch(host)
    found = ask()
    assert found["gpus"]["gpus"] == []
    assert "status 18: Failed to initialize NVML: Driver/library version mismatch" in found["gpus"]["error"]
    assert "Driver/library version mismatch" in fleetctl(host).stdout


def test_no_nvidia_smi(host: str) -> None:
    gpus.remove_tool(host)
    found = ask()
    assert (found["gpus"]["gpus"], found["gpus"]["error"], found["driver"]["version"]) == ([], None, None)
    assert "driver       none" in fleetctl(host).stdout


def test_an_nvidia_smi_that_hangs(host: str) -> None:
    gpus.hang(host)
    begin = time.monotonic()
    found = ask()
    assert time.monotonic() - begin < 120
    assert "no answer from nvidia-smi" in found["gpus"]["error"]
    assert found["memory"]["total"] > 0 and found["units"]


def test_deep_says_why_no_kernel_ran(host: str) -> None:
    gpus.lose(host, 0)
    found = ask(deep=True)["deep"]
    assert [one["gpu"] for one in found] == list(range(8))
    assert not any(one["ok"] for one in found)
    assert "Unknown Error" in found[0]["error"]
    assert "the driver's library cannot be loaded" in found[1]["error"]


def test_a_system_environment_and_one_that_is_not_there(host: str) -> None:
    found = ask(environments=["/usr/bin/python3", "/srv/none"])["environments"]
    assert found["/usr/bin/python3"]["kind"] == "system"
    assert "no such environment" in found["/srv/none"]["error"]


def test_input_that_contradicts_itself() -> None:
    both = fleetctl(HOST, "--local")
    assert (both.returncode, "give one of the two" in both.stderr) == (Exit.INPUT, True)
    assert fleetctl("nohost").returncode == Exit.INPUT
