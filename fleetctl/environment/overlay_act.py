"""Carry an overlay out: ``environment.derive`` on the base's host, which never changes the base."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetctl.agent.paths import ENVS
from fleetctl.environment.bring import brought_parts
from fleetctl.environment.events import OnEvent
from fleetctl.environment.overlay import OverlayPlan
from fleetctl.inventory.models import Host
from fleetctl.transport.agent import Agent


def derived_path(plan: OverlayPlan, name: str) -> str:
    """Where the result will be."""
    return f"{ENVS}/{name}-{plan.digest}"


def derive_arguments(
    plan: OverlayPlan, name: str, origin_host: str, parts: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The arguments of ``environment.derive``.

    ``parts`` is distribution → its part folder, where the source is on another host; without it the files are
    taken from the source's own path.
    """
    source = str(plan.source["path"])
    arguments: dict[str, Any] = {
        "name": name,
        "digest": plan.digest,
        "base": plan.base["path"],
        "overlays": [
            {
                "distribution": one.name,
                "from": (parts or {}).get(one.name, source),
                "path": source,
                "record": one.record,
            }
            for one in plan.taken
        ],
        "patches": [],
        "imports": [],
        "origin": {"host": origin_host, "path": plan.base["path"], "digest": plan.base["digest"]},
        "abi": plan.result["abi"].get("tag"),
    }
    removes = {"distributions": list(plan.removed), "paths": list(plan.paths)}
    return {**arguments, "removes": removes} if plan.removed or plan.paths else arguments


def apply_overlay(
    agent: Agent,
    plan: OverlayPlan,
    name: str,
    host: str,
    on_event: OnEvent,
    parts: Mapping[str, str] | None = None,
    proof: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make the derived environment on the base's host: ``environment.derive`` 's result.

    ``proof``: what else that is to prove.
    """
    arguments = {**derive_arguments(plan, name, host, parts), **(proof or {})}
    made: dict[str, Any] = agent.call("environment.derive", on_event=on_event, timeout=None, **arguments)
    return made


def overlay_from(
    agent: Agent,
    host: Host,
    source: Host,
    plan: OverlayPlan,
    name: str,
    on_event: OnEvent,
    proof: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """:func:`apply_overlay` on ``host``, with files that are on ``source``: from another host they are brought."""
    if source.name == host.name:
        return apply_overlay(agent, plan, name, host.name, on_event, proof=proof)
    taken = [one.name for one in plan.taken]
    with brought_parts(agent, source, host, dict(plan.source), taken, on_event) as parts:
        return apply_overlay(agent, plan, name, host.name, on_event, parts, proof)
