"""Who uses an environment: slots, rollouts under way, unit files, processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional

from fleetctl.agent.environment.environments import used_by_slots

UNITS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/system.control",
    "/run/systemd/transient",
)
PROC = "/proc"
Found = Dict[str, List[str]]


def users(root: Path, paths: List[str], units: Iterable[str] = UNITS, proc: str = PROC) -> Found:
    """Environment path → who uses it, as texts; a path that nobody uses is left out."""
    found: Found = {}
    for path, slots in used_by_slots(root / "slots").items():
        found[path] = [f"slot {slot} ({when})" for slot, when in sorted(slots.items())]
    for more in (_rollouts(root, paths), _units(paths, units), _processes(paths, proc)):
        for path, texts in more.items():
            found.setdefault(path, []).extend(texts)
    return found


def _rollouts(root: Path, paths: List[str]) -> Found:
    """Rollouts without a result yet, by what their plans name."""
    used: Found = {}
    for plan in (root / "rollouts").glob("*/plan.json"):
        if not (plan.parent / "result.json").exists():
            text = _text(plan)
            for path in paths:
                if path in text:
                    used.setdefault(path, []).append(f"rollout {plan.parent.name}")
    return used


def _units(paths: List[str], folders: Iterable[str]) -> Found:
    """Environment path → the unit files that name it."""
    used: Found = {}
    for folder in folders:
        for unit in sorted(Path(folder).rglob("*")):
            if unit.is_file():
                text = _text(unit)
                for path in paths:
                    if path in text:
                        used.setdefault(path, []).append(f"unit {unit}")
    return used


def _processes(paths: List[str], proc: str) -> Found:
    """Environment path → the processes that run from it: executable, command, working folder or mapped files."""
    used: Found = {}
    for folder in Path(proc).glob("[0-9]*"):
        named = set(_mentions(folder))
        for path in paths:
            if any(path + "/" in text or text == path for text in named):
                used.setdefault(path, []).append(f"process {folder.name}")
    return used


def _mentions(folder: Path) -> Iterator[str]:
    for link in ("exe", "cwd"):
        target = _link(folder / link)
        if target:
            yield target
    yield _text(folder / "cmdline").replace("\0", "\n")
    yield _text(folder / "maps")


def _link(path: Path) -> Optional[str]:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ""
