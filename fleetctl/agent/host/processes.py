"""The host's processes, read from /proc: what each is, who started it, what it may be seen of it."""

from __future__ import annotations

import os
import pwd
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set

from fleetctl.agent import secrets

PROC = Path("/proc")
PREFIXES = ["CUDA_", "NVIDIA_", "SGLANG_", "SGL_", "VLLM_", "NCCL_", "TORCH", "PYTORCH_", "TRITON_", "HF_"]
PREFIXES += ["FLASHINFER_", "TRANSFORMERS_", "HUGGING", "OMP_", "MKL_", "PYTHON", "LD_", "UCX_", "GLOO_"]
NAMES = {"VIRTUAL_ENV", "CONDA_PREFIX", "MASTER_PORT", "TOKENIZERS_PARALLELISM"}
CONTAINERS = ("docker", "containerd", "libpod", "kubepods", "crio", "lxc")


class Process:
    """One process: ``argv`` is empty for a kernel thread and for one that has ended."""

    def __init__(self, pid: int, parent: int, started: int, argv: List[str]) -> None:
        self.pid = pid
        self.parent = parent
        self.started = started
        self.argv = argv


def table() -> Dict[int, Process]:
    """Every process, in one pass."""
    found = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            words = (entry / "cmdline").read_bytes().decode(errors="replace").rstrip("\0")
        except OSError:
            continue
        argv = words.split("\0") if words else []
        found[int(entry.name)] = Process(int(entry.name), int(fields[1]), int(fields[19]), argv)
    return found


def family(processes: Dict[int, Process], root: int) -> Set[int]:
    """A process and all that descend from it."""
    children: Dict[int, List[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: Set[int] = set()
    left = [root]
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children.get(pid, [])
    return found


def ancestors(processes: Dict[int, Process], pid: int) -> Iterable[int]:
    """The pids that a process descends from, the nearest first."""
    seen = {pid}
    while pid in processes and processes[pid].parent not in seen:
        pid = processes[pid].parent
        seen.add(pid)
        if pid in processes:
            yield pid


def sockets() -> Dict[str, int]:
    """The process that holds each socket, by the socket's inode; those of other users only as root."""
    found: Dict[str, int] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            for target in opened(int(entry.name)):
                if target.startswith("socket:["):
                    found.setdefault(target[8:-1], int(entry.name))
    return found


def opened(pid: int) -> Iterator[str]:
    """What a process has open, as /proc names it; a file that is closed meanwhile is passed over, and nothing else."""
    try:
        with os.scandir(PROC / str(pid) / "fd") as handles:
            paths = [handle.path for handle in handles]
    except OSError:
        return
    for path in paths:
        with suppress(OSError):
            yield os.readlink(path)  # noqa: PTH115


def variables(pid: int) -> Optional[Dict[str, str]]:
    """The environment variables a process was started with; None where they may not be read."""
    try:
        text = (PROC / str(pid) / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return None
    pairs = (item.partition("=") for item in text.split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def shown(found: Dict[str, str]) -> Dict[str, Optional[str]]:
    """The variables that matter to a model server; None in place of a secret."""
    matter = {
        name: value
        for name, value in sorted(found.items())
        if name in NAMES or name.startswith(tuple(PREFIXES))
    }
    return {name: None if secrets.is_secret(name, value) else value for name, value in matter.items()}


def link(pid: int, name: str) -> Optional[str]:
    """Where ``exe`` or ``cwd`` of a process points; None where it may not be read."""
    try:
        return os.readlink(PROC / str(pid) / name)  # noqa: PTH115
    except OSError:
        return None


def user(pid: int) -> Optional[str]:
    """The name of the user a process runs as."""
    try:
        uid = (PROC / str(pid)).stat().st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def place(pid: int) -> Dict[str, Any]:
    """``{"cgroup", "container": bool}``: the last part of its control group, and whether it is a container's."""
    try:
        lines = (PROC / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        lines = []
    paths = [line.split(":", 2)[2] for line in lines if line.startswith("0::") or ":name=systemd:" in line]
    path = paths[0] if paths else ""
    inside = link(pid, "ns/pid")
    container = (inside is not None and inside != link(os.getpid(), "ns/pid")) or any(
        word in path for word in CONTAINERS
    )
    return {"cgroup": path.rpartition("/")[2], "container": container}


def age(process: Process) -> float:
    """Seconds since a process was started."""
    uptime = float((PROC / "uptime").read_text().split()[0])
    return max(0.0, uptime - process.started / os.sysconf("SC_CLK_TCK"))


def since(process: Process) -> int:
    """When a process was started, in seconds since 1970."""
    return int(time.time() - age(process))
