"""What capturing an environment costs, against reading and hashing the same files by coreutils in the same run.

    python benchmarks/env_capture.py [PATH] [--runs 5] [--cold] [--json]

Without PATH an environment is made for it: 13,000 files of 400 MB in 120 distributions, 240 of the files copies of
this system's own libraries. The capture is the agent's, as on a host: its .pyz on ``/usr/bin/python3``, started anew
each time and counted with its start. The floor is ``find … | xargs -P2 sha256sum``. ``--cold`` first drops the
files' pages from memory, on both sides.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fleetctl.transport.payload import payload

PYTHON = "/usr/bin/python3"
FILES, BYTES, DISTRIBUTIONS = 13_000, 400_000_000, 120
LIBRARIES, LARGEST = 240, 4_000_000
FLOOR = "find {path} -type f ! -name '*.pyc' -print0 | xargs -0 -P2 -n 400 sha256sum > /dev/null"


def make_environment(folder: Path) -> Path:
    """A venv of sources with RECORDs that hold, and real libraries."""
    venv = folder / "venv"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(venv)], check=True)
    packages = next(venv.glob("lib/python3.*/site-packages"))
    chance = random.Random(3)
    libraries = system_libraries()
    each = FILES // DISTRIBUTIONS
    texts = FILES - DISTRIBUTIONS * 3 - len(libraries)
    size = (BYTES - sum(path.stat().st_size for path in libraries)) // texts
    for number in range(DISTRIBUTIONS):
        contents = {
            f"package{number}/part{part // 40}/module{part}.py": chance.randbytes(chance.randint(0, 2 * size))
            for part in range(each - 3 - len(libraries) // DISTRIBUTIONS)
        }
        for library in libraries[number::DISTRIBUTIONS]:
            contents[f"package{number}/{library.name}"] = library.read_bytes()
        install(packages, f"package{number}", contents)
    return venv


def system_libraries() -> list[Path]:
    """The largest libraries of this system that are no larger than those of most wheels."""
    found = {path.resolve() for path in Path("/usr/lib").glob("*-linux-gnu/lib*.so*")}
    sizes = {path: path.stat().st_size for path in found if path.read_bytes()[:4] == b"\x7fELF"}
    fitting = [path for path, size in sizes.items() if size <= LARGEST]
    return sorted(fitting, key=lambda path: -sizes[path])[:LIBRARIES]


def install(packages: Path, name: str, contents: dict[str, bytes]) -> None:
    """Write one distribution as an installer would."""
    info = f"{name}-1.0.dist-info"
    contents = {
        **contents,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/INSTALLER": b"pip\n",
    }
    lines = [f"{info}/RECORD,,"]
    for path, data in contents.items():
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / path).write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{path},sha256={digest},{len(data)}")
    (packages / info / "RECORD").write_text("\n".join(lines) + "\n")


def capture(agent: Path, path: str) -> dict[str, Any]:
    """One capture by an agent process of its own."""
    argv = [PYTHON, "-I", "-S", str(agent), "serve"]
    call = {"id": 1, "call": "bom.capture", "args": {"path": path}}
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as ran:
        assert ran.stdin is not None and ran.stdout is not None
        ran.stdin.write(json.dumps(call) + "\n")
        ran.stdin.flush()
        for line in ran.stdout:
            answer = json.loads(line)
            if "error" in answer:
                raise SystemExit(str(answer["error"]))
            if "result" in answer:
                result: dict[str, Any] = answer["result"]
                ran.stdin.close()
                return result
    raise SystemExit("the agent ended without a result")


def forget(path: str) -> None:
    """Drop the pages of every file under ``path`` from memory."""
    subprocess.run(["sync", "-f", path], check=True)
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                fd = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NONBLOCK)
            except OSError:
                continue
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def seconds(work: Callable[[], Any]) -> float:
    """How long ``work`` takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(path: str, runs: int, cold: bool, agent: Path) -> dict[str, Any]:
    """Medians of both, in turn so that load falls on both."""
    before: Callable[[], None] = (lambda: forget(path)) if cold else (lambda: None)
    bom = capture(agent, path)
    captures, floors = [], []
    for _ in range(runs):
        before()
        floors.append(seconds(lambda: subprocess.run(FLOOR.format(path=path), shell=True, check=True)))
        before()
        captures.append(seconds(lambda: capture(agent, path)))
    return {
        "path": path,
        "files": bom["files"],
        "bytes": bom["bytes"],
        "libraries": len(bom["extensions"]),
        "cold": cold,
        "runs": runs,
        "capture_s": round(statistics.median(captures), 3),
        "floor_s": round(statistics.median(floors), 3),
        "ratio": round(statistics.median(c / f for c, f in zip(captures, floors, strict=True)), 2),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
    }


@contextmanager
def environment(given: str | None) -> Iterator[str]:
    """The environment asked for, or one made for the run."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="fleetctl-capture-") as folder:
        yield str(make_environment(Path(folder)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", nargs="?")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with environment(arguments.path) as path, tempfile.TemporaryDirectory() as folder:
        agent = Path(folder) / "agent.pyz"
        agent.write_bytes(payload().data)
        found = measure(path, arguments.runs, arguments.cold, agent)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    size = f"{found['files']:,} files, {found['bytes'] / 1e6:.0f} MB, {found['libraries']} libraries"
    print(f"{size}, {'cold' if found['cold'] else 'warm'}, {found['cores']} cores, load {found['load']}")
    print(
        f"capture {found['capture_s']:.2f} s, find and sha256sum {found['floor_s']:.2f} s: {found['ratio']:.2f} ×"
    )


if __name__ == "__main__":
    main()
