"""What removing environments would free: bytes of files that have no name anywhere else.

uv's cache keeps a second name of each file that a build linked. Pruning removes from it what no environment has any
more, so its names do not count as uses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterable, List, Tuple

from fleetctl.agent.capture.foldertree import Tree, walk

CACHE = "uv-cache"
Inode = Tuple[int, int]


def cache_links(root: Path) -> Dict[Inode, int]:
    """How many names of each file lie in uv's cache."""
    counts: Dict[Inode, int] = {}
    for tree in trees([root / CACHE / "archive-v0"]):
        for stat in tree.files.values():
            counts[stat.st_dev, stat.st_ino] = counts.get((stat.st_dev, stat.st_ino), 0) + 1
    return counts


def sizes(found: Iterable[Tree], cached: Dict[Inode, int]) -> Dict[str, int]:
    """``own_bytes`` of the files whose every name lies in the trees or in the cache, and ``shared_bytes``."""
    seen: Dict[Inode, List[int]] = {}
    for tree in found:
        for stat in tree.files.values():
            inode = (stat.st_dev, stat.st_ino)
            entry = seen.setdefault(inode, [stat.st_nlink - cached.get(inode, 0), stat.st_size])
            entry[0] -= 1
    own = sum(size for others, size in seen.values() if others <= 0)
    return {"own_bytes": own, "shared_bytes": sum(size for _, size in seen.values()) - own}


def trees(paths: Iterable[Path]) -> List[Tree]:
    """A walk of each that is there; one that goes away meanwhile is left out."""
    found = []
    for path in paths:
        try:
            found.append(walk(str(path)))
        except FileNotFoundError:
            continue
    return found


def unused_packages(root: Path) -> Dict[str, int]:
    """Distributions in uv's cache of which no environment has a file: name → bytes."""
    found: Dict[str, int] = {}
    for tree in trees((root / CACHE / "archive-v0").glob("*")):
        infos = [folder for folder in tree.folders if folder.endswith(".dist-info") and "/" not in folder]
        if infos and all(stat.st_nlink == 1 for stat in tree.files.values()):
            name = infos[0].split("-")[0]
            found[name] = found.get(name, 0) + tree.bytes()
    return found
