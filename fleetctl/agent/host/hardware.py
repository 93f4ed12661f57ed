"""The host itself: disks, memory, processors, limits, and libraries that the loader finds."""

from __future__ import annotations

import os
import re
import resource
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

Json = Dict[str, Any]

LIBRARIES = (
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnuma.so.1",
    "libsndfile.so.1",
    "libstdc++.so.6",
    "libgomp.so.1",
    "libibverbs.so.1",
    "librdmacm.so.1",
    "libnccl.so.2",
)
UNIT_LIMITS = ("LimitNOFILE", "LimitMEMLOCK")
SHM = "/dev/shm"
GLIBCXX = re.compile(rb"(\d+(?:\.\d+)+)\0")


class Mount(NamedTuple):
    """A mounted file system."""

    point: str
    fstype: str
    source: str


def mounts(text: Optional[str] = None) -> List[Mount]:
    """What /proc/self/mountinfo says, in the order of mounting."""
    try:
        lines = (
            Path("/proc/self/mountinfo").read_text(errors="replace") if text is None else text
        ).splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        head, dash, tail = line.partition(" - ")
        before, after = head.split(), tail.split()
        if dash and len(before) > 4 and len(after) > 1:
            found.append(Mount(_unescaped(before[4]), after[0], _unescaped(after[1])))
    return found


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def mount_of(path: str, known: Optional[Sequence[Mount]] = None) -> Optional[Mount]:
    """The mount that a path is on, by its real path; the last one mounted on the longest mount point."""
    real = os.path.realpath(path)
    best: Optional[Mount] = None
    for mount in mounts() if known is None else known:
        inside = real == mount.point or real.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def disks(paths: Iterable[str]) -> List[Json]:
    """``{"path", "mount", "fstype", "free_bytes", "total_bytes", "free_inodes"}`` of each path, where it is or will be.

    A file system that several paths are on is told once, by the first of them; ``free_inodes`` None: it counts none.
    """
    known = mounts()
    found: Dict[str, Json] = {}
    for path in paths:
        place = _nearest(path)
        mount = mount_of(str(place), known)
        point = mount.point if mount else str(place)
        if point not in found:
            status = os.statvfs(place)
            found[point] = {
                "path": path,
                "mount": point,
                "fstype": mount.fstype if mount else None,
                "free_bytes": status.f_bavail * status.f_frsize,
                "total_bytes": status.f_blocks * status.f_frsize,
                "free_inodes": status.f_favail if status.f_files else None,
            }
    return list(found.values())


def _nearest(path: str) -> Path:
    """The path, or the first folder above it that is there; also of a path that cannot be."""
    places = (Path(path), *Path(path).parents)
    return next((place for place in places if os.path.exists(place)), Path("/"))  # noqa: PTH110


def shm() -> Json:
    """``{"free_bytes", "total_bytes"}`` of /dev/shm; OSError where it is not there."""
    status = os.statvfs(SHM)
    return {"free_bytes": status.f_bavail * status.f_frsize, "total_bytes": status.f_blocks * status.f_frsize}


def memory() -> Json:
    """``{"total", "available", "swap_total"}`` in bytes."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    said = {
        name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines) if rest
    }
    return {
        "total": said.get("MemTotal"),
        "available": said.get("MemAvailable"),
        "swap_total": said.get("SwapTotal"),
    }


def cpus() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def numa_nodes() -> Optional[int]:
    """Memory nodes; None where /sys does not say."""
    return len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None


def uptime() -> float:
    """Seconds since the kernel booted."""
    return float(Path("/proc/uptime").read_text().split()[0])


def limits(units: Mapping[str, Mapping[str, Any]]) -> Json:
    """``{"agent": {"nofile", "memlock"}, unit: {"LimitNOFILE", "LimitMEMLOCK"}}``; None stands for no limit.

    ``units``: systemd's properties of each unit, with :data:`UNIT_LIMITS` among them; what is said without them (under
    supervisord) has no limits here: a service's are not known before it runs.
    """
    found: Json = {
        "agent": {
            "nofile": _limit(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
            "memlock": _limit(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        }
    }
    for unit, said in units.items():
        if all(name in said for name in UNIT_LIMITS):
            found[unit] = {name: _unit_limit(str(said[name])) for name in UNIT_LIMITS}
    return found


def _limit(value: int) -> Optional[int]:
    return None if value == resource.RLIM_INFINITY else value


def _unit_limit(text: str) -> Optional[int]:
    return int(text) if text.isdigit() else None


def libraries(names: Iterable[str] = LIBRARIES) -> Dict[str, bool]:
    """Which libraries the system's loader finds, by its cache and its default folders."""
    from fleetctl.abi.loader import System

    system = System()
    return {name: bool(system.find(name)) for name in names}


@lru_cache(None)
def glibcxx() -> Optional[str]:
    """The highest GLIBCXX that the system's libstdc++ gives; None where there is none."""
    from fleetctl.abi.loader import System

    for path in System().find("libstdc++.so.6"):
        parts = Path(path).read_bytes().split(b"\0GLIBCXX_")[1:]
        versions = {match[1].decode() for match in map(GLIBCXX.match, parts) if match}
        if versions:
            return max(versions, key=lambda version: tuple(map(int, version.split("."))))
    return None
