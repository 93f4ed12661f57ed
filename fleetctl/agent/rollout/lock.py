"""A slot's lock: a flock that its holder's process carries, so that it dies with it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, Dict, Optional

from fleetctl.agent.errors import LOCKED, AgentError
from fleetctl.agent.paths import LOCKS
from fleetctl.agent.rollout.record import checked_name
from fleetctl.agent.rollout.vacant import is_vacant

FOLDER = Path(LOCKS)
RETRY_S = 0.05


def path_of(slot: str) -> Path:
    """The slot's lock file."""
    return FOLDER / f"{checked_name(slot, 'slot name')}.lock"


def acquire(slot: str, plan: Dict[str, Any], patience_s: float) -> int:
    """Take the slot's lock until the descriptor is closed or this process ends; its text says who holds it."""
    FOLDER.mkdir(mode=0o755, exist_ok=True)
    handle = os.open(path_of(slot), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    end = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= end:
                os.close(handle)
                raise locked(slot, holder(slot) or {}) from None
            time.sleep(RETRY_S)
    about = plan.get("old") if is_vacant(plan["new"]) else plan["new"]
    text = {
        "rollout": plan["id"],
        "kind": plan.get("kind"),
        "service": (about or plan["new"]).get("service"),
        "unit": plan["new"]["unit"],
        "operator": plan.get("operator"),
        "from": plan.get("from"),
        "since": time.time(),
        "pid": os.getpid(),
    }
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(text).encode(), 0)
    return handle


def holder(slot: str) -> Optional[Dict[str, Any]]:
    """Who holds the slot's lock, as :func:`acquire` wrote it; None where nobody does."""
    try:
        handle = os.open(path_of(slot), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        try:
            text = json.loads(os.read(handle, 65536))
        except ValueError:
            text = {}
        return text if isinstance(text, dict) else {}
    finally:
        os.close(handle)


def locked(slot: str, by: Dict[str, Any]) -> AgentError:
    """The error that names a slot's holder."""
    since = by.get("since")
    age = f", for {max(time.time() - since, 0):.0f} s" if isinstance(since, (int, float)) else ""
    who = f" of {by['operator']}" if by.get("operator") else ""
    who += f" from {by['from']}" if by.get("from") else ""
    return AgentError(
        f"slot {slot} is locked by rollout {by.get('rollout', '(starting or ending)')}{who}{age}",
        where=str(path_of(slot)),
        fix="follow it: `fleetctl attach`; or have it undo itself: `fleetctl abort`",
        exit=LOCKED,
    )
