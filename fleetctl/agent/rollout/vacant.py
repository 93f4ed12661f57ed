"""A target that is no service: its slot is to be empty. It has a unit's name for the record, and never a unit."""

from __future__ import annotations

from typing import Any, Dict, Optional

from fleetctl.agent import paths


def is_vacant(target: Optional[Dict[str, Any]]) -> bool:
    """Whether a plan's target, or a slot's recorded service, is none."""
    return str((target or {}).get("unit", "")).startswith(paths.VACANT_UNITS)
