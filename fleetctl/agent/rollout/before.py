"""What is there before a rollout touches anything: the target that an undo goes back to."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Dict, List, Optional

from fleetctl.agent import files
from fleetctl.agent.rollout import probes, record
from fleetctl.agent.units import systemd

Json = Dict[str, Any]

CONTEXT_MIB = 1024
NOT_LASTING = ("/run/systemd/transient/", "/run/systemd/system.control/")


def take(plan: Json, gpus: Json, units: Dict[str, systemd.Properties]) -> Json:
    """Unit files, enablement and activity of the slot's units, its state, the GPUs' baseline."""
    old = plan.get("old")
    leaving = units[old["unit"]] if old else {}
    return {
        "units": {unit: _unit(unit, properties) for unit, properties in units.items()},
        "slot": files.read_json(record.slot_path(plan["slot"])),
        "baseline_mib": baseline(plan["gpus"], gpus, systemd.cgroup_pids(leaving.get("ControlGroup", ""))),
        "rungs": [],
    }


def _unit(unit: str, properties: systemd.Properties) -> Json:
    path = systemd.UNITS / unit
    there: Json = {"kind": "absent"}
    if path.is_symlink():
        there = {"kind": "link", "to": os.readlink(path)}  # noqa: PTH115
    elif path.exists():
        there = {
            "kind": "file",
            "text": path.read_text(encoding="utf-8"),
            "mode": path.stat().st_mode & 0o7777,
        }
    fragment = properties.get("FragmentPath", "")
    text = None
    if fragment:
        with contextlib.suppress(OSError):
            text = Path(fragment).read_text(encoding="utf-8")
    return {
        "file": there,
        "text": text,
        "fragment": fragment,
        "enabled": properties.get("UnitFileState", ""),
        "active": probes.running(properties),
        "control_group": properties.get("ControlGroup", ""),
    }


def lasts(fragment: str) -> bool:
    """Whether a unit read from this file can be started again once it has stopped."""
    return not fragment.startswith(NOT_LASTING) and Path(fragment).is_file()


def baseline(slot_gpus: List[int], gpus: Json, leaving: List[int]) -> Dict[str, int]:
    """The memory that each of the slot's GPUs will have in use once the leaving processes are gone.

    Where the driver does not say which process uses how much, no more than a context's worth is expected.
    """
    found = {}
    for gpu in gpus["gpus"]:
        used = gpu.get("memory_used_mib")
        if gpu["index"] not in slot_gpus or used is None:
            continue
        own = [app for app in gpus["apps"] if app["gpu"] == gpu["index"] and app["pid"] in leaving]
        known = bool(own) and all(app["used_mib"] is not None for app in own)
        rest = used - sum(app["used_mib"] for app in own) if known else min(used, CONTEXT_MIB)
        found[str(gpu["index"])] = max(rest, 0)
    return found


def save(folder: Path, before: Json) -> None:
    """Keep it in the rollout's folder, unit files also as files that a person can copy back."""
    place = folder / "before"
    place.mkdir(mode=0o700, exist_ok=True)
    for unit, there in before["units"].items():
        if there["text"] is not None:
            files.write(place / unit, there["text"])
    files.write_json(place / "state.json", before)


def load(folder: Path) -> Optional[Json]:
    """What :func:`save` kept; None where the rollout did not come so far."""
    before = files.read_json(folder / "before" / "state.json")
    return before if isinstance(before, dict) else None


def put_back(unit: str, there: Json) -> bool:
    """Make the unit's file in /etc/systemd/system what it was; True if it was another."""
    path = systemd.UNITS / unit
    file = there["file"]
    if file["kind"] == "absent":
        if not path.exists() and not path.is_symlink():
            return False
        path.unlink()
        files.sync_folder(path.parent)
        return True
    if file["kind"] == "link":
        if path.is_symlink() and os.readlink(path) == file["to"]:  # noqa: PTH115
            return False
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        path.symlink_to(file["to"])
        return True
    if path.is_file() and not path.is_symlink() and path.read_text(encoding="utf-8") == file["text"]:
        return False
    files.write(path, file["text"], file["mode"])
    return True
