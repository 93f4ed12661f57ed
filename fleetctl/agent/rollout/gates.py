"""Where a service's nodes wait for each other: a rollout goes on when the controller has heard of all of them.

Without its word within the gate's time a rollout goes back, so that nodes never stay halfway for good. At the last
gate, ``sure``, it goes on: the node has been told that all are proven, and only waits to hear that all were told. So a
link that is lost before the one word or after it leaves all nodes at one.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from fleetctl.agent import files
from fleetctl.agent.errors import INPUT, AgentError
from fleetctl.agent.rollout import probes, record, watch
from fleetctl.agent.rollout.ladder import Failed
from fleetctl.agent.rollout.steps import Work
from fleetctl.agent.units import systemd

Json = Dict[str, Any]

SURE = "sure"
GATES = ("begin", "stop", "commit", SURE)


def go(args: Json, emit: Callable[[Json], None]) -> Json:
    """``rollout.go``: open a gate of a rollout; ``{"open": bool, "why"}``, not open where it has ended."""
    if args["gate"] not in GATES:
        raise AgentError(f"no gate {args['gate']!r}", fix=f"known: {', '.join(GATES)}", exit=INPUT)
    folder = record.folder_of(args["id"])
    if not (folder / "plan.json").exists():
        raise AgentError(f"there is no rollout {args['id']}", where=str(folder))
    if (folder / "result.json").exists():
        return {"open": False, "why": "it has ended already"}
    files.write(_word(folder, args["gate"]), f"{time.time()}\n", 0o600)
    return {"open": True, "why": ""}


def hold(work: Work, gate: str) -> None:
    """Wait at a gate that the plan has; before the commit the new service must stay as it was proven."""
    limit = (work.plan.get("gates") or {}).get(gate)
    if limit is None:
        return
    folder, unit = work.record.folder, work.new["unit"]
    work.record.begin(f"hold-{gate}", "the other nodes")
    proven = gate in ("commit", SURE) and not work.empties
    began = systemd.show([unit])[unit] if proven else {}

    def look() -> Optional[str]:
        if _word(folder, gate).exists():
            return None
        if began:
            _unchanged(unit, began)
        return "the other nodes"

    waiting = work.until(float(limit), look)
    if waiting is not None and gate == SURE:
        work.record.ok(f"no word for {limit:g} s since all nodes were proven: going on")
        return
    if waiting is not None:
        fix = "the controller or another node was lost: see to it, then deploy again"
        raise Failed(f"no word of the other nodes within {limit:g} s", fix=fix)
    work.record.ok("all nodes are so far")


def _unchanged(unit: str, began: systemd.Properties) -> None:
    now = systemd.show([unit])[unit]
    if now.get("InvocationID") != began.get("InvocationID") or not probes.running(now):
        state = f"{now.get('ActiveState')} ({now.get('SubState')})"
        evidence = [f"journal: {line[:400]}" for line in watch.tail(unit)]
        raise Failed(f"{unit} is {state}, while the other nodes were waited for", evidence)


def _word(folder: Path, gate: str) -> Path:
    return folder / f"go-{gate}"
