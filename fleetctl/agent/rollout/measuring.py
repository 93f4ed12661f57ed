"""Others see that a slot is being measured: a flock of this agent, which ends as the measurement does, killed too."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict

from fleetctl.agent.paths import LOCKS
from fleetctl.agent.rollout.record import checked_name

FOLDER = Path(LOCKS)
HELD: Dict[str, int] = {}
"""Open until the agent ends, by slot."""


def begin(args: Dict[str, Any], emit: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
    """``slot`` is being measured, as ``by`` says (``operator``, ``from``, ``what``), until this agent ends.

    It keeps nobody from anything: where somebody else measures there, that one stays named.
    """
    slot = checked_name(args["slot"], "slot name")
    if slot in HELD:
        return {"named": True}
    FOLDER.mkdir(mode=0o755, exist_ok=True)
    handle = os.open(FOLDER / f"{slot}.measured", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return {"named": False}
    HELD[slot] = handle
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps({**args["by"], "since": time.time()}).encode(), 0)
    return {"named": True}
