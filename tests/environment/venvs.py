"""Real environments, made on the spot: venvs by Python itself, filled by pip or uv from tiny wheels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from fleetctl.agent.bom import capture

Bom = dict[str, Any]


def make_venv(path: Path, *wheels: Path, by: str = "pip", relocatable: bool = False) -> Path:
    """A venv with wheels in it."""
    if relocatable:
        subprocess.run(
            ["uv", "venv", "-q", "--relocatable", "--python", sys.executable, str(path)], check=True
        )
    else:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
    if wheels:
        install(path, *wheels, by=by)
    return path


def install(venv: Path, *wheels: Path, by: str = "pip") -> None:
    """Install wheels without an index."""
    files = [str(wheel) for wheel in wheels]
    if by == "uv":
        argv = [
            "uv",
            "pip",
            "install",
            "-q",
            "--offline",
            "--no-deps",
            "--python",
            f"{venv}/bin/python",
            *files,
        ]
    else:
        argv = [sys.executable, "-m", "pip", "--python", f"{venv}/bin/python", "install", "-q"]
        argv += ["--disable-pip-version-check", "--no-index", "--no-deps", *files]
    subprocess.run(argv, check=True)


def site(venv: Path) -> Path:
    """The venv's site-packages."""
    return next(venv.glob("lib/python3.*/site-packages"))


def bom_of(path: Path | str, **more: Any) -> Bom:
    """The BOM, by the agent's own function."""
    return capture({"path": str(path), **more}, lambda event: None)


def distribution(bom: Bom, name: str) -> Bom:
    """One distribution of a BOM."""
    return next(one for one in bom["distributions"] if one["name"] == name)


def problems(bom: Bom) -> str:
    """A BOM's problems as one text."""
    return "\n".join(f"{one['where']}: {one['what']}" for one in bom["problems"])
