"""The words of a command line that are paths of models, or names of models in the downloads' cache."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Optional

from fleetctl.agent.host import facts

Json = Dict[str, Any]

MOST_PATHS = 30
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def described(arguments: List[Optional[str]], cwd: str, variables: Dict[str, str]) -> Json:
    """``{"paths": {word: facts of it}, "hub": {name: folder in the cache}}`` of the words that may be models."""
    words = [(word or "").partition("=")[2] if (word or "").startswith("--") else word for word in arguments]
    paths: Json = {}
    hub: Dict[str, str] = {}
    for word in [word for word in words if word][:MOST_PATHS]:
        place = os.path.normpath(Path(cwd) / word)
        if len(word) < 1024 and (word.startswith(("/", "./", "../")) or os.path.isdir(place)):  # noqa: PTH112
            try:
                paths[word] = {"path": place, **facts.path_facts(place)}
            except (OSError, ValueError):
                paths[word] = {"path": place, "exists": False, "kind": None, "bytes": 0}
        elif HUB_NAME.fullmatch(word):
            folder = _hub_folder(word, variables)
            if folder:
                hub[word] = folder
    return {"paths": paths, "hub": hub}


def _hub_folder(name: str, variables: Dict[str, str]) -> Optional[str]:
    """The newest snapshot of a model that was downloaded by its name."""
    home = variables.get("HF_HOME") or str(
        Path(variables.get("HOME") or str(Path("~").expanduser())) / ".cache/huggingface"
    )
    top = Path(variables.get("HF_HUB_CACHE") or Path(home) / "hub") / f"models--{name.replace('/', '--')}"
    try:
        folders = [path for path in (top / "snapshots").iterdir() if path.is_dir()]
        return str(max(folders, key=lambda path: path.stat().st_mtime)) if folders else None
    except OSError:
        return None
