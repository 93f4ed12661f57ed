"""The distributions that a venv sees of the Python it was made from, where its settings say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Set

from fleetctl.agent.distributions import INFO, canonical, read_metadata
from fleetctl.agent.layout import Layout, sites_under
from fleetctl.agent.tree import names, shown


def inherited_sites(layout: Layout, version: Optional[str]) -> List[str]:
    """The site-packages folders of the Python behind a venv, on this host."""
    home = layout.settings.get("home", "")
    if not layout.has_system_packages or not home.startswith("/"):
        return []
    prefix = str(Path(home).parent)
    return [f"{prefix}/{site}" for site in sites_under(prefix, version)]


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
