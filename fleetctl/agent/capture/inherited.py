"""The distributions that a venv sees of other folders: of the Python it was made from, where its settings say so,
and of the site-packages that its ``.pth`` files name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Set

from fleetctl.agent.capture.distributions import INFO, added_folders, canonical, read_metadata
from fleetctl.agent.capture.layout import Layout, sites_under
from fleetctl.agent.capture.tree import Tree, inside, names, shown
from fleetctl.agent.files import read_start

SITES = ("site-packages", "dist-packages")
PTH_LIMIT = 1 << 16


def added_by_pth(tree: Tree, sites: List[str]) -> Dict[str, str]:
    """The folders outside the environment that ``.pth`` files put on the module path, and the file that does."""
    found: Dict[str, str] = {}
    for site in sites:
        for name in sorted(tree.folders.get(site, [])):
            path = f"{site}/{name}" if site else name
            if not name.endswith(".pth") or path not in tree.files:
                continue
            try:
                text = read_start(tree.absolute(path), PTH_LIMIT).decode("utf-8", "replace")
            except OSError:
                continue
            for folder in added_folders(text):
                if not inside(folder, tree.root):
                    found.setdefault(folder, path)
    return found


def inherited_sites(layout: Layout, version: Optional[str], added: Dict[str, str]) -> List[str]:
    """The site-packages outside that a venv sees on this host, in the order in which Python looks: those of
    ``added`` (:func:`added_by_pth`; a folder of sources is none), then those of the Python behind it.
    """
    named = [folder for folder in added if Path(folder).name in SITES and Path(folder).is_dir()]
    home = layout.settings.get("home", "")
    if not layout.has_system_packages or not home.startswith("/"):
        return named
    prefix = str(Path(home).parent)
    return [*named, *(f"{prefix}/{site}" for site in sites_under(prefix, version))]


def inherited(folders: List[str], own: Set[str]) -> List[Dict[str, Any]]:
    """``{"name", "version", "info"}`` of each distribution in those folders that the venv has none of its own of."""
    found: Dict[str, Dict[str, Any]] = {}
    for folder in folders:
        for name in names(Path(folder)):
            match = INFO.fullmatch(name)
            if match is None:
                continue
            info = f"{folder}/{name}"
            said = dict(reversed(read_metadata(f"{info}/METADATA") or read_metadata(f"{info}/PKG-INFO")))
            known = canonical(said.get("name") or match.group("name"))
            version = said.get("version") or match.group("version") or ""
            if known not in own:
                found.setdefault(known, {"name": known, "version": version, "info": shown(info)})
    return [found[name] for name in sorted(found)]
