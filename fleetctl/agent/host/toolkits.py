"""CUDA toolkits of a host, the ptxas that environments bring, and their ninja: read from files where that can be."""

from __future__ import annotations

import mmap
import os
import re
import shutil
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional

from fleetctl.agent.errors import AgentError
from fleetctl.agent.files import read_json, read_start
from fleetctl.agent.units import systemd

Json = Dict[str, Any]

LOCAL = Path("/usr/local")
UNIT_PATH = "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NVCC_S = 2.0
BUILD = re.compile(rb"release (\d+\.\d+), V(\d+\.\d+\.\d+)|cuda_(\d+\.\d+)\.r\d+\.\d+/compiler")
PTXAS = (
    "triton/backends/nvidia/bin/ptxas*",
    "triton/third_party/cuda/bin/ptxas*",
    "triton/common/../third_party/cuda/bin/ptxas*",
    "nvidia/cuda_nvcc/bin/ptxas",
    "nvidia/cu1[0-9]/bin/ptxas",
    "torch/bin/ptxas",
)


def toolkits(more: Iterable[str] = (), seconds: float = NVCC_S) -> List[Json]:
    """``{"path", "version", "nvcc", "default", "links"}`` of each toolkit, by its real path.

    Looked for in /usr/local/cuda*, ``more``, CUDA_HOME, CUDA_PATH and where the PATH's nvcc lies. ``default`` is the
    one that a build finds: CUDA_HOME, CUDA_PATH, the PATH's nvcc, /usr/local/cuda. ``links``: other names of it.
    """
    on_path = shutil.which("nvcc")
    first = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), _root_of(on_path), str(LOCAL / "cuda")]
    named = [*filter(None, first), *map(str, sorted(LOCAL.glob("cuda*"))), *more]
    names: Dict[str, List[str]] = {}
    for name in named:
        if _is_toolkit(Path(name)):
            names.setdefault(os.path.realpath(name), []).append(name)
    default = next((os.path.realpath(name) for name in first if name and _is_toolkit(Path(name))), None)
    return [
        {
            "path": path,
            **_versions(Path(path), seconds),
            "default": path == default,
            "links": sorted(set(known) - {path}),
        }
        for path, known in names.items()
    ]


def _is_toolkit(root: Path) -> bool:
    return (
        (root / "version.json").is_file() or (root / "version.txt").is_file() or (root / "bin/nvcc").exists()
    )


def _root_of(nvcc: Optional[str]) -> Optional[str]:
    return str(Path(os.path.realpath(nvcc)).parent.parent) if nvcc else None


def _versions(root: Path, seconds: float) -> Json:
    """``{"version": "12.8", "nvcc": "12.8.93" or None}``; nvcc is run only where no file says its version."""
    said = read_json(root / "version.json")
    said = said if isinstance(said, dict) else {}
    version, nvcc = _said(said, "cuda"), _said(said, "cuda_nvcc")
    if version is None:
        found = re.search(rb"CUDA Version (\d+\.\d+)", _start(root / "version.txt"))
        version = found[1].decode() if found else None
    compiler = root / "bin/nvcc"
    if not os.access(compiler, os.X_OK):
        nvcc = None
    elif nvcc is None or version is None:
        release, nvcc = _ask(compiler, seconds)
        version = version or release
    if version is None:
        named = re.search(r"(\d+\.\d+)", root.name)
        version = named[1] if named else None
    return {"version": _short(version), "nvcc": nvcc}


def _ask(nvcc: Path, seconds: float) -> "tuple[Optional[str], Optional[str]]":
    try:
        found = BUILD.search(systemd.run([str(nvcc), "--version"], seconds).stdout.encode())
    except (AgentError, OSError):
        return None, None
    if not found:
        return None, None
    return (found[1] or found[3]).decode(), found[2].decode() if found[2] else None


def _said(said: Json, part: str) -> Optional[str]:
    entry = said.get(part)
    version = entry.get("version") if isinstance(entry, dict) else None
    return version if isinstance(version, str) else None


def _short(version: Optional[str]) -> Optional[str]:
    return ".".join(version.split(".")[:2]) if version else None


def _start(path: Path) -> bytes:
    try:
        return read_start(str(path), 4096)
    except OSError:
        return b""


def ptxas(environments: Iterable[str]) -> Dict[str, Optional[str]]:
    """The version of each ptxas in the environments, by path; None where the file does not tell it."""
    found: Dict[str, Optional[str]] = {}
    for environment in environments:
        root = Path(environment)
        for site in [*root.glob("lib*/python3*/site-packages"), root]:
            for pattern in PTXAS:
                for path in site.glob(pattern):
                    if path.is_file():
                        found[str(path)] = build_version(path)
    return found


def ninja(environments: Iterable[str]) -> Dict[str, Optional[str]]:
    """The ninja that a service of each environment finds on the PATH that its unit sets; None where there is none."""
    return {path: shutil.which("ninja", path=f"{path}/bin:{UNIT_PATH}") for path in environments}


def build_version(path: Path) -> Optional[str]:
    """``12.8.93`` (or ``12.8``) of an NVIDIA compiler's binary, by the text that its --version prints; not run."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            matches = [(match[2], match[3]) for match in BUILD.finditer(data)]
    except (OSError, ValueError):
        return None
    exact = next((full for full, _ in matches if full), None)
    found = exact or next((short for _, short in matches), None)
    return found.decode() if found else None
