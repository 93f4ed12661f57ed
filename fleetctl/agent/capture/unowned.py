"""The files of an environment that no distribution names, and packages that were copied into themselves."""

from __future__ import annotations

import fnmatch
import re
from typing import Any, Dict, List, Sequence, Set

from fleetctl.agent.capture.distributions import Distribution
from fleetctl.agent.capture.tree import Tree, shown

FILES = 200
SHARED_NAMES = 2
LIBRARY = re.compile(r"\.so(?:\.\d+)*$")
FURNITURE = (
    "pyvenv.cfg",
    ".lock",
    ".gitignore",
    "CACHEDIR.TAG",
    ".fleetctl-env.json",
    "bin/activate*",
    "bin/Activate.ps1",
    "bin/deactivate*",
    "bin/pydoc.bat",
    "bin/python*",
)
SITE_FURNITURE = ("_virtualenv.py", "_virtualenv.pth")


def unowned_files(
    tree: Tree, distributions: Sequence[Distribution], others: Set[str], sites: Sequence[str], kind: str
) -> List[str]:
    """Paths of files that no RECORD names, but those that make the venv itself, byte code and metadata.

    ``others`` are files that something else owns (a conda package).
    """
    owned = {*others}
    infos: Set[str] = set()
    for one in distributions:
        owned.update(one.owned)
        infos.add(one.info)
    furniture = {f"{site}/{name}" if site else name for site in sites for name in SITE_FURNITURE}
    skipped = "bin/*" if kind == "folder" else "conda-meta/*" if kind == "conda" else ""
    found = []
    for path in tree.files:
        if path in owned or path in furniture or path.endswith(".pyc"):
            continue
        if _in_info(path, infos) or (skipped and fnmatch.fnmatchcase(path, skipped)):
            continue
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in FURNITURE):
            continue
        found.append(path)
    return sorted(found)


def is_code(path: str, sites: Sequence[str]) -> bool:
    """Whether Python may load an unowned file: by import, as a library, or at its start."""
    return in_site(path, sites) and (path.endswith((".py", ".pth")) or LIBRARY.search(path) is not None)


def in_site(path: str, sites: Sequence[str]) -> bool:
    """Whether a path lies in one of the site-packages folders."""
    return any(not site or path.startswith(site + "/") for site in sites)


def from_site(path: str, sites: Sequence[str]) -> str:
    """The path relative to the site-packages folder that it is in."""
    for site in sites:
        if site and path.startswith(site + "/"):
            return path[len(site) + 1 :]
    return path


def describe_unowned(tree: Tree, unowned: Sequence[str], sites: Sequence[str]) -> Dict[str, Any]:
    """The BOM's ``unowned``."""
    return {
        "count": len(unowned),
        "bytes": sum(tree.files[path].size for path in unowned),
        "files": [shown(path) for path in unowned[:FILES]],
        "packages": nested_copies(tree, unowned, sites),
    }


def nested_copies(tree: Tree, unowned: Sequence[str], sites: Sequence[str]) -> List[str]:
    """Packages in a package of the same name (``sglang/sglang``) that no RECORD names and that look like it.

    Relative to site-packages. A package within a copy is not named again.
    """
    folders = sorted({path.rpartition("/")[0] for path in unowned if path.endswith("/__init__.py")})
    found: List[str] = []
    for folder in folders:
        above, _, name = folder.rpartition("/")
        if above.rpartition("/")[2] != name or any(folder.startswith(f"{one}/") for one in found):
            continue
        shared = {*tree.folders.get(above, ())} & {*tree.folders.get(folder, ())} - {"__pycache__", name}
        if len(shared) >= SHARED_NAMES:
            found.append(folder)
    return [shown(from_site(folder, sites)) for folder in found]


def twice(distributions: Sequence[Distribution]) -> List[Dict[str, Any]]:
    """Names that have two info folders in one site-packages, with their versions."""
    groups: Dict[Any, List[Distribution]] = {}
    for one in distributions:
        if one.info:
            groups.setdefault((one.name, one.site), []).append(one)
    return [
        {
            "name": name,
            "versions": [one.version for one in group],
            "infos": [shown(one.info) for one in group],
        }
        for (name, _), group in sorted(groups.items())
        if len(group) > 1
    ]


def _in_info(path: str, infos: Set[str]) -> bool:
    if path in infos:
        return True
    folder = path.rpartition("/")[0]
    while folder:
        if folder in infos:
            return True
        folder = folder.rpartition("/")[0]
    return False
