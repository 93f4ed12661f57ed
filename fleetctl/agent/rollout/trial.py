"""A unit's new text until it is committed: in /run, where systemd prefers it and a power cut forgets it.

So what stands under a name in /etc/systemd/system, and starts at boot, is always what proved itself last. A host
without systemd has only that one place.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Dict, Optional

from fleetctl.agent import files
from fleetctl.agent.units import supervised, systemd

FOLDER = Path("/run/systemd/system.control")
FRESH = Path("/run/systemd/system")
"""For a unit that the host did not have: systemd always looks here, and in :data:`FOLDER` only from a reload on."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def place(unit: str, there: Dict[str, Any]) -> Path:
    """Where a unit on trial has its text; ``there`` is the unit as ``before`` has it."""
    if supervised.in_charge():
        return systemd.UNITS / unit
    return (FRESH if is_new(there) else FOLDER) / unit


def is_new(there: Dict[str, Any]) -> bool:
    """Whether the host had no unit of that name."""
    return not there["fragment"] and there["file"]["kind"] == "absent"


def boot() -> str:
    """Which boot of the host this is; where there is no place that a boot forgets, it makes no difference."""
    if supervised.in_charge():
        return ""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def is_as_it_was(text: Optional[str], there: Dict[str, Any]) -> bool:
    """Whether the unit as ``before`` has it is the one wanted, so that nothing is to be written."""
    return text is None or (text == there["text"] and not there["fragment"].startswith("/run/"))


def begin(unit: str, text: str, there: Dict[str, Any]) -> None:
    """Have systemd take ``text`` for the unit, for this boot; from its next reload on where it knows another."""
    path = place(unit, there)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    files.write(path, text)


def stands(unit: str, text: str, there: Dict[str, Any]) -> bool:
    """Whether the unit is on trial with this text."""
    return files.read_text(str(place(unit, there))) == text


def end(unit: str, there: Dict[str, Any]) -> bool:
    """What /etc has counts again from the next reload on; True if the unit was on trial."""
    if supervised.in_charge():
        return False
    with contextlib.suppress(FileNotFoundError):
        place(unit, there).unlink()
        return True
    return False


def make_last(unit: str, text: Optional[str], there: Dict[str, Any]) -> None:
    """The text that proved itself is the unit's file. Safe to do twice, and after a boot."""
    if text is not None and not is_as_it_was(text, there):
        files.write(systemd.UNITS / unit, text)
    end(unit, there)
