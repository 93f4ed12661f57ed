"""A model's files on this host: whether the right ones are there, and the switch to ones just sent.

The files arrive in ``<path>.partial``; the manifest is written into it when all are there, then it gets its
name.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Callable, Dict

from fleetctl.agent.environment.damage import model_damage
from fleetctl.agent.environment.environments import size
from fleetctl.agent.environment.staging import device, disk_errors, free_bytes, sync
from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.files import read_json, sync_folder, write_json
from fleetctl.agent.paths import MODEL_MARKER as MARKER

SUFFIX = ".partial"
OLD = ".old"


def status(args: Dict[str, Any], emit: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
    """What is at ``path``: ``{"exists", "digest", "damaged", "partial_bytes", "free_bytes", "device"}``.

    ``digest`` is None where fleetctl sent no model there; ``damaged`` are files that are not as they were sent.
    """
    path = Path(args["path"])
    _finish_switch(path)
    partial = path.with_name(path.name + SUFFIX)
    sent = sum(entry.stat().st_size for entry in partial.rglob("*") if entry.is_file())
    return {
        "exists": path.exists(),
        "digest": (read_json(path / MARKER) or {}).get("digest"),
        "damaged": model_damage(path),
        "partial_bytes": sent,
        "free_bytes": free_bytes(path),
        "device": device(path),
    }


def commit(args: Dict[str, Any], emit: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
    """Give ``<path>.partial`` its name; the model that had it goes. Nothing where this very model has it.

    ``args``: ``path``, ``digest``, ``files`` ``{relative path: bytes}``. Files in it that are not listed are
    removed first. Raises :class:`AgentError` (exit 5) when one is missing or has another size, or the disk
    refuses.
    """
    path, files = Path(args["path"]), args["files"]
    partial, old = path.with_name(path.name + SUFFIX), path.with_name(path.name + OLD)
    with disk_errors(path, sum(files.values())):
        if (read_json(path / MARKER) or {}).get("digest") == args["digest"]:
            shutil.rmtree(partial, ignore_errors=True)
            return {"path": str(path)}
        for entry in sorted(partial.rglob("*"), reverse=True):
            if entry.is_dir():
                _remove_if_empty(entry)
            elif entry.relative_to(partial).as_posix() not in files:
                entry.unlink()
        wrong = [name for name, length in files.items() if size(partial / name) != length]
        if wrong:
            raise AgentError(
                f"not sent whole: {', '.join(wrong[:5])}",
                where=str(partial),
                fix="run it again: it goes on where it stopped",
                exit=PREFLIGHT,
            )
        write_json(partial / MARKER, {"schema": 1, "digest": args["digest"], "files": files}, 0o644)
        sync(partial)
        if path.exists():
            path.rename(old)
        partial.rename(path)
        sync_folder(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    return {"path": str(path)}


def _finish_switch(path: Path) -> None:
    """Undo the first half of a switch whose second half never came (a power cut between two renames)."""
    old = path.with_name(path.name + OLD)
    if not path.exists() and old.exists():
        old.rename(path)


def _remove_if_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
