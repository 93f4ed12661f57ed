"""What deriving from an environment would take; changes nothing but for one file that is tried and removed."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict

from fleetctl.agent.capture.foldertree import shown
from fleetctl.agent.environment.base import Base, require_apart
from fleetctl.agent.environment.environments import environment_path, marker
from fleetctl.agent.environment.linktree import COPY, choose
from fleetctl.agent.environment.promise import Promise
from fleetctl.agent.environment.staging import free_bytes
from fleetctl.agent.errors import AgentError
from fleetctl.agent.paths import ROOT


def examine(args: Dict[str, Any], emit: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
    """Look at ``base`` as :func:`derive.derive` would, and raise what it would raise before it begins.

    ``args``: ``base``, ``name``?, ``digest``?, ``expects``? (the base's digest, as its marker says), ``host``? (for
    words), ``root``?. Result: ``{"path": where ``name`` would be or None,
    "there": bool, "digest": of an environment that fleetctl made and nobody changed, or None, "abi", "python",
    "method", "files", "bytes", "needed_bytes", "free_bytes"}``.
    """
    root = Path(os.path.abspath(args.get("root", ROOT)))
    path = str(args["base"]).rstrip("/")
    _require_folder(path)
    require_apart(path, root / "envs" / "any")
    base = Base(path, root)
    Promise(base, args.get("expects"), root, args.get("host") or "").require_unedited()
    files = base.files()
    digest = args.get("digest") or base.marker.get("digest")
    final = environment_path(root, args["name"], digest) if args.get("name") and digest else None
    folder = next(place for place in (root / "envs", *root.parents) if place.is_dir())
    with tempfile.TemporaryDirectory(dir=str(folder), prefix=".fleetctl-") as trial:
        method = choose(f"{path}/pyvenv.cfg", trial, base.trust.immutable)
    size = sum(base.tree.files[file].st_size for file in files)
    return {
        "path": str(final) if final else None,
        "there": final is not None and marker(final, str(digest)) is not None,
        "digest": base.marker.get("digest"),
        "abi": base.marker.get("abi"),
        "python": {"tag": base.python["tag"], "version": base.python["version"]},
        "method": method,
        "files": len(files),
        "bytes": size,
        "needed_bytes": size if method == COPY else 0,
        "free_bytes": free_bytes(root / "envs"),
    }


def _require_folder(path: str) -> None:
    """Raises :class:`AgentError` (exit 2) for what is not there and for a file."""
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.lexists(path):
            raise AgentError(
                "there is no such environment", where=shown(path), fix="see `ls` of the folder above it"
            ) from None
        return
    if is_file:
        raise AgentError(
            f"{shown(path)} is a file, not a venv",
            where=shown(path),
            fix="name the folder that holds pyvenv.cfg",
        )
