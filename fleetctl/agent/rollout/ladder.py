"""The climb: a started service proves itself rung by rung, and any sign of failure ends the wait at once."""

from __future__ import annotations

import signal
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from fleetctl.agent.rollout import probes
from fleetctl.agent.rollout.probes import Answer
from fleetctl.agent.rollout.record import Record, deadlines
from fleetctl.agent.rollout.signatures import Signature, Signatures
from fleetctl.agent.rollout.watch import Asked, Interrupt, Watch
from fleetctl.agent.units import systemd

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.25
STATE_EVERY_S = 1.0
FRESH_S = 0.05
WAIT_EVERY_S = 1.0
NOT_STARTED_S = 2.0
JOURNAL_LINES = 20


class Failed(Exception):
    """A step failed: why in a line, what was seen, and the signature that explains it."""

    def __init__(
        self, reason: str, evidence: Sequence[str] = (), signature: Optional[Signature] = None, fix: str = ""
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.evidence = list(evidence)
        self.signature = signature
        self.fix = fix or (signature or {}).get("fix", "")
        self.died = False
        """Whether the service's process ended; otherwise it only was not as it must be."""


class Ladder:
    """Climbs for one start of one unit. ``before`` is the unit's InvocationID from before that start."""

    def __init__(
        self,
        record: Record,
        interrupt: Interrupt,
        target: Dict[str, Any],
        watch: Watch,
        table: Signatures,
        before: str,
        prefix: str = "",
    ) -> None:
        self._record = record
        self._interrupt = interrupt
        self._target = target
        self._watch = watch
        self._table = table
        self._before = before
        self._prefix = prefix
        self._unit: str = target["unit"]
        self._port = probes.port_of(record.plan, target)
        self._deadlines = deadlines(record.plan, target)
        self._limit = 0.0
        self._ready_by = 0.0
        self._deadline = 0.0
        self._started = time.monotonic()
        self._last = ""
        self._body = ""
        self._said_at = 0.0
        self._looked_at = 0.0
        self._main = 0
        self._state: Dict[str, str] = {}

    def climb(self, rungs: Sequence[str]) -> None:
        """Pass all of these rungs or raise :class:`Failed` (or Aborted)."""
        self._started = time.monotonic()
        self._ready_by = self._started + float(self._deadlines["ready"])
        for rung in rungs:
            self._rung(rung)
        self._look()

    def _rung(self, rung: str) -> None:
        words = {
            "unit": self._unit,
            "port": self._port,
            "model": self._target.get("model_id") or "a model",
            "tokens": (self._target.get("probe") or {}).get("max_tokens"),
        }
        self._record.begin(self._prefix + rung, probes.ASKS[rung].format(**words))
        self._said_at = time.monotonic()
        self._last = ""
        self._deadline, self._limit = self._ready_by, float(self._deadlines["ready"])
        if rung == "generate":
            self._limit = float(self._deadlines["generate"])
            self._deadline = time.monotonic() + self._limit
        pause = FIRST_PAUSE_S
        while True:
            answer = self._ask(rung)
            if answer.ok or answer.never or not self._last or time.monotonic() < self._deadline:
                self._last, self._body = answer.text, answer.body or self._body
            if answer.ok:
                self._record.ok(answer.text)
                return
            if answer.never:
                self._watch.settle()
                raise self._failure(answer.text)
            self._rest(pause)
            pause = min(pause * 1.4, LONGEST_PAUSE_S)

    def _ask(self, rung: str) -> Answer:
        if rung == "process":
            self._look()
            return Answer(self._main > 0, f"main process {self._main}" if self._main else self._words())
        if rung == "unit":
            if time.monotonic() - self._looked_at > FRESH_S or not self._main:
                self._look()
            return Answer(self._state.get("ActiveState") == "active", f"{self._unit} is {self._words()}")
        if rung == "port":
            self._judge()
            return probes.port(self._unit, self._port)
        left = max(self._deadline - time.monotonic(), 0.1)
        return self._asked(self._question(rung, left))

    def _question(self, rung: str, left: float) -> Callable[[], Answer]:
        if rung == "health":
            return lambda: probes.health(self._port, left)
        if rung == "models":
            return lambda: probes.models(self._port, self._target, left)
        return lambda: probes.generate(self._port, self._target, left)

    def _asked(self, question: Callable[[], Answer]) -> Answer:
        asked = Asked(question, self._interrupt)
        while not asked.done:
            self._watch.poll(0.5)
            if not asked.done:
                self._judge()
        if asked.answer is None:
            return Answer(False, f"the question itself failed: {asked.error}", never=True)
        answer: Answer = asked.answer
        return answer

    def _rest(self, seconds: float) -> None:
        """Wait a little; a new line in the journal is a reason to ask again, but not for a stream of them."""
        end = time.monotonic() + seconds
        soonest = time.monotonic() + FIRST_PAUSE_S
        while time.monotonic() < end:
            happened = self._watch.poll(end - time.monotonic())
            self._judge()
            if happened and time.monotonic() >= soonest:
                return

    def _judge(self) -> None:
        """Raise where something says that waiting on is useless."""
        self._interrupt.check()
        now = time.monotonic()
        if self._watch.ended or self._watch.poked or now - self._looked_at > STATE_EVERY_S:
            self._look()
        if self._watch.fatal is not None:
            self._watch.settle()
            raise self._failure(f"{self._unit} logged a fatal line")
        if now >= self._deadline:
            self._watch.settle()
            last = f": {self._last}" if self._last else ""
            failed = self._failure(f"not within {self._limit:g} s{last}")
            failed.fix = failed.fix or self._longer()
            raise failed
        if now - self._said_at >= WAIT_EVERY_S:
            self._said_at = now
            self._record.wait(self._last or self._words(), self._deadline - now, {"line": self._latest()})

    def _longer(self) -> str:
        name = "ready" if self._deadline == self._ready_by else "generate"
        service, host = self._target.get("service"), self._record.plan.get("host")
        return f"fleetctl logs {host} {service}; where it only needs longer: `deadlines: {{{name}: …}}` of {service}"

    def _look(self) -> None:
        """Ask systemd for the unit's state; any state but a clean first start is a failure."""
        ended = self._watch.ended
        if ended:
            self._watch.settle()
        self._watch.poked = False
        self._looked_at = time.monotonic()
        state = systemd.show([self._unit])[self._unit]
        self._state = state
        if state.get("InvocationID", "") == self._before:
            self._not_begun(state)
            return
        main = int(state.get("MainPID") or 0)
        restarts = int(state.get("NRestarts") or 0)
        active = state.get("ActiveState")
        if active in ("failed", "inactive", "deactivating") or state.get("SubState") == "auto-restart":
            raise self._died(state)
        if restarts > 0:
            raise self._died(state, f"{self._unit} died and was restarted ({restarts} times so far)")
        if main and main != self._main:
            self._main = main
            self._watch.process(main)
        elif ended:
            raise self._died(state, f"the main process {self._main} of {self._unit} ended")

    def _not_begun(self, state: Dict[str, str]) -> None:
        waited = time.monotonic() - self._started
        pending = state.get("Job", "0") not in ("", "0")
        if not pending and waited > NOT_STARTED_S and not probes.running(state):
            self._watch.settle()
            raise self._failure(f"systemd did not start {self._unit}: {self._words()}")

    def _died(self, state: Dict[str, str], what: str = "") -> Failed:
        self._watch.settle()
        how = _exit_words(state)
        failed = self._failure(f"{what or f'{self._unit} is {self._words()}'}{f': {how}' if how else ''}")
        failed.died = True
        return failed

    def _failure(self, what: str) -> Failed:
        signature = self._table.diagnose(self._watch.lines)
        reason = f"{signature['reason']} ({what})" if signature else what
        return Failed(reason, self.evidence(), signature)

    def evidence(self) -> List[str]:
        """What was seen of this start: exit, last answer, the journal's last lines."""
        found = []
        how = _exit_words(self._state)
        if how:
            found.append(f"{self._unit}: {how}")
        if self._body:
            found.append(f"last answer: {self._body}")
        lines = list(self._watch.lines)[-JOURNAL_LINES:]
        return found + [f"journal: {line[:400]}" for line in lines]

    def _latest(self) -> str:
        return self._watch.lines[-1][:200] if self._watch.lines else ""

    def _words(self) -> str:
        state = self._state
        return f"{state.get('ActiveState', 'unknown')} ({state.get('SubState', '')})"


def _exit_words(state: Dict[str, str]) -> str:
    code, status = state.get("ExecMainCode", "0"), state.get("ExecMainStatus", "0")
    if code == "1":
        return f"exited with status {status}"
    if code in ("2", "3"):
        try:
            name = signal.Signals(int(status)).name
        except ValueError:
            name = f"signal {status}"
        return f"killed by {name}"
    result = state.get("Result", "")
    return "" if result in ("", "success") else result
