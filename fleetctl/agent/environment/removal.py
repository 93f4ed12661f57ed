"""Take distributions, and packages that were copied into themselves, out of a derived environment."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Dict, List, Set

from fleetctl.agent.capture.foldertree import shown
from fleetctl.agent.capture.installed import Site, canonical
from fleetctl.agent.environment.rewrite import forget_compiled, prune_empty
from fleetctl.agent.environment.scaffold import is_scaffold
from fleetctl.agent.errors import INPUT, PREFLIGHT, AgentError


def remove(site: Site, distributions: List[str], paths: List[str]) -> Set[str]:
    """Remove what the RECORDs of ``distributions`` name and nobody else's does, and the folders ``paths``.

    ``paths`` are relative to site-packages. Returns the removed files, relative to the environment. Raises
    :class:`AgentError`: exit 2 for a path that leads elsewhere, 5 for a distribution that is not there, a RECORD
    that cannot be trusted, or a folder that a RECORD names files of.
    """
    gone = {canonical(name) for name in distributions}
    infos = site.infos()
    absent = sorted(gone - infos.keys())
    if absent:
        raise AgentError(
            f"there is no {', '.join(absent)} to remove", where=shown(site.packages), exit=PREFLIGHT
        )
    kept = _owned(site, {name: known for name, known in infos.items() if name not in gone})
    removed: Set[str] = set()
    for name in sorted(gone):
        for info in infos[name]:
            removed |= _remove_files(site, info, kept)
    for path in paths:
        removed |= _remove_folder(site, path, kept)
    return removed


def _owned(site: Site, infos: Dict[str, List[str]]) -> Set[str]:
    owned: Set[str] = set()
    for known in infos.values():
        for info in known:
            if os.path.exists(f"{site.packages}/{info}/RECORD"):
                owned |= site.files(info)
    return owned


def _remove_files(site: Site, info: str, kept: Set[str]) -> Set[str]:
    own = {inside for inside in site.files(info) - kept if not is_scaffold(inside)}
    removed = set()
    for inside in own:
        file = f"{site.environment}/{inside}"
        forget_compiled(file)
        if os.path.islink(file) or os.path.isfile(file):
            os.unlink(file)
            removed.add(inside)
    shutil.rmtree(f"{site.packages}/{info}", ignore_errors=True)
    for folder in sorted({os.path.dirname(f"{site.environment}/{inside}") for inside in own}, reverse=True):
        if os.path.isdir(folder):
            prune_empty(folder, site.packages)
    return removed


def _remove_folder(site: Site, path: str, kept: Set[str]) -> Set[str]:
    inside = os.path.normpath(f"{site.lead}/{path}")
    folder = Path(site.environment, inside)
    if not inside.startswith(f"{site.lead}/") or folder.is_symlink() or not folder.is_dir():
        raise AgentError(
            f"{shown(path)} is no folder of {shown(site.packages)}", where=shown(site.packages), exit=INPUT
        )
    files = {
        os.path.relpath(os.path.join(top, name), site.environment)
        for top, _, names in os.walk(folder)
        for name in names
    }
    if files & kept:
        raise AgentError(
            f"{shown(path)} is not stray: a RECORD names files in it",
            where=shown(site.packages),
            fix="remove the distribution that they are of",
            evidence=[shown(name) for name in sorted(files & kept)[:5]],
            exit=PREFLIGHT,
        )
    shutil.rmtree(folder)
    return files
