"""The environments of a host: what is there, what a build would need, and who uses which."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from fleetctl.agent.environment.staging import SUFFIX, device, free_bytes
from fleetctl.agent.files import read_json
from fleetctl.agent.paths import MARKER, ROOT


def status(args: Dict[str, Any], emit: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
    """Whether one environment is there and, if not, which wheels for it are not.

    ``args``: ``name``, ``digest``, ``wheels`` ``[{"filename", "size", "sha256"}]``, ``root``?. Result:
    ``{"path", "environment": its marker or None, "missing": [filename], "free_bytes", "device"}``.
    """
    root = Path(args.get("root", ROOT))
    path = environment_path(root, args["name"], args["digest"])
    there = marker(path, args["digest"])
    wheels = [] if there is not None else args["wheels"]
    return {
        "path": str(path),
        "environment": there,
        "missing": [wheel["filename"] for wheel in wheels if not is_whole(root / "wheelhouse", wheel)],
        "free_bytes": free_bytes(path.parent),
        "device": device(path.parent),
    }


def list_environments(args: Dict[str, Any], emit: Callable[[Dict[str, Any]], None]) -> List[Dict[str, Any]]:
    """Every environment: its marker, its ``path``, and ``slots``: ``{slot: "current"|"previous"}``.

    With ``sizes`` also ``own_bytes``, which its removal would free, and ``shared_bytes``, which are other
    environments' too.
    """
    root = Path(args.get("root", ROOT))
    used = used_by_slots(root / "slots")
    found = []
    for path in environments(root):
        content = read_json(path / MARKER)
        if isinstance(content, dict):
            found.append({**content, "path": str(path), "slots": used.get(str(path), {})})
    if args.get("sizes"):
        from fleetctl.agent.environment.sizes import cache_links, sizes, trees

        cached = cache_links(root)
        for one in found:
            one.update(sizes(trees([Path(one["path"])]), cached))
    return found


def environments(root: Path) -> List[Path]:
    """The environments' folders; none that is being made or removed."""
    found = (path.parent for path in (root / "envs").glob("*/" + MARKER))
    return sorted(path for path in found if not path.name.endswith(SUFFIX))


def environment_path(root: Path, name: str, digest: str) -> Path:
    """Where the environment of that name and digest is."""
    return root / "envs" / f"{name}-{digest}"


def marker(path: Path, digest: str) -> Optional[Dict[str, Any]]:
    """What the environment at ``path`` says it is; None where it is not there or is another one."""
    content: Dict[str, Any] = read_json(path / MARKER) or {}
    return content if content.get("digest") == digest else None


def is_whole(wheelhouse: Path, wheel: Dict[str, Any]) -> bool:
    """Whether the wheel is there, byte for byte; another one may have the same name and size."""
    path = wheelhouse / wheel["filename"]
    if size(path) != wheel["size"]:
        return False
    import hashlib

    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return bool(digest.hexdigest() == wheel["sha256"])


def size(path: Path) -> int:
    """Bytes of a regular file, -1 where there is none."""
    return path.stat().st_size if path.is_file() else -1


def used_by_slots(slots: Path) -> Dict[str, Dict[str, str]]:
    """Environment path → slot → ``current`` or ``previous``: whether the slot runs it now or ran it before."""
    used: Dict[str, Dict[str, str]] = {}
    for path in slots.glob("*.json"):
        state = read_json(path) or {}
        before = state.get("previous") or {}
        for when, target in (("previous", before), ("current", state)):
            environment = target.get("environment")
            if environment:
                used.setdefault(environment, {})[path.stem] = when
    return used
