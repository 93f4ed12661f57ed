"""The environments of a host: what is there, what a build would need, and who uses which."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from fleetctl.agent.staging import free_bytes, read_json

ROOT = "/var/lib/fleetctl"
MARKER = ".fleetctl-env.json"


def status(args: Dict[str, Any], emit: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
    """Whether one environment is there, and which wheels for it are not.

    ``args``: ``name``, ``digest``, ``wheels`` ``[{"filename", "size"}]``, ``root``?. Result: ``{"path",
    "environment": its marker or None, "missing": [filename], "free_bytes"}``.
    """
    root = Path(args.get("root", ROOT))
    path = environment_path(root, args["name"], args["digest"])
    wheelhouse = root / "wheelhouse"
    missing = [
        wheel["filename"] for wheel in args["wheels"] if size(wheelhouse / wheel["filename"]) != wheel["size"]
    ]
    return {
        "path": str(path),
        "environment": marker(path, args["digest"]),
        "missing": missing,
        "free_bytes": free_bytes(root),
    }


def list_environments(args: Dict[str, Any], emit: Callable[[Dict[str, Any]], None]) -> List[Dict[str, Any]]:
    """Every environment: its marker, its ``path``, and ``slots``: ``{slot: "current"|"previous"}``."""
    root = Path(args.get("root", ROOT))
    used = _used(root / "slots")
    found = []
    for path in sorted((root / "envs").glob("*/" + MARKER)):
        content = read_json(path)
        if content is not None:
            found.append({**content, "path": str(path.parent), "slots": used.get(str(path.parent), {})})
    return found


def environment_path(root: Path, name: str, digest: str) -> Path:
    """Where the environment of that name and digest is."""
    return root / "envs" / f"{name}-{digest}"


def marker(path: Path, digest: str) -> Optional[Dict[str, Any]]:
    """What the environment at ``path`` says it is; None where it is not there or is another one."""
    content = read_json(path / MARKER)
    return content if content is not None and content.get("digest") == digest else None


def size(path: Path) -> int:
    """Bytes of a regular file, -1 where there is none."""
    return path.stat().st_size if path.is_file() else -1


def _used(slots: Path) -> Dict[str, Dict[str, str]]:
    """Environment path → slot → whether the slot runs it now or ran it before."""
    used: Dict[str, Dict[str, str]] = {}
    for path in slots.glob("*.json"):
        state = read_json(path) or {}
        before = state.get("previous") or {}
        for when, target in (("previous", before), ("current", state.get("target") or state)):
            environment = target.get("environment")
            if environment:
                used.setdefault(environment, {})[path.stem] = when
    return used
