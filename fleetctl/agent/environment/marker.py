"""What an environment's marker says beside its name: facts by which a later derivation need not read it all.

``stamp`` tells whether a file was edited in place since (:meth:`foldertree.Tree.stamp`). ``named_in`` are the files
that name the environment's own path, found by reading all of them once. ``records`` are the RECORDs' digests.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, Iterable, Optional

from fleetctl.agent.capture.foldertree import Tree
from fleetctl.agent.capture.installed import Site
from fleetctl.agent.capture.tree import shown_json
from fleetctl.agent.files import read_json
from fleetctl.agent.paths import MARKER


class Proof:
    """What the marker of an environment proves about the tree that was walked just now."""

    def __init__(self, tree: Tree) -> None:
        content = read_json_object(f"{tree.root}/{MARKER}")
        self.content: Optional[Dict[str, Any]] = content
        self.holds = content is not None and content.get("stamp") == tree.stamp()
        self._made_ns = tree.files[MARKER].st_mtime_ns if MARKER in tree.files else 0

    @property
    def named_in(self) -> Iterable[str]:
        """Files that name the environment's own path; only where the proof holds."""
        return list((self.content or {}).get("named_in", ()))

    def compiled_by_fleetctl(self, stat: os.stat_result) -> bool:
        """Whether byte code is as old as the environment: then its paths are relative. A server that runs
        writes some with whole paths."""
        return self.holds and stat.st_mtime_ns <= self._made_ns


def facts(tree: Tree, site: Site, named_in: Iterable[str], records: Dict[str, Any]) -> Dict[str, Any]:
    """The marker's keys that describe the tree. ``records`` are digests that are known already."""
    found = {}
    for name, infos in site.infos().items():
        for info in infos:
            found[name] = records[name] if name in records else site.digest(info)
    counted = [stat.st_size for path, stat in tree.files.items() if path != MARKER]
    return {
        "stamp": tree.stamp(),
        "named_in": sorted(named_in),
        "records": {name: digest for name, digest in sorted(found.items()) if digest is not None},
        "files": len(counted),
        "bytes": sum(counted),
    }


def made(path: str) -> Optional[Dict[str, Any]]:
    """How fleetctl made the environment at ``path``: ``{"origin", "overlays", "patches"}`` as its marker says; None
    for one that it did not make."""
    content = read_json_object(f"{path}/{MARKER}")
    if content is None:
        return None
    empty: Dict[str, Any] = {"origin": None, "overlays": [], "patches": []}
    said: Dict[str, Any] = shown_json({key: content.get(key, empty[key]) for key in empty})
    return said


def read_json_object(path: str) -> Optional[Dict[str, Any]]:
    """The JSON object in a file; None where there is none."""
    content = read_json(Path(path))
    return content if isinstance(content, dict) else None
