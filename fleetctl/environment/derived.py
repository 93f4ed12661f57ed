"""Environments made from others: the controller's side of ``environment.derive``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.environment.bom import Bom, tell_wrong
from fleetctl.environment.events import OnEvent
from fleetctl.errors import Exit, FleetError
from fleetctl.transport.agent import Agent

LOOKING_S = 600.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class ClonePlan:
    """What a clone would do; nothing where ``is_there``. Sizes in bytes.

    ``method`` is ``hardlink`` or ``reflink`` (its files cost no space), ``copy``, or ``sent`` from another host.
    """

    base: str
    name: str
    digest: str
    path: str
    is_there: bool
    method: str
    files: int
    bytes: int
    needed: int
    free: int
    abi: str | None

    def to_dict(self) -> dict[str, Any]:
        """The plan as one JSON object (``--json``)."""
        return {
            "base": self.base,
            "path": self.path,
            "digest": self.digest,
            "is_there": self.is_there,
            "method": self.method,
            "files": self.files,
            "bytes": self.bytes,
            "needed_bytes": self.needed,
            "free_bytes": self.free,
        }


def plan_clone(agent: Agent, base: str, name: str, on_event: OnEvent, host: str = "") -> ClonePlan:
    """Look at ``base`` on the agent's host. A clone has its base's digest, since what is in it is the same.

    What is wrong with the base is told in events; ``host`` is for their words.
    :class:`FleetError` (exit 5) where the base cannot be cloned or the disk is too full.
    """
    found = agent.call("environment.examine", timeout=LOOKING_S, base=base, name=name)
    digest = found["digest"]
    if digest is None:
        captured = agent.call("bom.capture", on_event=on_event, timeout=None, path=base)
        tell_wrong(captured, f"{host}:{base}" if host else base, on_event)
        digest = captured["digest"]
        found = agent.call("environment.examine", timeout=LOOKING_S, base=base, name=name, digest=digest)
    plan = ClonePlan(
        base,
        name,
        digest,
        found["path"],
        found["there"],
        found["method"],
        found["files"],
        found["bytes"],
        found["needed_bytes"],
        found["free_bytes"],
        found["abi"],
    )
    _require_room(plan)
    return plan


def plan_transfer(agent: Agent, bom: Bom, name: str) -> ClonePlan:
    """What a clone of another host's environment, which ``bom`` describes, would do on the agent's host.

    :class:`FleetError` (exit 5) where its interpreter does not run or the disk is too full.
    """
    if not bom["python"]["runs"]:
        raise FleetError(
            f"it cannot be cloned, its interpreter does not run: {bom['python']['why']}",
            where=f"{bom['hostname']}:{bom['path']}",
            fix="name an environment that works",
            exit=Exit.PREFLIGHT,
        )
    status = agent.call("environment.status", name=name, digest=bom["digest"], wheels=[])
    is_there = status["environment"] is not None
    needed = 0 if is_there else bom["bytes"]
    free = status["free_bytes"]
    sizes = (bom["files"], bom["bytes"], needed, free)
    path, digest, abi = status["path"], bom["digest"], bom["abi"].get("tag")
    plan = ClonePlan(bom["path"], name, digest, path, is_there, "sent", *sizes, abi)
    _require_room(plan)
    return plan


def _require_room(plan: ClonePlan) -> None:
    if plan.needed > plan.free and not plan.is_there:
        raise FleetError(
            f"the disk is too full for a copy: {plan.needed:,} bytes needed, {plan.free:,} free",
            where=plan.path,
            fix="free some space there: fleetctl env prune",
            exit=Exit.PREFLIGHT,
        )


def apply_clone(
    agent: Agent, plan: ClonePlan, host: str, on_event: OnEvent, proof: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Carry it out; the result of ``environment.derive``. ``host`` is where the base is, for the marker.

    ``proof``: what else it is to prove.
    """
    result: dict[str, Any] = agent.call(
        "environment.derive",
        on_event=on_event,
        timeout=None,
        name=plan.name,
        digest=plan.digest,
        base=plan.base,
        origin={"host": host, "path": plan.base, "digest": plan.digest},
        abi=plan.abi,
        **(proof or {}),
    )
    return result
