"""Seconds and memory to read all libraries of a wheel, against the floor: only inflating its members.

python -m benchmarks.abi_wheel WHEEL [RUNS]; the two take turns, each run in a process of its own. One JSON line.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from statistics import median
from typing import Any

from fleetctl.abi.wheel import wheel_libraries

RUNS = 3


def read(wheel: str) -> int:
    """Everything that an ABI check needs of the wheel; how many libraries there are."""
    return sum(1 for _ in wheel_libraries(wheel))


def inflate(wheel: str) -> int:
    """The same members, inflated and thrown away; how many bytes they are."""
    size = 0
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if ".so" in member.filename:
                with archive.open(member) as stream:
                    while data := stream.read(1 << 20):
                        size += len(data)
    return size


def once(what: str, wheel: str) -> None:
    """One measurement, printed: wall seconds, CPU seconds and the process's peak RSS in MB."""
    begin = time.perf_counter()
    count = {"read": read, "inflate": inflate}[what](wheel)
    seconds = time.perf_counter() - begin
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert peak is not None
    cpu = usage.ru_utime + usage.ru_stime
    print(json.dumps({"count": count, "s": seconds, "cpu_s": cpu, "mb": int(peak[1]) / 1024}))


def child(what: str, wheel: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.abi_wheel", wheel, what], stdout=subprocess.PIPE, check=True
    )
    return dict(json.loads(done.stdout))


def main() -> None:
    """Take turns and print the medians."""
    wheel, *rest = sys.argv[1:]
    if rest and rest[0] in ("read", "inflate"):
        once(rest[0], wheel)
        return
    runs: dict[str, list[dict[str, Any]]] = {"inflate": [], "read": []}
    for _ in range(int(rest[0]) if rest else RUNS):
        for what, found in runs.items():
            found.append(child(what, wheel))
    result = {
        what: {key: round(median(run[key] for run in found), 2) for key in ("s", "cpu_s", "mb")}
        for what, found in runs.items()
    }
    ratio = median(a["cpu_s"] / b["cpu_s"] for a, b in zip(runs["read"], runs["inflate"], strict=True))
    print(json.dumps({"wheel": wheel.rsplit("/", 1)[-1], **result, "cpu_ratio": round(ratio, 3)}))


if __name__ == "__main__":
    main()
