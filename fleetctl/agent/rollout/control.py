"""The calls by which a controller starts, follows and aborts a rollout that is not its own process."""

from __future__ import annotations

import contextlib
import errno
import json
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from fleetctl.agent import files, paths
from fleetctl.agent.errors import INPUT, PREFLIGHT, AgentError
from fleetctl.agent.rollout import bootunit, keeper, lock, record, recover
from fleetctl.agent.rollout.outcome import NOT_RESTORED
from fleetctl.agent.units import supervised, systemd

Json = Dict[str, Any]
Emit = Callable[[Json], None]

TAIL_S = 0.02
LONGEST_TAIL_S = 0.1
LIVE_EVERY_S = 1.0
ENDING_S = 15.0
GONE_S = 3.0
DEADLINES = ("drain", "stop", "free", "ready", "generate")
NEW = ("unit", "unit_text", "service", "probe")
ENDED = ("inactive", "failed")


def unit_of(slot: str) -> str:
    """The transient unit that runs a slot's rollout; there can be one only."""
    return f"{paths.ROLLOUT_UNITS}{record.checked_name(slot, 'slot name')}.service"


def start(args: Json, emit: Emit) -> Json:
    """``rollout.start``: write the plan and start its unit; exit 4 where another one holds the slot.

    ``settles`` in its result: the unfinished rollouts that it settles first, and the most seconds each may take.
    """
    plan = checked(args["plan"])
    slot = plan["slot"]
    _wait_for_the_last(slot, look=supervised.in_charge())
    folder = record.folder_of(plan["id"])
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, mode=0o700)
            stack.enter_context(record.being_started(folder))
            files.write_json(folder / "plan.json", plan)
            bootunit.arm(folder, plan, record.undo_bound(plan))
            (folder / "reserve").write_bytes(b"\0" * record.RESERVE_BYTES)
        except FileExistsError as error:
            raise AgentError(f"rollout {plan['id']} exists already", where=str(folder)) from error
        except PermissionError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        except OSError as error:
            _forget(folder)
            raise _unwritten(error, folder) from error
        settles = record.unsettled(slot, but=plan["id"])
        try:
            refused = _begin(slot, folder, plan)
        except AgentError:
            _forget(folder)
            raise
        if refused is not None:
            _forget(folder)
            if not _has_ended(slot):
                raise lock.locked(slot, lock.holder(slot) or {})
            what = "the rollout was not started; nothing was changed"
            raise AgentError(what, where=unit_of(slot), evidence=refused, exit=PREFLIGHT)
        return {"id": plan["id"], "settles": settles}


def settle(args: Json, emit: Emit) -> Json:
    """``rollout.settle``: have a rollout that was cut short finished or undone, and follow that to its result."""
    folder, plan = _known(args["id"])
    slot = plan["slot"]
    if not (folder / "result.json").exists():
        _wait_for_the_last(slot)
        if not list(record.read_events(folder)):
            recover.main(str(folder))
        refused = _begin(slot, folder, plan, "recover")
        if refused is not None and not (folder / "result.json").exists():
            what = "the recovery was not started; nothing was changed"
            raise AgentError(what, where=unit_of(slot), evidence=refused, exit=PREFLIGHT)
    return follow(args, emit)


def _forget(folder: Path) -> None:
    bootunit.disarm(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _unwritten(error: OSError, folder: Path) -> AgentError:
    """The record, or what settles it at the next boot, could not be written: nothing was begun."""
    what, fix = str(error), "free some space: `fleetctl env list` shows old environments; nothing was changed"
    if error.errno == errno.EROFS and error.filename:
        what, fix = f"{Path(error.filename).parent} is read-only", "mount it writable; nothing was changed"
    return AgentError(what, where=str(folder), fix=fix, exit=PREFLIGHT)


def checked(plan: Any) -> Json:
    """The plan, if it has what a rollout needs to begin with."""
    if not isinstance(plan, dict) or plan.get("schema") != 1:
        raise AgentError(
            "not a plan of schema 1", fix="controller and agent must be of one version", exit=INPUT
        )
    missing = [key for key in ("id", "slot", "port", "gpus", "new", "deadlines") if key not in plan]
    missing += [f"deadlines.{name}" for name in DEADLINES if name not in plan.get("deadlines", {})]
    missing += [f"new.{key}" for key in NEW if key not in plan.get("new", {})]
    probe = plan.get("new", {}).get("probe") or {}
    missing += [f"new.probe.{key}" for key in ("prompt", "max_tokens") if key not in probe]
    if missing:
        raise AgentError(f"the plan lacks {', '.join(missing)}", exit=INPUT)
    record.checked_name(plan["slot"], "slot name")
    return plan


def _wait_for_the_last(slot: str, look: bool = True) -> None:
    """A rollout at work locks the slot; one that has its result and only ends is waited for.

    Without ``look``, only where it still has the lock: systemd refuses a unit that is there.
    """
    end = time.monotonic() + ENDING_S
    while True:
        held = lock.holder(slot)
        if held is None and (not look or _has_ended(slot)):
            return
        if held and not (record.folder_of(held.get("rollout")) / "result.json").exists():
            raise lock.locked(slot, held)
        if time.monotonic() >= end:
            raise lock.locked(slot, held or {})
        time.sleep(TAIL_S)


def _has_ended(slot: str) -> bool:
    return systemd.show([unit_of(slot)])[unit_of(slot)]["ActiveState"] in ENDED


def _begin(slot: str, folder: Path, plan: Json, verb: str = "rollout") -> Optional[List[str]]:
    """Start the rollout as a process that outlives this one; the words of who refused it, or None."""
    if supervised.in_charge():
        agent = [sys.executable, "-I", "-S", str(Path(sys.argv[0]).resolve())]
        return None if keeper.start(unit_of(slot), agent, folder) else ["one runs already"]
    done = systemd.run(_command(slot, folder, plan, verb))
    if done.returncode:
        _wait_for_the_last(slot)
        done = systemd.run(_command(slot, folder, plan, verb))
    return done.stderr.splitlines() if done.returncode else None


def _command(slot: str, folder: Path, plan: Json, verb: str) -> List[str]:
    agent = [sys.executable, "-I", "-S", str(Path(sys.argv[0]).resolve())]
    undoing = record.undo_bound(plan)
    unsettled = shlex.join(["test", "-e", str(folder / "result.json")])
    recovery = f"{unsettled} || exec {shlex.join([*agent, 'recover', str(folder)])}"
    properties = {
        "Description": f"fleetctl rollout {plan['id']}",
        "ExecStopPost": f'/bin/sh -c "{recovery}"',
        "TimeoutStopSec": f"{undoing:.0f}",
        "KillMode": "mixed",
        "OOMScoreAdjust": "-900",
    }
    settings = [f"--property={name}={value}" for name, value in properties.items()]
    unit = [f"--unit={unit_of(slot)}", "--collect", "--quiet", "--service-type=exec", "--no-ask-password"]
    return ["systemd-run", *unit, *settings, "--", *agent, verb, str(folder)]


def follow(args: Json, emit: Emit) -> Json:
    """``rollout.follow``: every event from the first on, then the result; read from the other's record."""
    folder, plan = _known(args["id"])
    tail = _Tail(folder / "events.jsonl")
    looked = time.monotonic()
    gone_since: Optional[float] = None
    pause = TAIL_S
    while True:
        result = files.read_json(folder / "result.json")
        events = tail.new()
        for event in events:
            emit(event)
        if isinstance(result, dict):
            return result
        if time.monotonic() - looked > LIVE_EVERY_S:
            looked = time.monotonic()
            alive = _alive(plan["slot"], args["id"])
            gone_since = None if alive else gone_since or time.monotonic()
            if gone_since is not None and time.monotonic() - gone_since > GONE_S:
                raise AgentError(
                    f"rollout {args['id']} ended without a result",
                    where=str(folder),
                    fix="the next deploy to this slot settles it first: run it, or look at the host",
                    evidence=[json.dumps(event) for event in list(record.read_events(folder))[-5:]],
                    exit=NOT_RESTORED,
                )
        pause = TAIL_S if events else min(pause * 1.4, LONGEST_TAIL_S)
        time.sleep(pause)


def _known(rollout: Any) -> Tuple[Path, Json]:
    folder = record.folder_of(rollout)
    plan = files.read_json(folder / "plan.json")
    if not isinstance(plan, dict):
        fix = "`fleetctl history` lists those that are there"
        raise AgentError(f"there is no rollout {rollout}", where=str(folder), fix=fix)
    return folder, plan


def _alive(slot: str, rollout: str) -> bool:
    held = lock.holder(slot)
    if held is not None and held.get("rollout") == rollout:
        return True
    return not _has_ended(slot)


class _Tail:
    """Whole lines appended to a file that may not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> List[Json]:
        try:
            if self._path.stat().st_size == self._offset:
                return []
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        events = []
        for line in whole.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            events.append(event)
        return events


def abort(args: Json, emit: Emit) -> Json:
    """``rollout.abort``: ask a running rollout to undo itself; its result says what came of it."""
    folder, plan = _known(args["id"])
    if (folder / "result.json").exists():
        return {"asked": False, "why": "it has ended already"}
    files.write(folder / record.ABORT, f"{time.time()}\n", 0o600)
    systemd.poke(unit_of(plan["slot"]))
    return {"asked": True, "why": ""}
