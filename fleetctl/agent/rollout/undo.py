"""Back to what was there: only what the record shows as begun is undone; the old service proves itself."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Set

from fleetctl.agent import files
from fleetctl.agent.errors import AgentError
from fleetctl.agent.rollout import before, probes, record, routing, steps, trial
from fleetctl.agent.rollout.ladder import Failed
from fleetctl.agent.rollout.steps import Work
from fleetctl.agent.units import systemd

RELOAD_S = 30.0
FAILED_STOP_S = 10.0
"""A service that failed has no request worth a longer wait while nothing serves."""


class Undone:
    """What the undo came to: ``left`` is what fills the slot now, ``problems`` what could not be put back."""

    def __init__(self) -> None:
        self.left = ""
        self.problems: List[str] = []
        self.fix = ""
        self.evidence: List[str] = []


def undo(work: Work, begun: Set[str]) -> Undone:
    """Put everything back. Safe to do again after a crash in the middle of it."""
    undone = Undone()
    if work.overlap and _old_runs(work) and "unroute" in begun:
        _try(undone, work, lambda: routing.restore(work))
    if "start" in begun and work.new["unit"] not in work.spared:
        limit = min(work.limit("stop"), FAILED_STOP_S)
        _try(undone, work, lambda: steps.stop(work, "restore-stop", work.new["unit"], limit))
        if not _old_runs(work):
            _try(undone, work, lambda: steps.free(work, "restore-free"), tolerated=True)
    if begun & {"install", "commit"}:
        _try(undone, work, lambda: _units(work, committing="commit" in begun))
        if work.same_unit and systemd.is_stale(work.new["unit"]):
            undone.left = f"{work.new['unit']} is stopped: systemd would start the text that failed"
            return undone
    if work.old is None or not work.old_was_active or not _must_start(work, begun):
        if "unroute" in begun and not work.overlap:
            _try(undone, work, lambda: routing.restore(work))
        undone.left = _left_without(work, begun)
        return undone
    unit = work.old["unit"]
    rungs: List[str] = work.before["rungs"]
    old = work.old
    if _try(undone, work, lambda: _start_again(work, old, rungs)):
        serves = f"serves again ({', '.join(rungs)})"
        undone.left = f"{unit} {serves if rungs else 'was started again; it passed no probe before'}"
    else:
        undone.left = f"{unit} was started again and does not pass what it passed before"
    if "unroute" in begun:
        _try(undone, work, lambda: routing.restore(work))
    return undone


def _start_again(work: Work, old: Dict[str, Any], rungs: List[str]) -> None:
    """Start the old service and have it prove itself; one that is killed meanwhile gets another try."""
    try:
        steps.start(work, old, "restore-", rungs)
    except Failed as failed:
        if not failed.died:
            raise
        work.record.info(f"{failed.reason}: started once more", {"evidence": failed.evidence})
        steps.start(work, old, "restore-", rungs)


def _must_start(work: Work, begun: Set[str]) -> bool:
    """Whether the old service was stopped, or ended by itself beside the new one."""
    return "stop" in begun or (work.overlap and not _old_runs(work))


def _try(undone: Undone, work: Work, act: Callable[[], None], tolerated: bool = False) -> bool:
    """Do one part of the undo; the next ones are tried even where it fails."""
    try:
        act()
        return True
    except Failed as failed:
        reason, evidence = failed.reason, failed.evidence
        undone.fix = undone.fix or failed.fix
    except AgentError as error:
        reason, evidence = error.what, error.evidence
    except OSError as error:
        reason, evidence = str(error), []
        undone.fix = undone.fix or disk_fix(error)
    work.record.fail(reason, {"evidence": evidence})
    if not tolerated:
        undone.problems.append(reason)
        undone.evidence += evidence
    return False


def disk_fix(error: OSError) -> str:
    """What to do about a file that could not be written."""
    place = Path(error.filename).parent if error.filename else record.HOME
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"free space there: `df -h {place}` and `df -i {place}`, `fleetctl env list`; then deploy again"
        )
    return f"see to the disk and the permissions of {place}, then deploy again"


def _units(work: Work, committing: bool) -> None:
    unit = work.new["unit"]
    work.record.begin("restore-units", "unit files and enablement as they were")
    if committing:
        _enablement(work)
    changed = trial.end(unit, work.before["units"][unit])
    if files.read_text(str(systemd.UNITS / unit)) == work.new["unit_text"]:
        changed = before.put_back(unit, work.before["units"][unit]) or changed
    if committing:
        _slot_state(work)
    _reload(work)
    systemd.reset_failed(unit)
    work.record.ok("unit files are as they were" if changed else "unit files were as they should be")


def _reload(work: Work) -> None:
    """Have systemd read what is there; a refusal matters only where it would start what was just taken back."""
    try:
        systemd.daemon_reload()
    except AgentError as error:
        work.record.info(error.what, {"evidence": error.evidence})
    unit = work.new["unit"]

    def look() -> Optional[str]:
        if not work.same_unit or not systemd.is_stale(unit):
            return None
        try:
            systemd.daemon_reload()
        except AgentError as error:
            return error.what
        return None

    waiting = work.until(RELOAD_S, look)
    if waiting is not None:
        fix = f"`systemctl daemon-reload && systemctl start {unit}` there, once systemd takes it"
        raise Failed(f"{waiting}, for {RELOAD_S:g} s", fix=fix)


def _slot_state(work: Work) -> None:
    """The slot's state as it was, unless somebody else's rollout has written it since."""
    path, there = record.slot_path(work.plan["slot"]), work.before["slot"]
    now = files.read_json(path)
    if isinstance(now, dict) and now.get("rollout") != work.plan["id"]:
        return
    if there is None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    elif now != there:
        files.write_json(path, there)


def _enablement(work: Work) -> None:
    for unit, there in work.before["units"].items():
        if there["enabled"] == "enabled":
            systemd.enable(unit)
        elif systemd.show([unit])[unit].get("UnitFileState") == "enabled":
            systemd.disable(unit)


def _old_runs(work: Work) -> bool:
    """Whether an undo that was itself cut short had started the old one already."""
    if work.old is None or work.old["unit"] == work.new["unit"]:
        return False
    unit = work.old["unit"]
    return probes.running(systemd.show([unit])[unit])


def _left_without(work: Work, begun: Set[str]) -> str:
    if "stop" not in begun and work.old is not None and work.old_was_active:
        return f"{work.old['unit']} was not touched"
    if work.old is not None and not work.old_was_active:
        return f"{work.old['unit']} was not running before and is not now"
    return f"slot {work.plan['slot']} is as empty as before"
