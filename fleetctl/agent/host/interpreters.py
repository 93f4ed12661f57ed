"""The Python environment that a process runs in, without running it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VERSION = re.compile(r"^version(?:_info)?\s*=\s*(\d+\.\d+(?:\.\d+)?)", re.MULTILINE)


def environment(
    program: str, script: Optional[str], variables: Mapping[str, str], cwd: str, exe: Optional[str]
) -> Optional[Dict[str, Any]]:
    """``{"path", "kind": "venv|conda|system", "version", "from"}`` of a command line's interpreter.

    The first of these that lies in a venv or a conda environment: the program (looked up in ``PATH`` where it
    is a bare name), the script, ``VIRTUAL_ENV``, ``CONDA_PREFIX``, the running file; else the first that is there
    at all. None where nothing is. ``cwd`` is what relative names are relative to.
    """
    found: List[Tuple[Path, str]] = []
    for text, origin in ((program, "its command line"), (script, "its script")):
        place = _located(text, variables, cwd) if text else None
        if place is not None:
            found.append((place.parent.parent, origin))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if variables.get(name):
            found.append((Path(variables[name]), name))
    if exe:
        found.append((Path(exe.partition(" (deleted)")[0]).parent.parent, "the running file"))
    for prefix, origin in found:
        kind = _kind(prefix)
        if kind is not None:
            return _described(prefix, kind, origin, exe)
    for prefix, origin in found:
        if _has_python(prefix):
            return _described(prefix, "system", origin, exe)
    return None


def _located(text: str, variables: Mapping[str, str], cwd: str) -> Optional[Path]:
    if "/" in text:
        return Path(os.path.normpath(Path(cwd) / text))
    for folder in variables.get("PATH", DEFAULT_PATH).split(":"):
        place = Path(cwd) / folder / text
        if folder and os.access(place, os.X_OK):
            return Path(os.path.normpath(place))
    return None


def _kind(prefix: Path) -> Optional[str]:
    if (prefix / "pyvenv.cfg").is_file():
        return "venv"
    return "conda" if (prefix / "conda-meta").is_dir() else None


def _has_python(prefix: Path) -> bool:
    return any(os.access(prefix / "bin" / name, os.X_OK) for name in ("python", "python3"))


def _described(prefix: Path, kind: str, origin: str, exe: Optional[str]) -> Dict[str, Any]:
    try:
        said = VERSION.search((prefix / "pyvenv.cfg").read_text(errors="replace"))
    except OSError:
        said = None
    for python in ("python", "python3"):
        if said is None:
            real = os.path.realpath(prefix / "bin" / python)
            said = re.search(r"python(\d+\.\d+)$", real)
    runs = os.access(prefix / "bin" / "python", os.X_OK)
    version = said[1] if said else None
    return {"path": str(prefix), "kind": kind, "version": version, "from": origin, "python": runs}
