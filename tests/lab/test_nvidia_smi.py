"""The lab's nvidia-smi words its answers as the real one does (recorded on drivers 580.95 and 580.159)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.lab import gpus, nvidia_smi

Smi = Callable[..., tuple[int, list[str]]]

# Recorded, with the GPU of the recording put into the state below.
H200 = {
    "driver_version": "580.159.04",
    "cuda_version": "13.0",
    "gpus": [
        {
            "name": "NVIDIA H200",
            "uuid": "GPU-00000000-1111-2222-3333-444444444444",
            "bus_id": "00000000:00:06.0",
            "memory_total": 143771,
            "memory_reserved": 615,
            "memory_used": 0,
            "compute_cap": "9.0",
            "pstate": "P0",
            "temperature": 33,
            "power": 78.06,
            "power_limit": 700.0,
            "utilization": 0,
            "error": "",
        }
    ],
    "apps": [],
}
FIELDS = (
    "index,name,uuid,driver_version,memory.total,memory.used,memory.free,compute_cap,"
    "pci.bus_id,temperature.gpu,power.draw,utilization.gpu"
)
RECORDED = [
    (
        ["-L"],
        0,
        ["GPU 0: NVIDIA H200 (UUID: GPU-00000000-1111-2222-3333-444444444444)"],
    ),
    (
        [f"--query-gpu={FIELDS}", "--format=csv"],
        0,
        [
            "index, name, uuid, driver_version, memory.total [MiB], memory.used [MiB], memory.free [MiB], "
            "compute_cap, pci.bus_id, temperature.gpu, power.draw [W], utilization.gpu [%]",
            "0, NVIDIA H200, GPU-00000000-1111-2222-3333-444444444444, 580.159.04, 143771 MiB, 0 MiB, "
            "143156 MiB, 9.0, 00000000:00:06.0, 33, 78.06 W, 0 %",
        ],
    ),
    (
        [f"--query-gpu={FIELDS.partition(',pci')[0]}", "--format=csv,noheader,nounits"],
        0,
        ["0, NVIDIA H200, GPU-00000000-1111-2222-3333-444444444444, 580.159.04, 143771, 0, 143156, 9.0"],
    ),
    (
        ["--query-compute-apps=pid,process_name,used_memory", "--format=csv"],
        0,
        ["pid, process_name, used_gpu_memory [MiB]"],
    ),
    (
        ["--query-gpu=index,nosuchfield", "--format=csv"],
        2,
        ['Field "nosuchfield" is not a valid field to query.', ""],
    ),
    (
        ["--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv", "--id=0"],
        0,
        ["name, memory.total [MiB], driver_version, compute_cap", "NVIDIA H200, 143771 MiB, 580.159.04, 9.0"],
    ),
]
TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H200                    On  |   00000000:00:06.0 Off |                    0 |
| N/A   33C    P0             78W /  700W |       0MiB / 143771MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Smi:
    """Ask the script about a state: its exit status and lines."""
    file = tmp_path / "gpus.json"
    monkeypatch.setattr(nvidia_smi, "STATE", str(file))

    def ask(state: dict[str, Any], *argv: str) -> tuple[int, list[str]]:
        file.write_text(json.dumps(state))
        status = nvidia_smi.main(list(argv))
        return status, capsys.readouterr().out.splitlines()

    return ask


@pytest.mark.parametrize(("argv", "status", "lines"), RECORDED)
def test_answers_as_recorded(smi: Smi, argv: list[str], status: int, lines: list[str]) -> None:
    assert smi(H200, *argv) == (status, lines)


def test_plain_table_as_recorded(smi: Smi) -> None:
    status, lines = smi(H200)
    assert status == 0
    assert lines[1:] == TABLE.splitlines()


def test_eight_gpus_of_the_inventory_as_recorded(smi: Smi) -> None:
    status, lines = smi(
        gpus.healthy(8), "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv"
    )
    assert status == 0
    row = "NVIDIA RTX PRO 6000 Blackwell Server Edition, 97887 MiB, 580.95.05, 12.0"
    assert lines == ["name, memory.total [MiB], driver_version, compute_cap", *[row] * 8]


def test_used_and_free_memory_stay_below_the_total(smi: Smi) -> None:
    state = gpus.healthy(1)
    state["gpus"][0]["memory_used"] = 60000
    _, lines = smi(state, "--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits")
    total, used, free = (int(cell) for cell in lines[0].split(", "))
    assert used == 60000
    assert used + free < total


@pytest.mark.parametrize(
    ("error", "words", "status"),
    [
        ("Unknown Error", "Unknown Error", 255),
        ("GPU is lost", "GPU is lost.  Reboot the system to recover this GPU", 15),
    ],
)
def test_a_dead_gpu_beside_living_ones(smi: Smi, error: str, words: str, status: int) -> None:
    state = gpus.healthy(3)
    state["gpus"][1]["error"] = error
    line = f"Unable to determine the device handle for GPU0000:21:00.0: {words}"
    assert smi(state, "--query-gpu=index,memory.used", "--format=csv,noheader") == (
        status,
        ["0, 0 MiB", line, f"[{error}], [{error}]", "2, 0 MiB"],
    )
    assert smi(state) == (status, [line])
    listed = smi(state, "-L")
    assert (listed[0], listed[1][1], len(listed[1])) == (status, line, 3)


def test_compute_apps_of_the_gpus_asked_for(smi: Smi) -> None:
    state = gpus.healthy(2)
    state["apps"] = [{"gpu": 1, "pid": 4242, "name": "/opt/venv/bin/python3", "memory": 512}]
    query = "--query-compute-apps=gpu_uuid,pid,name,used_gpu_memory"
    row = f"{state['gpus'][1]['uuid']}, 4242, /opt/venv/bin/python3, 512 MiB"
    assert smi(state, query, "--format=csv,noheader") == (0, [row])
    assert smi(state, query, "--format=csv,noheader", "-i", "0") == (0, [])


@pytest.mark.parametrize(
    "argv", [["--nonsense"], ["--query-gpu=name"], ["--query-gpu=name", "--format=json"], ["--format=csv"]]
)
def test_arguments_that_do_not_fit(smi: Smi, argv: list[str]) -> None:
    status, lines = smi(H200, *argv)
    assert status == 2
    assert "nvidia-smi -h" in lines[0]


def test_runs_on_the_hosts_own_python_from_3_9_on(tmp_path: Path) -> None:
    script = Path(nvidia_smi.__file__)
    assert script.read_text().startswith("#!/usr/bin/python3 ")
    import ast

    ast.parse(script.read_text(), feature_version=(3, 9))
    copy = tmp_path / "nvidia-smi"
    copy.write_text(script.read_text().replace("/etc/fleetctl-lab/gpus.json", str(tmp_path / "gpus.json")))
    (tmp_path / "gpus.json").write_text(json.dumps(H200))
    done = subprocess.run(["/usr/bin/python3", "-IS", str(copy), "-L"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
