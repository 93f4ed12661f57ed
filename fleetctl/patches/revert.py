"""How a slot gets back to an environment: environments are not edited, so only the unit's path changes."""

from __future__ import annotations

from fleetctl.inventory.loader import Fleet
from fleetctl.patches.environment import Environment


def how_to_return(fleet: Fleet, environment: Environment, path: str) -> list[str]:
    """The commands, and the line of the inventory, that bring what runs in ``environment`` to ``path``."""
    listed = {entry["path"]: entry["slots"] for entry in environment.agent.call("environment.list")}
    now, then = listed.get(environment.path, {}), listed.get(path, {})
    back = [slot for slot, when in now.items() if when == "current" and then.get(slot) == "previous"]
    if back:
        return [f"fleetctl rollback {environment.host} --slot {slot}" for slot in back]
    host = fleet.hosts[environment.host]
    refs = [entry for entry in host.environments.values() if entry.path == environment.path]
    if not refs:
        where = fleet.where(host.name, "environments")
        return [
            f"name it in the inventory ({where}): environments: NAME: path: {path}",
            f"fleetctl deploy {host.name} --service SERVICE",
        ]
    services = [
        entry.name for entry in host.services.values() if entry.environment in [ref.name for ref in refs]
    ]
    steps = [
        f"write path: {path} at {fleet.where(host.name, 'environments', ref.name, 'path')}" for ref in refs
    ]
    return steps + [f"fleetctl deploy {host.name} --service {name}" for name in services]
