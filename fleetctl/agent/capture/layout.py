"""What kind of environment a path is: its root, its interpreter and its site-packages, without running more of it
than its interpreter.
"""

from __future__ import annotations

import glob
import json
import os
import re
import select
import subprocess
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

from fleetctl.agent.capture.tree import names, shown
from fleetctl.agent.errors import AgentError

ASK_S = 5.0
ASK_LIMIT = 4096
ASK = (
    "import sys,json;print(json.dumps({'version':'%d.%d.%d'%sys.version_info[:3],"
    "'implementation':sys.implementation.name,'prefix':sys.prefix}))"
)
SHORT = {"cpython": "cp", "pypy": "pp"}
SITES = (
    "lib/python3.*/site-packages",
    "lib64/python3.*/site-packages",
    "lib/python3.*/dist-packages",
    "lib/python3/dist-packages",
    "local/lib/python3.*/dist-packages",
    "local/lib/python3.*/site-packages",
)


class Said(NamedTuple):
    """What an interpreter answered; ``why`` it did not run."""

    version: Optional[str]
    implementation: str
    prefix: Optional[str]
    why: str


class Layout(NamedTuple):
    """Where an environment's parts are. ``root`` is absolute; ``sites`` are relative to it where inside."""

    kind: str
    root: str
    python: Optional[str]
    sites: List[str]
    settings: Dict[str, str]

    @property
    def has_system_packages(self) -> bool:
        """Whether a venv sees the packages of the Python that it was made from."""
        return self.settings.get("include-system-site-packages", "").lower() == "true"


def find_layout(path: str) -> Layout:
    """The environment that ``path`` names: its folder, its interpreter or its site-packages.

    :class:`AgentError` where there is none.
    """
    place = os.path.abspath(path)
    if not path.startswith("/") or "\0" in path:
        raise AgentError(f"not an absolute path: {shown(path)}", fix="give the environment's whole path")
    try:
        os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        raise AgentError(
            "there is no such environment", where=shown(place), fix="see `ls` of the folder above it"
        ) from None
    if os.path.isdir(place):
        return _folder(place)
    if not os.path.basename(place).startswith("python"):
        raise _none(place)
    above = os.path.dirname(os.path.dirname(place))
    if _is_venv(above) or _is_conda(above):
        return _folder(above)
    if not os.access(place, os.X_OK):
        raise AgentError("this interpreter cannot be run", where=shown(place), fix="is its target there?")
    return _system(place)


def ask_python(python: str) -> Said:
    """The interpreter's version and prefix, asked without site and without the user's settings, for 5 s at most."""
    nothing = Said(None, "", None, "")
    if not os.path.exists(python):
        target = shown(os.path.realpath(python))
        return nothing._replace(why=f"it is a link to {target}, which is not there")
    if not os.access(python, os.X_OK) or not os.path.isfile(python):
        return nothing._replace(why="it is no program that this user may run")
    try:
        text, why = _run([python, "-I", "-S", "-c", ASK])
    except OSError as error:
        return nothing._replace(why=f"it does not start: {error.strerror}")
    try:
        said = json.loads(text.strip().splitlines()[-1])
        return Said(str(said["version"]), str(said["implementation"]), str(said["prefix"]), "")
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return nothing._replace(why=why or "it does not answer as a Python")


def python_tag(layout: Layout, said: Said) -> Tuple[Optional[str], Optional[str]]:
    """``(version, tag)`` like ``("3.12.3", "cp312")``: as the interpreter said, else as the files do."""
    settings = layout.settings
    version = said.version or settings.get("version") or settings.get("version_info")
    if version is None:
        in_path = re.search(r"python(3\.\d+)", " ".join([*layout.sites, layout.root]))
        version = in_path.group(1) if in_path else None
    if version is None:
        return None, None
    parts = re.findall(r"\d+", version)[:3]
    implementation = (said.implementation or settings.get("implementation") or "cpython").lower()
    short = SHORT.get(implementation, implementation)
    return ".".join(parts), short + "".join(parts[:2])


def sites_under(prefix: str, version: Optional[str]) -> List[str]:
    """The folders under a prefix, relative to it, that a Python of that version takes packages from."""
    minor = ".".join((version or "").split(".")[:2])
    return [
        site for site in _sites(prefix) if f"/python{minor}/" in f"/{site}/" or "/python3/" in f"/{site}/"
    ]


def _folder(place: str) -> Layout:
    if _is_venv(place):
        return _with_sites("venv", place, _python_of(place), _settings(place))
    if _is_conda(place):
        return _with_sites("conda", place, _python_of(place), {})
    above = _environment_above(place)
    if above is not None:
        return _folder(above)
    if _is_site(place):
        return Layout("folder", place, None, [""], {})
    python = _python_of(place)
    if python is not None and _sites(place):
        return _with_sites("system", place, python, {})
    raise _none(place)


def _none(place: str) -> AgentError:
    return AgentError(
        "neither a venv nor a conda environment, a Python or a folder of packages",
        where=shown(place),
        fix="give the folder that holds pyvenv.cfg or conda-meta, a site-packages folder, or a python3",
    )


def _environment_above(place: str) -> Optional[str]:
    """The environment whose site-packages folder ``place`` is."""
    if os.path.basename(place) not in ("site-packages", "dist-packages"):
        return None
    above = str(Path(place).parents[2])
    return above if _is_venv(above) or _is_conda(above) else None


def _is_venv(place: str) -> bool:
    return os.path.isfile(f"{place}/pyvenv.cfg")


def _is_conda(place: str) -> bool:
    return os.path.isdir(f"{place}/conda-meta")


def _is_site(place: str) -> bool:
    found = names(Path(place))
    return os.path.basename(place) in ("site-packages", "dist-packages") or any(
        name.endswith((".dist-info", ".egg-info")) for name in found
    )


def _python_of(place: str) -> Optional[str]:
    for name in ("python", "python3"):
        if os.path.lexists(f"{place}/bin/{name}"):
            return f"{place}/bin/{name}"
    return None


def _settings(place: str) -> Dict[str, str]:
    """``pyvenv.cfg``; what cannot be read has no settings."""
    try:
        with open(f"{place}/pyvenv.cfg", encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 16).splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _with_sites(kind: str, place: str, python: Optional[str], settings: Dict[str, str]) -> Layout:
    return Layout(kind, place, python, _sites(place), settings)


def _sites(place: str) -> List[str]:
    """Site-packages under a prefix, each real folder once."""
    found: Dict[str, str] = {}
    for pattern in SITES:
        for path in sorted(glob.glob(f"{glob.escape(place)}/{pattern}")):
            if os.path.isdir(path):
                found.setdefault(os.path.realpath(path), os.path.relpath(path, place))
    return list(found.values())


def _system(python: str) -> Layout:
    said = ask_python(python)
    if said.prefix is None or said.version is None:
        raise AgentError(f"this interpreter does not run: {said.why}", where=shown(python), fix="repair it")
    sites = sites_under(said.prefix, said.version)
    return Layout("system", said.prefix, python, sites, {})


def _run(argv: List[str]) -> Tuple[str, str]:
    """What a command prints in its first lines, and why that is all."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        cwd="/",
    ) as asked:
        assert asked.stdout is not None
        output, deadline = b"", time.monotonic() + ASK_S
        try:
            while len(output) < ASK_LIMIT:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([asked.stdout], [], [], left)[0]:
                    return "", f"it has not answered within {ASK_S:g} s"
                chunk = os.read(asked.stdout.fileno(), ASK_LIMIT)
                if not chunk:
                    break
                output += chunk
        finally:
            asked.kill()
    text = output.decode("utf-8", "replace")
    last = text.strip().splitlines()[-1:]
    return text, f"it does not run: {last[0][:200]}" if last else "it ends without a word"
