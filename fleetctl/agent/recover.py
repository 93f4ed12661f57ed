"""What a rollout's crash left half done: finished where it was committing, undone otherwise."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Dict, Optional

from fleetctl.agent import before, lock, overlap, probes, record, steps
from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.outcome import DONE, ROLLED_BACK, conclude, outcome
from fleetctl.agent.record import Record
from fleetctl.agent.steps import Work
from fleetctl.agent.watch import Interrupt

LOCK_PATIENCE_S = 30.0
PROOF = {"process", "unit", "port"}


def main(folder: str) -> int:
    """Settle the rollout in ``folder``, as its unit's ``ExecStopPost``; one with a result is left."""
    path = Path(folder)
    if (path / "result.json").exists():
        return 0
    kept = Record(path)
    try:
        held = lock.acquire(kept.plan["slot"], kept.plan, LOCK_PATIENCE_S)
    except AgentError as error:
        print(f"fleetctl: not recovered: {error.what}", file=sys.stderr)
        return error.exit
    if (path / "result.json").exists():
        return 0
    why = " ".join(
        os.environ.get(name, "") for name in ("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS")
    ).strip()
    code = int(settle(kept, why or "its process is gone")["exit"])
    os.close(held)
    return code


def settle(kept: Record, why: str) -> Dict[str, Any]:
    """Finish or undo, by what the record shows as begun, and write the result. The slot must be locked."""
    begun = record.begun(kept.past)
    last = next((event["step"] for event in reversed(kept.past) if event["state"] != "info"), None)
    failure = next((event for event in kept.past if event["state"] == "fail"), None)
    kept.seconds = record.seconds_of(kept.past)
    reason = f"the rollout's process ended in step {last or 'lock'} ({why})"
    kept.begin("recover", reason)
    kept.failed_step = failure["step"] if failure else last
    seen = (failure or {}).get("data") or {}
    if failure:
        reason = f"{failure['text']}; then {reason}"
    there = before.load(kept.folder)
    if there is None or not begun & record.CHANGING:
        kept.ok("nothing was changed")
        return kept.result(outcome("refused", PREFLIGHT, reason, "deploy again", left="nothing was changed"))
    work = Work(kept, Interrupt(), there)
    if "commit" in begun and not any(step.startswith("restore-") for step in begun):
        finished = _finish(work)
        if finished is not None:
            return finished
    kept.ok("going back to what was there before")
    evidence, signature = seen.get("evidence") or [], seen.get("signature")
    fix = (signature or {}).get("fix") or "deploy again"
    return conclude(work, begun, outcome("rolled-back", ROLLED_BACK, reason, fix, evidence, signature))


def _finish(work: Work) -> Optional[Dict[str, Any]]:
    """Complete a commit: the new service had proven itself, and must still be there."""
    passed = probes.passing(work.new, int(work.plan["port"]), work.limit("generate"))
    if not set(passed) >= PROOF & set(probes.rungs_of(work.new)):
        return None
    work.record.ok(f"{work.new['unit']} had proven itself: the commit is finished")
    try:
        steps.commit(work)
    except (AgentError, OSError) as error:
        work.record.fail(str(error))
        return None
    work.record.failed_step = None
    if work.overlap:
        return overlap.finish(work)
    return work.record.result(outcome("done", DONE, f"{work.new['unit']} serves", left=work.new["unit"]))
