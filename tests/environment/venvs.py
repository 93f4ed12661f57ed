"""Real environments, made on the spot: venvs by Python itself, filled by pip or uv from tiny wheels."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from fleetctl.agent.capture.bom import capture
from fleetctl.transport.payload import payload

Bom = dict[str, Any]


def make_venv(path: Path, *wheels: Path, uv: Path | None = None) -> Path:
    """A venv with wheels in it: by ``venv`` and pip, or a relocatable one by ``uv``. No index is asked."""
    if uv is None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
        install = [sys.executable, "-m", "pip", "--python", f"{path}/bin/python", "install", "-q"]
        install += ["--disable-pip-version-check", "--no-index", "--no-deps"]
    else:
        make = [str(uv), "venv", "-q", "--relocatable", "--python", sys.executable, str(path)]
        subprocess.run(make, check=True)
        install = [
            str(uv),
            "pip",
            "install",
            "-q",
            "--offline",
            "--no-deps",
            "--python",
            f"{path}/bin/python",
        ]
    if wheels:
        subprocess.run([*install, *map(str, wheels)], check=True)
    return path


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


def bom_by_agent(folder: Path, python: str, venv: Path, user: int | None = None) -> Bom:
    """The BOM, by an agent as a host runs it: its archive, written to ``folder``, on ``python``, as ``user``."""
    agent = folder / "agent.pyz"
    agent.write_bytes(payload().data)
    started = subprocess.Popen(
        [python, "-I", "-S", str(agent), "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user=user,
        process_group=0,
    )
    assert started.stdin is not None and started.stdout is not None
    call = {"id": 1, "call": "bom.capture", "args": {"path": str(venv)}}
    started.stdin.write(json.dumps(call) + "\n")
    started.stdin.flush()
    answers = (json.loads(line) for line in iter(started.stdout.readline, ""))
    bom: Bom = next(answer["result"] for answer in answers if "result" in answer)
    started.stdin.close()
    started.stdout.close()
    started.wait(10)
    return bom
