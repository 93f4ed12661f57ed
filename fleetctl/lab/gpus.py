"""The GPUs a lab host has on paper, and what a test can make of them.

A host's ``nvidia-smi`` answers from ``/etc/fleetctl-lab/gpus.json`` in the host. The functions here
rewrite that file from outside, in one step, so a query sees the state before or after, never half.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from fleetctl.errors import Exit, FleetError
from fleetctl.lab.paths import HostPaths

TOOL = "usr/local/bin/nvidia-smi"
STATE_FILE = "etc/fleetctl-lab/gpus.json"
_SCRIPT = Path(__file__).with_name("nvidia_smi.py")

# As an 8-GPU host of this kind answers: one PCIe bus number a GPU, two root complexes.
_BUSES = ("01", "21", "41", "61", "81", "A1", "C1", "E1")
_TOTAL_MIB = 97887
_RESERVED_MIB = 637


def healthy(count: int) -> dict[str, Any]:
    """The state of a host whose GPUs are all well and idle."""
    return {
        "driver_version": "580.95.05",
        "cuda_version": "13.0",
        "gpus": [_gpu(index) for index in range(count)],
        "apps": [],
    }


def install(root: Path, count: int) -> None:
    """Put ``nvidia-smi`` and healthy GPUs into a host's root (or the layer it is made from)."""
    _place_tool(root)
    _write(root, healthy(count))


def read(host: str) -> dict[str, Any]:
    """The present state of a host's GPUs."""
    file = _root(host) / STATE_FILE
    state: dict[str, Any] = json.loads(file.read_text())
    return state


def write(host: str, state: dict[str, Any]) -> None:
    """Give a host's GPUs a state."""
    _write(_root(host), state)


def reset(host: str) -> None:
    """Make all GPUs of a host well and idle again."""
    _place_tool(_root(host))
    write(host, healthy(len(read(host)["gpus"])))


def lose(host: str, gpu: int, error: str = "Unknown Error") -> None:
    """Let a GPU die: ``Unknown Error``, or ``GPU is lost`` for one that fell off the bus."""
    state = read(host)
    state["gpus"][gpu]["error"] = error
    write(host, state)


def occupy(host: str, gpu: int, mib: int, pid: int | None = None, name: str = "python3") -> None:
    """Let memory of a GPU be in use: by a process that nvidia-smi names, or (no pid) by nobody."""
    state = read(host)
    state["gpus"][gpu]["memory_used"] += mib
    if pid is not None:
        state["apps"].append({"gpu": gpu, "pid": pid, "name": name, "memory": mib})
    write(host, state)


def release(host: str, gpu: int) -> None:
    """Let a GPU be idle again: no process, no memory in use."""
    state = read(host)
    state["gpus"][gpu]["memory_used"] = 0
    state["apps"] = [app for app in state["apps"] if app["gpu"] != gpu]
    write(host, state)


def hang(host: str, seconds: float = 3600.0) -> None:
    """Let nvidia-smi sleep before each answer, as beside a driver that hangs."""
    write(host, {**read(host), "hang_s": seconds})


def fail(host: str, text: str, status: int) -> None:
    """Let nvidia-smi print nothing but this text and end with this status."""
    write(host, {**read(host), "broken": {"text": text, "status": status}})


def mismatch(host: str) -> None:
    """Let the driver's library be another one than its kernel module."""
    fail(host, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95", 18)


def older(host: str, *fields: str) -> None:
    """Let nvidia-smi not know these fields: it refuses every query that names one."""
    write(host, {**read(host), "unknown_fields": list(fields)})


def untold(host: str, *fields: str) -> None:
    """Let nvidia-smi answer ``[N/A]`` for these fields."""
    write(host, {**read(host), "not_told": list(fields)})


def translate(host: str) -> None:
    """Let nvidia-smi speak another language, decimal commas too."""
    language = {
        "Enabled": "Aktiviert",
        "Disabled": "Deaktiviert",
        "CUDA Version": "CUDA-Fassung",
        "decimal": ",",
    }
    write(host, {**read(host), "language": language})


def remove_tool(host: str) -> None:
    """Take nvidia-smi away; :func:`reset` puts it back."""
    (_root(host) / TOOL).unlink(missing_ok=True)


def _gpu(index: int) -> dict[str, Any]:
    return {
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "uuid": f"GPU-{index:08x}-f1ee-4c71-8000-{index:012x}",
        "bus_id": f"00000000:{_BUSES[index % len(_BUSES)]}:00.0",
        "memory_total": _TOTAL_MIB,
        "memory_reserved": _RESERVED_MIB,
        "memory_used": 0,
        "compute_cap": "12.0",
        "pstate": "P8",
        "temperature": 29,
        "power": 34.51,
        "power_limit": 600.0,
        "utilization": 0,
        "error": "",
    }


def _place_tool(root: Path) -> None:
    script = root / TOOL
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_SCRIPT, script)
        script.chmod(0o755)


def _root(host: str) -> Path:
    root = HostPaths(host).root
    if not (root / STATE_FILE).exists():
        raise FleetError("the lab host is down", where=host, fix="fleetctl lab up", exit=Exit.UNREACHABLE)
    return root


def _write(root: Path, state: dict[str, Any]) -> None:
    file = root / STATE_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(state, indent=1) + "\n")
    fresh.replace(file)
