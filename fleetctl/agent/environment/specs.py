"""Which environment a specification made, remembered by a key of what it says; and what came from elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from fleetctl.agent.errors import AgentError
from fleetctl.agent.files import read_json, write_json
from fleetctl.agent.paths import MARKER, ROOT

Emit = Callable[[Dict[str, Any]], None]
FOLDER = "specs"


def remember(args: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Note that the environment at ``path`` is what specification ``name`` with ``key`` (12 hex) made.

    ``args``: ``name``, ``key``, ``path``, ``root``?. Result: ``{"path"}``.
    """
    place = _place(args)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_json(place, {"schema": 1, "path": args["path"]}, 0o644)
    return {"path": args["path"]}


def recall(args: Dict[str, Any], emit: Emit) -> Optional[Dict[str, Any]]:
    """``{"path", "digest"}`` of what ``remember`` was told, or None where that is not there any more."""
    path = (read_json(_place(args)) or {}).get("path")
    marker = read_json(Path(path) / MARKER) if path else None
    return {"path": path, "digest": marker["digest"]} if marker else None


def discard(args: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Remove what came from another host, once something was derived from it: a folder in ``incoming/``.

    ``args``: ``path``, ``empty`` (only where nothing is in it), ``root``?. Result: ``{"removed": bool}``.
    """
    incoming, path = Path(args.get("root", ROOT)) / "incoming", Path(args["path"])
    if path.parent != incoming or path.name in ("", ".", ".."):
        raise AgentError(f"{path} is not in {incoming}", where=str(path))
    there = path.is_dir() and not path.is_symlink()
    if args.get("empty") and there and any(path.iterdir()):
        return {"removed": False}
    shutil.rmtree(path, ignore_errors=True)
    return {"removed": there}


def _place(args: Dict[str, Any]) -> Path:
    return Path(args.get("root", ROOT)) / FOLDER / f"{args['name']}-{args['key']}.json"
