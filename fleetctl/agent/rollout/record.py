"""A rollout's folder: its plan, its events before and after each step, the units as they were, its result."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Set

from fleetctl.agent import files, paths
from fleetctl.agent.errors import AgentError
from fleetctl.agent.rollout import bootunit

HOME = Path(paths.ROOT)
ROLLOUTS = Path(paths.ROLLOUTS)
SLOTS = Path(paths.SLOTS)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
RESERVE_BYTES = 256 * 1024
UNDO_SLACK_S = 60.0
ABORT = "abort"
LEFT_TO_BOOT = "the host goes down: what was begun is settled at its next boot"
CHANGING = {"unroute", "stop", "install", "start", "commit"}


def checked_name(name: Any, what: str) -> str:
    """``name`` as a path's component; :class:`AgentError` for anything else."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise AgentError(f"{name!r} is no {what}", fix="letters, digits, '.', '_' and '-'")
    return name


def folder_of(rollout: Any) -> Path:
    """Where a rollout of that id keeps its record."""
    return ROLLOUTS / checked_name(rollout, "rollout id")


def slot_path(slot: Any) -> Path:
    """Where the host remembers what fills a slot."""
    return SLOTS / f"{checked_name(slot, 'slot name')}.json"


class Record:
    """The one writer of a rollout's events and result; a second one, after a crash, goes on at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        plan = files.read_json(folder / "plan.json")
        if not isinstance(plan, dict):
            raise AgentError(f"no plan in {folder}", where=str(folder))
        self.plan: Dict[str, Any] = plan
        self.past = list(read_events(folder))
        self._seq = max((event["seq"] for event in self.past), default=0)
        self._step = ""
        self._since = 0.0
        self.seconds: Dict[str, float] = {}
        self.failed_step: Optional[str] = None
        self._events = os.open(folder / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._torn = not (folder / "events.jsonl").read_bytes().endswith(b"\n") and bool(self.past)
        self.heard: Optional[Callable[[Dict[str, Any]], None]] = None
        self._reserve = folder / "reserve"
        if not self._reserve.exists():
            self._reserve.write_bytes(b"\0" * RESERVE_BYTES)

    def begin(self, step: str, text: str, data: Any = None) -> None:
        """A step is about to happen; a changing one is on the disk before, or raises and must not be."""
        self._step, self._since = step, time.monotonic()
        self._lasting(self._event(step, "begin", text, data=data), must=step in CHANGING)

    def wait(self, text: str, left_s: float, data: Any = None) -> None:
        """What the step waits for, what was last answered, and how long it still may."""
        with contextlib.suppress(OSError):
            self._write(self._event(self._step, "wait", text, max(left_s, 0.0), data))

    def ok(self, text: str, data: Any = None) -> None:
        """The step is done."""
        self._end()
        self._lasting(self._event(self._step, "ok", text, data=data))

    def fail(self, text: str, data: Any = None) -> None:
        """The step failed."""
        self._end()
        if self.failed_step is None and not self._step.startswith("restore-"):
            self.failed_step = self._step
        self._lasting(self._event(self._step, "fail", text, data=data))

    def info(self, text: str, data: Any = None) -> None:
        """Something worth knowing."""
        with contextlib.suppress(OSError):
            self._write(self._event(self._step, "info", text, data=data))

    @property
    def step(self) -> str:
        """The step that was begun last."""
        return self._step

    def result(self, result: Dict[str, Any]) -> Dict[str, Any]:
        """Write the result, last of all; from here on the rollout is over."""
        whole = {"failed_step": self.failed_step, "seconds": self.seconds, **result}
        path = self.folder / "result.json"
        try:
            files.write_json(path, whole)
        except OSError:
            self._make_room()
            files.write_json(path, whole)
        self._make_room()
        bootunit.disarm(self.folder)
        return whole

    def _end(self) -> None:
        spent = time.monotonic() - self._since
        self.seconds[self._step] = round(self.seconds.get(self._step, 0.0) + spent, 3)

    def _event(
        self, step: str, state: str, text: str, left_s: Optional[float] = None, data: Any = None
    ) -> Dict[str, Any]:
        self._seq += 1
        event: Dict[str, Any] = {"seq": self._seq, "time": round(time.time(), 4)}
        event.update(step=step, state=state, text=text)
        if left_s is not None:
            event["left_s"] = round(left_s, 1)
        if data is not None:
            event["data"] = data
        if self.heard is not None:
            self.heard(event)
        return event

    def _lasting(self, event: Dict[str, Any], must: bool = False) -> None:
        """Write, on a full disk into the reserve's room; never a reason to stop an undo."""
        try:
            self._write(event, durable=must)
        except OSError as error:
            self._make_room()
            try:
                self._write(event, durable=must)
            except OSError:
                if must:
                    raise
                print(f"fleetctl: event not recorded ({error}): {event}", file=sys.stderr)

    def _make_room(self) -> None:
        with contextlib.suppress(OSError):
            self._reserve.unlink()

    def _write(self, event: Dict[str, Any], durable: bool = False) -> None:
        start = b"\n" if self._torn else b""
        data = start + json.dumps(event, separators=(",", ":"), default=str).encode() + b"\n"
        written = os.write(self._events, data)
        self._torn = written != len(data)
        if self._torn:
            raise OSError(f"{written} of {len(data)} bytes written")
        if durable:
            os.fsync(self._events)


def read_events(folder: Path) -> Iterator[Dict[str, Any]]:
    """The events of a rollout as recorded; a line that a crash tore is left out."""
    try:
        lines = (folder / "events.jsonl").read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict) and "seq" in event:
                yield event


def deadlines(plan: Dict[str, Any], target: Optional[Dict[str, Any]]) -> Dict[str, float]:
    """A target's deadlines in seconds: what it has of its own, the plan's for the rest."""
    return {**plan["deadlines"], **((target or {}).get("deadlines") or {})}


def undo_bound(plan: Dict[str, Any]) -> float:
    """The most seconds that undoing a plan takes, whoever's deadlines are the longer."""
    own, leaving = deadlines(plan, plan.get("new")), deadlines(plan, plan.get("old"))
    limits = {
        name: max(float(own[name]), float(leaving[name])) for name in ("stop", "free", "ready", "generate")
    }
    traffic = 2 * float(own["drain"]) if plan.get("router") else 0.0
    twice = 2 * (limits["stop"] + limits["ready"] + limits["generate"])
    return traffic + twice + limits["free"] + UNDO_SLACK_S


def begun(events: List[Dict[str, Any]]) -> Set[str]:
    """The steps that the record shows as begun: all that an undo may touch."""
    return {event["step"] for event in events if event["state"] == "begin"}


def seconds_of(events: List[Dict[str, Any]]) -> Dict[str, float]:
    """How long each recorded step took; one that never ended counts up to the last event."""
    started: Dict[str, float] = {}
    seconds: Dict[str, float] = {}
    for event in events:
        if event["state"] == "begin":
            started[event["step"]] = event["time"]
        elif event["step"] in started:
            seconds[event["step"]] = round(max(event["time"] - started[event["step"]], 0.0), 3)
    return seconds


@contextlib.contextmanager
def being_started(folder: Path) -> Iterator[None]:
    """Meanwhile the rollout in ``folder`` is none of :func:`unfinished`: it begins, or is refused and forgotten."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _is_being_started(folder: Path) -> bool:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def unfinished(slot: str, but: str = "") -> List[Path]:
    """Folders of the slot's rollouts that began and have no result, oldest first."""
    found = []
    for folder in sorted(ROLLOUTS.glob("*")) if ROLLOUTS.is_dir() else []:
        if folder.name == but or (folder / "result.json").exists():
            continue
        plan = files.read_json(folder / "plan.json")
        if isinstance(plan, dict) and plan.get("slot") == slot and not _is_being_started(folder):
            found.append(folder)
    return found


def unsettled(slot: str, but: str = "") -> Dict[str, float]:
    """Of each of :func:`unfinished`, the most seconds that settling it takes."""
    plans = {folder.name: files.read_json(folder / "plan.json") for folder in unfinished(slot, but)}
    return {name: undo_bound(plan) for name, plan in plans.items()}
