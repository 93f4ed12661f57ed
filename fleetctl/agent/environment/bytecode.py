"""Byte code of an environment: a sibling's where the source is the very same file, compiled otherwise.

The code objects carry paths relative to site-packages (Python puts the real path in at import), so that
byte code is the same in each environment and survives a move.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from fleetctl.agent.files import read_json
from fleetctl.agent.paths import MARKER

PARALLEL_FROM = 500
SKIPPED = r"/site-packages/.*/tests/"


def nearest(envs: Path, shas: List[str], python: str) -> Optional[Path]:
    """The environment in ``envs`` that shares the most wheels (by sha256); None where none shares any."""
    best: Tuple[int, Optional[Path]] = (0, None)
    for path in envs.glob("*/" + MARKER):
        content = read_json(path) or {}
        if content.get("python", {}).get("version") != python:
            continue
        common = len(set(shas) & {wheel["sha256"] for wheel in content.get("wheels", [])})
        best = max(best, (common, path.parent), key=lambda pair: pair[0])
    return best[1]


def link_compiled(packages: Path, sibling: Path) -> int:
    """Hard-link the sibling's byte code of each source that is one inode in both; how many were linked."""
    linked = 0
    for folder, names in _caches(sibling):
        there = packages / folder.relative_to(sibling)
        known: Dict[str, bool] = {}
        for name in names:
            source = name.split(".", 1)[0] + ".py"
            if source not in known:
                known[source] = _one_file(folder / source, there / source)
            if known[source]:
                (there / "__pycache__").mkdir(exist_ok=True)
                os.link(folder / "__pycache__" / name, there / "__pycache__" / name)
                linked += 1
    return linked


def compile_command(
    python: str, packages: Path, tag: Optional[str] = sys.implementation.cache_tag
) -> List[str]:
    """The command that compiles what has no byte code yet; on all cores where that is worth starting them.

    The packages' own tests are left out: a fifth of the work, and no server imports them.
    """
    compiled = sum(len(names) for _, names in _caches(packages, tag))
    skipped = re.compile(SKIPPED)
    sources = sum(
        name.endswith(".py")
        for folder, _, names in os.walk(packages)
        if not skipped.search(folder + "/")
        for name in names
    )
    cores = ["-j", "0"] if sources - compiled >= PARALLEL_FROM else []
    return [*_compileall(python, packages), *cores, str(packages)]


def compile_listed(python: str, packages: Path, listing: Path, count: int) -> List[str]:
    """The command that compiles the ``count`` sources whose paths are the lines of ``listing``."""
    cores = ["-j", "0"] if count >= PARALLEL_FROM else []
    return [*_compileall(python, packages), *cores, "-i", str(listing)]


def uncompiled(environment: Path, paths: Iterable[str], tag: str) -> List[str]:
    """Those of the paths (relative to the environment) that are sources without byte code, as absolute ones."""
    found = []
    for path in sorted(paths):
        source = environment / path
        is_wanted = path.endswith(".py") and "\n" not in path and not re.search(SKIPPED, f"/{path}")
        if is_wanted and source.is_file() and not _compiled(source, tag).exists():
            found.append(str(source))
    return found


def _compiled(source: Path, tag: str) -> Path:
    return source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc"


def _compileall(python: str, packages: Path) -> List[str]:
    return [python, "-I", "-B", "-m", "compileall", "-q", "-x", SKIPPED, "-s", str(packages), "-p", ""]


def _caches(
    packages: Path, tag: Optional[str] = sys.implementation.cache_tag
) -> Iterator[Tuple[Path, List[str]]]:
    """Each folder with byte code, and the names of its files for this interpreter."""
    ending = f".{tag}.pyc"
    for folder, _, names in os.walk(packages):
        if folder.endswith("/__pycache__"):
            yield Path(folder).parent, [name for name in names if name.endswith(ending)]


def _one_file(left: Path, right: Path) -> bool:
    try:
        return left.samefile(right)
    except FileNotFoundError:
        return False
