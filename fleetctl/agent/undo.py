"""Back to what was there: only what the record shows as begun is undone; the old service proves itself."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Callable, List, Set

from fleetctl.agent import before, files, probes, record, steps, systemd
from fleetctl.agent.errors import AgentError
from fleetctl.agent.ladder import Failed
from fleetctl.agent.steps import Work

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
    if "start" in begun:
        limit = min(work.limit("stop"), FAILED_STOP_S)
        _try(undone, work, lambda: steps.stop(work, "restore-stop", work.new["unit"], limit))
        if not _old_runs(work):
            _try(undone, work, lambda: steps.free(work, "restore-free"), tolerated=True)
    if begun & {"install", "commit"}:
        _try(undone, work, lambda: _units(work, committing="commit" in begun))
    if "stop" not in begun or work.old is None or not work.old_was_active:
        undone.left = _left_without(work, begun)
        return undone
    unit = work.old["unit"]
    rungs: List[str] = work.before["rungs"]
    old = work.old
    if _try(undone, work, lambda: steps.start(work, old, "restore-", rungs)):
        serves = f"serves again ({', '.join(rungs)})"
        undone.left = f"{unit} {serves if rungs else 'was started again; it passed no probe before'}"
    else:
        undone.left = f"{unit} was started again and does not pass what it passed before"
    return undone


def _try(undone: Undone, work: Work, act: Callable[[], None], tolerated: bool = False) -> bool:
    """Do one part of the undo; the next ones are tried even where it fails."""
    try:
        act()
        return True
    except Failed as failed:
        reason, evidence = failed.reason, failed.evidence
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
    changed = before.put_back(unit, work.before["units"][unit])
    if committing:
        path = record.slot_path(work.plan["slot"])
        if work.before["slot"] is not None and files.read_json(path) != work.before["slot"]:
            files.write_json(path, work.before["slot"])
        elif work.before["slot"] is None and path.exists():
            path.unlink()
    systemd.daemon_reload()
    systemd.reset_failed(unit)
    work.record.ok("unit files are as they were" if changed else "unit files were as they should be")


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
