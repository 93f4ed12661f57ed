"""What a rollout's crash or a boot left half done: finished where it was committing, undone otherwise."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Dict, Optional, Set

from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.rollout import before, lock, overlap, probes, record, routing, steps, trial
from fleetctl.agent.rollout.aftermath import Aftermath
from fleetctl.agent.rollout.ladder import Failed
from fleetctl.agent.rollout.outcome import DONE, ROLLED_BACK, SUPERSEDED, LeftToBoot, conclude, outcome
from fleetctl.agent.rollout.record import Record
from fleetctl.agent.rollout.steps import Work
from fleetctl.agent.rollout.undo import FAILED_STOP_S
from fleetctl.agent.rollout.watch import Interrupt
from fleetctl.agent.units import systemd

Json = Dict[str, Any]


def main(folder: str) -> int:
    """Settle the rollout in ``folder``: its unit's ``ExecStopPost``, or the boot's. One with a result is left.

    A host that goes down starts nothing any more: then it is left to the next boot.
    """
    path = Path(folder)
    if (path / "result.json").exists():
        return 0
    kept = Record(path)
    if systemd.is_stopping():
        kept.info(record.LEFT_TO_BOOT)
        return 0
    try:
        held = lock.acquire(kept.plan["slot"], kept.plan, record.undo_bound(kept.plan))
    except AgentError as error:
        print(f"fleetctl: not recovered: {error.what}", file=sys.stderr)
        return error.exit
    if (path / "result.json").exists():
        return 0
    why = " ".join(
        os.environ.get(name, "") for name in ("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS")
    ).strip()
    try:
        return int(settle(kept, why or "its process is gone")["exit"])
    except LeftToBoot:
        kept.info(record.LEFT_TO_BOOT)
        return 0
    finally:
        os.close(held)


def settle(kept: Record, why: str) -> Json:
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
    found = Aftermath(work, begun)
    since = found.superseded()
    if since:
        return _leave(work, found, reason, since)
    if "commit" in begun and not any(step.startswith("restore-") for step in begun):
        finished = _finish(work, found)
        if finished is not None:
            return finished
    if found.runs(work.new["unit"]) and not found.is_ours() and work.same_unit:
        work.spared.add(work.new["unit"])
    kept.ok("going back to what was there before")
    evidence, signature = seen.get("evidence") or [], seen.get("signature")
    fix = (signature or {}).get("fix") or "deploy again"
    return conclude(work, begun, outcome("rolled-back", ROLLED_BACK, reason, fix, evidence, signature))


def _finish(work: Work, found: Aftermath) -> Optional[Json]:
    """Complete a commit: the new service had proven itself, and proves itself once more.

    None where it does not, or where a boot in the middle of the commit has brought the old one back.
    """
    unit, old = work.new["unit"], work.old
    if found.old_is_back():
        return None
    try:
        trial.make_last(unit, work.new["unit_text"], work.before["units"][unit])
        systemd.daemon_reload()
        if old is not None and not work.same_unit and not work.overlap and found.runs(old["unit"]):
            steps.stop(work, "finish-stop", old["unit"], work.limit("stop", old))
        steps.start(work, work.new, "finish-", probes.rungs_of(work.new))
        steps.commit(work)
    except Failed as failed:
        work.record.fail(failed.reason, {"evidence": failed.evidence})
        return None
    except (AgentError, OSError) as error:
        work.record.fail(str(error))
        return None
    work.record.failed_step = None
    if work.overlap:
        return overlap.finish(work)
    routing.close_old(work)
    left = f"slot {work.plan['slot']} is empty" if work.empties else unit
    said = f"{left if work.empties else f'{unit} serves'}; its commit was cut short, and finished"
    return work.record.result(outcome("done", DONE, said, left=left))


def _leave(work: Work, found: Aftermath, reason: str, since: str) -> Json:
    """Somebody has put the slot in order meanwhile: only what is this rollout's own goes away."""
    unit = work.new["unit"]
    work.record.ok(f"{since}: left as it is")
    problems: Set[str] = set()
    try:
        if found.runs(unit) and found.is_ours():
            steps.stop(work, "restore-stop", unit, min(work.limit("stop"), FAILED_STOP_S))
        if not work.same_unit or not found.runs(unit):
            work.record.begin("restore-units", f"{unit} is on trial no more")
            ended = trial.end(unit, work.before["units"][unit])
            systemd.daemon_reload()
            work.record.ok("done" if ended else "nothing was on trial")
        routing.release(work)
    except (Failed, AgentError, OSError) as error:
        work.record.fail(str(error))
        problems.add(str(error))
    fix = "see `fleetctl status`; deploy again where another service is wanted"
    left = f"{since}; it was left as it is"
    return work.record.result(
        outcome("superseded", SUPERSEDED, f"{reason}; {since}", fix, sorted(problems), left=left)
    )
