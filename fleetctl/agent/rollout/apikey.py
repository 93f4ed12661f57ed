"""The key that a service's server asks of its clients: one of the secrets that its unit names, read on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

from fleetctl.agent.units import systemd, unitfile


def of(target: Dict[str, Any]) -> str:
    """The key of a service, or of what fills a slot; "" where it asks for none, or its file cannot be read."""
    variable, unit = target.get("api_key"), target.get("unit")
    if not variable or not unit:
        return ""
    from fleetctl.agent.units import launcher

    fragment = systemd.show([unit])[unit].get("FragmentPath")
    found: Dict[str, str] = {}
    for path in unitfile.settings([_text(fragment or "")]).get("EnvironmentFile", []):
        found.update(launcher.variables(_text(path.lstrip("-"))))
    return found.get(variable, "")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
