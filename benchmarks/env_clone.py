"""A clone of an environment on one host: fleetctl beside cp, uv, venv-pack and conda-pack.

    python -m benchmarks.env_clone [--peers VENV] [--folder FOLDER] [--packages 100] [--runs 7] [--ways WAY …]
                                   [--cold] [--json FILE]

The environment is fleetctl's own build of synthetic wheels: with 100 of them about 13,000 files and 400 MB, byte code
included. ``clone`` is the agent's step that brings the files, ``derive`` the whole call: looked at, linked, relocated,
proved, interpreter run, written through and named. ``VENV`` holds ``venv-pack`` and ``conda-pack``, which are neither
needed by fleetctl nor installed with it. What each makes is removed before the next; runs are interleaved, figures are
medians of seconds, ratios are medians of ratios within a round. ``--cold`` drops the page cache before each (root).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wheel.wheelfile import WheelFile

from fleetctl.agent.environment.build import build
from fleetctl.agent.environment.derive import derive
from fleetctl.environment.wheelhouse import BUILDER, describe

MODULES, DATA = 58, 8
DIGEST = "0123456789ab"
Work = Callable[[Path], None]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, help="venv with venv-pack and conda-pack")
    parser.add_argument("--folder", type=Path, help="where to work (its file system is what is measured)")
    parser.add_argument("--packages", type=int, default=100)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--ways", nargs="*", default=[], help="only these beside cp -al and fleetctl")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        host = Host(Path(name).resolve(), args.packages)
        works = {"cp -al": host.cp_al, "fleetctl": host.derive, "cp -a": host.cp_a}
        works |= {"uv pip install": host.uv_pip, "uv sync": host.uv_sync}
        if args.peers:
            works["venv-pack"] = host.packed(args.peers / "bin/venv-pack")
            works["conda-pack"] = host.packed(args.peers / "bin/conda-pack")
        if args.ways:
            wanted = {"cp -al", "fleetctl", *args.ways}
            works = {name: work for name, work in works.items() if name in wanted}
        seconds = host.interleaved(works, args.runs, args.cold)
        files, size = host.files, host.bytes
    print(f"{files:,} files, {size / 1e6:.0f} MB, {args.runs} runs, {'cold' if args.cold else 'warm'}")
    report = {name: _row(taken, seconds["cp -al"]) for name, taken in seconds.items()}
    for name, row in report.items():
        times = f"{row['median_s']:7.3f} s ({row['min_s']:.3f} to {row['max_s']:.3f})"
        print(f"{name:16} {times}, {row['cp_al_ratio']:6.2f} x cp -al")
    if args.json:
        head = {"runs": args.runs, "files": files, "bytes": size, "cold": args.cold}
        args.json.write_text(json.dumps({**head, **report}, indent=1) + "\n")


class Host:
    """A host's state folder with one built environment, and the ways to make another one of it."""

    def __init__(self, root: Path, packages: int) -> None:
        self.root = root
        self.wheelhouse = root / "wheelhouse"
        self.wheels = _wheels(self.wheelhouse, packages)
        _download_uv(self.wheelhouse)
        builder = next(self.wheelhouse.glob("uv-*.whl"))
        tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        made = build(
            {
                **{"name": "base", "digest": DIGEST, "python": tag, "abi": tag, "imports": []},
                "wheels": [asdict(describe(wheel)) for wheel in self.wheels],
                **{"builder": asdict(describe(builder)), "root": str(root)},
            },
            lambda event: None,
        )
        self.base = Path(made["path"])
        self.uv = next((root / "tools").glob("uv-*"))
        found = [path.lstat() for path in self.base.rglob("*") if path.is_file() and not path.is_symlink()]
        self.files, self.bytes = len(found), sum(stat.st_size for stat in found)
        self.steps: dict[str, float] = {}
        self._lock_project()

    def interleaved(self, works: dict[str, Work], runs: int, cold: bool) -> dict[str, list[float]]:
        """Seconds of each way, by round; the first round only warms up. fleetctl's steps are rows of their own."""
        seconds: dict[str, list[float]] = {}
        for run in range(runs + 1):
            for name, work in works.items():
                target = self.root / "envs" / f"copy-{DIGEST}"
                subprocess.run(["sync"], check=True)
                if cold:
                    Path("/proc/sys/vm/drop_caches").write_text("3\n")
                started = time.perf_counter()
                work(target)
                took = {name: time.perf_counter() - started}
                if name == "fleetctl":
                    took = {"fleetctl clone": self.steps["clone"], "fleetctl derive": took[name]}
                    took["fleetctl unsynced"] = took["fleetctl derive"] - self.steps["commit"]
                for row, value in took.items() if run else ():
                    seconds.setdefault(row, []).append(value)
                shutil.rmtree(target)
        return seconds

    def cp_al(self, target: Path) -> None:
        """Hard links, nothing relocated."""
        subprocess.run(["cp", "-al", self.base, target], check=True)

    def cp_a(self, target: Path) -> None:
        """Copies, nothing relocated."""
        subprocess.run(["cp", "-a", self.base, target], check=True)

    def derive(self, target: Path) -> None:
        """fleetctl's agent, as it answers ``environment.derive``."""
        args = {"name": "copy", "digest": DIGEST, "base": str(self.base), "root": str(self.root)}
        self.steps = derive(args, lambda event: None)["seconds"]
        assert (target / ".fleetctl-env.json").exists()

    def uv_pip(self, target: Path) -> None:
        """A new venv from uv's warm cache; no byte code."""
        self._uv(["venv", "--python", sys.executable, str(target)])
        pins = [f"{wheel.name.split('-')[0]}==1.0" for wheel in self.wheels]
        self._uv(
            ["pip", "install", "--python", str(target / "bin/python"), "--no-deps", *self._offline, *pins]
        )

    def uv_sync(self, target: Path) -> None:
        """The same from a lock file."""
        self._uv(
            ["sync", "--frozen", "--no-install-project", "--project", str(self.root / "project")], target
        )

    def packed(self, tool: Path) -> Work:
        """An archive by a packing tool, unpacked again (uncompressed tar: the quickest that both have)."""

        def pack(target: Path) -> None:
            archive = self.root / "packed.tar"
            (self.base / "conda-meta").mkdir(exist_ok=True)
            (self.base / "conda-meta" / "history").touch()
            argv = [tool, "-p", self.base, "-o", archive, "--force", "-q"]
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
            target.mkdir()
            subprocess.run(["tar", "-xf", archive, "-C", target], check=True)
            archive.unlink()
            shutil.rmtree(self.base / "conda-meta")

        return pack

    @property
    def _offline(self) -> list[str]:
        return ["--no-index", "--offline", "--find-links", str(self.wheelhouse)]

    def _uv(self, argv: list[str], target: Path | None = None) -> None:
        environment = {**os.environ, "UV_CACHE_DIR": str(self.root / "uv-cache"), "UV_LINK_MODE": "hardlink"}
        environment |= {"UV_PROJECT_ENVIRONMENT": str(target)} if target else {}
        subprocess.run([self.uv, "-q", *argv], check=True, env=environment)

    def _lock_project(self) -> None:
        project = self.root / "project"
        project.mkdir()
        pins = ", ".join(f'"{wheel.name.split("-")[0]}==1.0"' for wheel in self.wheels)
        text = f'[project]\nname = "all"\nversion = "1"\nrequires-python = ">=3.9"\ndependencies = [{pins}]\n'
        text += f'[tool.uv]\nno-index = true\nfind-links = ["{self.wheelhouse}"]\n'
        (project / "pyproject.toml").write_text(text)
        self._uv(["lock", "--offline", "--python", sys.executable, "--project", str(project)])


def _row(taken: list[float], cp_al: list[float]) -> dict[str, Any]:
    return {
        "median_s": statistics.median(taken),
        "min_s": min(taken),
        "max_s": max(taken),
        "cp_al_ratio": statistics.median(mine / theirs for mine, theirs in zip(taken, cp_al, strict=True)),
    }


def _wheels(folder: Path, count: int) -> list[Path]:
    """Packages of modules in subfolders, with data and one library; the same bytes each time."""
    folder.mkdir(parents=True)
    noise = random.Random(1)
    paths = []
    for number in range(count):
        name = f"package{number}"
        path = folder / f"{name}-1.0-py3-none-any.whl"
        info = f"{name}-1.0.dist-info"
        with WheelFile(path, "w") as wheel:
            for module in range(MODULES):
                lines = [
                    f"def function_{line}(a: int) -> int:\n    return a + {line}\n" for line in range(90)
                ]
                place = f"{name}/part{module % 6}/" + ("__init__.py" if module < 6 else f"module{module}.py")
                wheel.writestr(place, "\n".join(lines))
            for data in range(DATA):
                wheel.writestr(f"{name}/data/{data}.bin", noise.randbytes(20_000))
            wheel.writestr(f"{name}/library.so", noise.randbytes(2_600_000))
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(
                f"{info}/entry_points.txt", f"[console_scripts]\n{name} = {name}.part0:function_1\n"
            )
        paths.append(path)
    return paths


def _download_uv(folder: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        str(folder),
    ]
    subprocess.run([*argv, BUILDER], check=True)


if __name__ == "__main__":
    main()
