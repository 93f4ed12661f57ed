"""One rollout on many hosts: in waves, stopped when too many failed, each host's end in the record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import Host
from fleetctl.rollout.fleet_record import FleetRecord
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.rollout.outcome import Outcome
from fleetctl.rollout.vigil import watch
from fleetctl.rollout.waves import Pace, Wave, must_stop, waves
from fleetctl.transport import fleet

OnEvent = Callable[[dict[str, Any]], None]
Work = Callable[[Host, Interrupt, OnEvent], Outcome]


@dataclass(frozen=True)
class Left:
    """A host that the rollout did not touch: done by one before (``skipped``), or never begun."""

    host: str
    verdict: Literal["skipped", "not-begun"]
    why: str

    def to_dict(self) -> dict[str, Any]:
        """One JSON object."""
        return asdict(self)


End = Outcome | FleetError | Left


@dataclass
class FleetRollout:
    """What is to be done on which hosts; :meth:`run` does it once.

    ``slots``: each host's slot; ``skipped``: hosts done before, with the reason. Events of hosts have ``host``;
    ``step`` is ``fleet`` for a host's beginning and end, ``wave`` for what concerns all.
    """

    hosts: Sequence[Host]
    slots: Mapping[str, str]
    work: Work
    pace: Pace
    interrupt: Interrupt
    on_event: OnEvent
    record: FleetRecord
    skipped: Mapping[str, str] = field(default_factory=dict)
    ends: dict[str, End] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)
    _failures: int = 0
    _stop: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> dict[str, End]:
        """Each host's end, in the hosts' order. ^C ends it as :class:`Interrupt` says; hosts not begun stay so."""
        for name, why in self.skipped.items():
            self._end(name, Left(name, "skipped", why))
        todo = [host for host in self.hosts if host.name not in self.skipped]
        planned = waves(todo, self.pace)
        try:
            for number, wave in enumerate(planned, 1):
                if number > 1:
                    self._pause()
                if not self._may_begin():
                    break
                self._say_wave(number, planned)
                self._run_wave(wave)
        except KeyboardInterrupt:
            self._stop = "interrupted"
        return self._finished(todo)

    def _run_wave(self, wave: Wave[Host]) -> None:
        def on_host(host: Host) -> None:
            self._one(host, wave)

        fleet.on_hosts(wave.hosts, on_host, self.pace.max_parallel, self._may_begin)

    def _may_begin(self) -> bool:
        return not self._stop and not self.interrupt.asked and not self.interrupt.hung_up

    def _one(self, host: Host, wave: Wave[Host]) -> None:
        def listen(event: dict[str, Any]) -> None:
            event = {"host": host.name, **event}
            self.on_event(event)
            if event["state"] != "wait":
                self.record.write(event)

        self._begun.add(host.name)
        self.record.write({"host": host.name, "step": "fleet", "state": "begin"})
        self.on_event({"host": host.name, "step": "fleet", "state": "begin", "text": "connects"})
        began = time.monotonic()
        try:
            end: End = self.work(host, self.interrupt, listen)
        except FleetError as error:
            end = error
        if isinstance(end, FleetError):
            self._count([host.name], wave)
        self._end(host.name, end, time.monotonic() - began)

    def _count(self, names: Iterable[str], wave: Wave[Host]) -> None:
        with self._lock:
            self._failures += len(list(names))
            self._stop = self._stop or must_stop(self._failures, wave, self.pace)

    def _pause(self) -> None:
        """Watch what was put into service so far; one that fails is a failure of its host, and stops the rest."""
        done = [host for host in self.hosts if isinstance(self.ends.get(host.name), Outcome)]
        if not self.pace.pause_s or self._stop or not done:
            return
        watched = "1 host is" if len(done) == 1 else f"{len(done)} hosts are"
        text = f"{watched} watched for {self.pace.pause_s:g} s"
        self._say({"step": "wave", "state": "info", "text": text})
        failed = watch(done, self.slots, self.pace.pause_s, self.on_event, self._may_begin)
        for name, error in failed.items():
            self._end(name, error)
        if failed:
            self._failures += len(failed)
            self._stop = f"what was put into service failed on {', '.join(failed)}"

    def _say_wave(self, number: int, planned: Sequence[Wave[Host]]) -> None:
        if len(planned) == 1:
            return
        wave = planned[number - 1]
        names = ", ".join(host.name for host in wave.hosts[:8]) + (", …" if len(wave.hosts) > 8 else "")
        kind = "canary: " if wave.is_canary else ""
        self._say({"step": "wave", "state": "info", "text": f"{number} of {len(planned)}, {kind}{names}"})

    def _say(self, event: dict[str, Any]) -> None:
        self.on_event(event)
        self.record.write(event)

    def _end(self, host: str, end: End, seconds: float | None = None) -> None:
        self.ends[host] = end
        line: dict[str, Any] = {"host": host, "step": "fleet", "state": "fail"}
        if isinstance(end, FleetError):
            line |= {"end": "failed", "text": end.what, "error": end.to_dict()}
        elif isinstance(end, Left):
            line |= {"end": end.verdict, "state": "info", "text": end.why}
        else:
            text = "nothing to do" if end.verdict == "unchanged" else "done"
            line |= {
                "end": end.verdict,
                "state": "ok",
                "text": text,
                "rollout": (end.result or {}).get("rollout"),
            }
        if seconds is not None:
            line["seconds"] = round(seconds, 3)
        self.record.write(line)
        self.on_event({key: line[key] for key in ("host", "step", "state", "text")})

    def _finished(self, todo: Sequence[Host]) -> dict[str, End]:
        why = self._stop
        if self.interrupt.asked or self.interrupt.hung_up:
            why = "interrupted" if self.interrupt.asked else "the terminal was closed"
        for host in todo:
            if host.name in self._begun and host.name not in self.ends:
                self._end(host.name, cut(host))
            elif host.name not in self.ends:
                self._end(host.name, Left(host.name, "not-begun", why))
        return {host.name: self.ends[host.name] for host in self.hosts}


def cut(host: Host, has_begun: bool = False) -> FleetError:
    """What ^C left on a host of which no rollout was under way; ``has_begun``: one was before."""
    if has_begun:
        return FleetError(
            "interrupted after a rollout had ended; what it did stays",
            where=host.name,
            fix=f"fleetctl status {host.name} shows it; run it again for the rest",
            exit=Exit.INTERRUPTED,
        )
    return FleetError(
        "interrupted before a rollout began; the slot was not touched",
        where=host.name,
        fix="run it again; what was being made on the host is removed there, a transfer goes on where it stopped",
        exit=Exit.INTERRUPTED,
    )
