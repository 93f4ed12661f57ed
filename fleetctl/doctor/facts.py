"""Facts on the controller: gathered through a host's agent or on this machine, kept in files, read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fleetctl.errors import FleetError

SCHEMA = 1
GATHER_S = 600.0


def load_facts(path: Path) -> dict[str, Any]:
    """The facts in a file; FleetError (exit 2) where it holds none, or those of another schema."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FleetError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise FleetError(
            f"not JSON: {error}", where=str(path), fix="fleetctl facts HOST --json -o FILE"
        ) from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise FleetError(
            "not facts of this schema", where=str(path), fix="fleetctl facts HOST --json -o FILE"
        )
    return found


def call_here(name: str, /, *, on_event: Any = None, **args: Any) -> Any:
    """One call of the agent's, in this process."""
    from fleetctl.agent.calls import find

    return find(name)(args, on_event or (lambda event: None))
