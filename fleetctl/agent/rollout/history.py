"""What was rolled out on this host: the records under /var/lib/fleetctl/rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from fleetctl.agent.host.facts import STATE, locked_by
from fleetctl.agent.rollout.record import read_events

HEAD = ("kind", "slot", "created", "operator")
TARGET = ("service", "mode", "unit", "environment", "environment_digest", "model_id", "adopted")


def history(args: Dict[str, Any], emit: Callable[[Dict[str, Any]], None]) -> List[Dict[str, Any]]:
    """Rollouts, newest first, at most ``limit`` (default 20), of one ``slot`` or of all.

    Each is its plan's head (``id``, ``kind``, ``slot``, ``created``, ``operator``, ``new``, ``old``) and its
    ``result``. ``outcome`` is the result's, or ``running``, ``crashed`` (no result, nobody at work on it) or
    ``unreadable`` (with a ``reason``); without a result, ``last`` is the rollout's last event.
    """
    found: List[Dict[str, Any]] = []
    for folder in sorted((STATE / "rollouts").glob("*"), reverse=True):
        if len(found) == args.get("limit", 20):
            break
        rollout = _rollout(folder)
        if not args.get("slot") or rollout.get("slot") == args["slot"]:
            found.append(rollout)
    return found


def _rollout(folder: Path) -> Dict[str, Any]:
    try:
        plan = json.loads((folder / "plan.json").read_text())
        head = {key: plan[key] for key in HEAD}
        new, old = _target(plan["new"]), _target(plan.get("old"))
        result = _result(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"id": folder.name, "outcome": "unreadable", "reason": f"{type(error).__name__}: {error}"}
    entry = {"id": folder.name, **head, "new": new, "old": old, "result": result}
    if result is not None:
        return {**entry, "outcome": result.get("outcome", "unreadable")}
    outcome = "running" if _at_work(folder.name, head["slot"]) else "crashed"
    return {**entry, "outcome": outcome, "last": _last(folder)}


def _last(folder: Path) -> Optional[Dict[str, Any]]:
    """The last whole event of a rollout; None before the first."""
    events = list(read_events(folder))
    return events[-1] if events else None


def _target(target: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    return None if target is None else {key: target.get(key) for key in TARGET}


def _result(folder: Path) -> Optional[Dict[str, Any]]:
    try:
        result: Dict[str, Any] = json.loads((folder / "result.json").read_text())
    except FileNotFoundError:
        return None
    return result


def _at_work(rollout: str, slot: str) -> bool:
    lock = locked_by(slot)
    return lock is not None and lock.get("rollout") == rollout
