"""A rollout from its lock to its result, in a process of its own that owes nothing to the controller."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Set, Union

from fleetctl.agent.errors import LOCKED, PREFLIGHT, AgentError
from fleetctl.agent.rollout import (
    before,
    gates,
    lock,
    overlap,
    probes,
    record,
    recover,
    routing,
    steps,
    watch,
)
from fleetctl.agent.rollout.ladder import Failed
from fleetctl.agent.rollout.outcome import DONE, ROLLED_BACK, LeftToBoot, conclude, outcome, shown
from fleetctl.agent.rollout.preflight import Preflight
from fleetctl.agent.rollout.record import Record
from fleetctl.agent.rollout.signatures import Signature
from fleetctl.agent.rollout.steps import Work
from fleetctl.agent.rollout.undo import disk_fix
from fleetctl.agent.rollout.watch import Aborted, Asked, Interrupt
from fleetctl.agent.units import systemd

Json = Dict[str, Any]

LOCK_PATIENCE_S = 10.0


def main(folder: str) -> int:
    """Carry out the plan in ``folder``; the exit code is the result's."""
    path = Path(folder)
    interrupt = Interrupt()
    interrupt.listen()
    kept = Record(path)
    if kept.past:
        return recover.main(folder)
    if (path / record.ABORT).exists():
        interrupt.requested = True
    return int(Rollout(kept, interrupt).run()["exit"])


class Rollout:
    """The slot's state machine, and the only writer of its state while it runs."""

    def __init__(self, kept: Record, interrupt: Interrupt) -> None:
        self._record = kept
        self._interrupt = interrupt
        self._plan: Json = kept.plan
        self._work: Optional[Work] = None
        self._settled = ""

    def run(self) -> Json:
        """Go forward; on whatever goes wrong, back. Writes the result, but on a host that goes down, and returns it."""
        slot = self._plan["slot"]
        self._record.begin("lock", f"slot {slot}")
        try:
            lock.acquire(slot, self._plan, LOCK_PATIENCE_S)
        except AgentError as error:
            self._record.fail(error.what)
            return self._record.result(outcome("refused", LOCKED, error.what, error.fix))
        self._record.ok(f"slot {slot} is locked")
        try:
            return self._there_and_back()
        except LeftToBoot:
            self._record.info(record.LEFT_TO_BOOT)
            return outcome("aborted", ROLLED_BACK, record.LEFT_TO_BOOT)

    def _there_and_back(self) -> Json:
        try:
            return self._forward()
        except LeftToBoot:
            raise
        except Aborted:
            return self._back("aborted on request", outcome_="aborted")
        except Failed as failed:
            return self._back(failed.reason, failed.fix, failed.evidence, failed.signature)
        except AgentError as error:
            return self._back(error.what, error.fix, error.evidence)
        except OSError as error:
            return self._back(str(error), disk_fix(error))
        except Exception as bug:
            import traceback

            fix = "a bug in fleetctl: report it with the lines below"
            return self._back(f"{type(bug).__name__}: {bug}", fix, traceback.format_exc().splitlines())

    def _forward(self) -> Json:
        for folder in record.unfinished(self._plan["slot"], but=self._record.folder.name):
            self._settle(Record(folder))
        work = self._preflight()
        if isinstance(work, dict):
            return work
        self._work = work
        if not work.plan.get("restart", True):
            return self._enable(work)
        if work.overlap:
            return overlap.forward(work)
        gates.hold(work, "begin")
        routing.unroute(work)
        if work.old is not None:
            steps.drain(work)
            self._interrupt.check()
        gates.hold(work, "stop")
        if work.old is not None:
            steps.stop(work, "stop", work.old["unit"], work.patience(work.old))
        steps.free(work, "free")
        steps.install(work)
        self._interrupt.check()
        steps.start(work, work.new, "", probes.rungs_of(work.new))
        gates.hold(work, "commit")
        gates.hold(work, gates.SURE)
        routing.route(work)
        self._interrupt.disarm()
        steps.commit(work)
        steps.confirm(work)
        routing.close_old(work)
        return self._record.result(_done(work))

    def _settle(self, left: Record) -> None:
        """Settle a rollout that was left unfinished; what it waits for is this rollout's wait too."""
        name, bound = left.folder.name, record.undo_bound(left.plan)
        self._record.begin(
            "settle", f"rollout {name} was left unfinished: settled first, at most {bound:.0f} s"
        )
        end = time.monotonic() + bound
        left.heard = lambda event: self._record.wait(
            f"{name}, {event['step']}: {event['text']}", end - time.monotonic()
        )
        came = recover.settle(left, "found unfinished by the next rollout")
        self._record.ok(f"rollout {name}: {came['left']}")
        self._settled = f"rollout {name}, left unfinished, was settled first: {came['left']}"

    def _enable(self, work: Work) -> Json:
        """The commit alone, where the service that runs is the one wanted and proves itself."""
        unit = work.new["unit"]
        lacking = [rung for rung in probes.rungs_of(work.new) if rung not in work.before["rungs"]]
        if lacking:
            fix = f"`journalctl -u {unit}` there says why; once it serves, deploy again"
            raise Failed(f"{unit} runs and does not pass: {', '.join(lacking)}", fix=fix)
        self._interrupt.disarm()
        steps.commit(work)
        said = f"{unit} is enabled at boot; it was not restarted"
        return self._record.result(outcome("done", DONE, said, left=unit))

    def _preflight(self) -> Union[Work, Json]:
        """Look before anything is touched, and keep what is there; a result where it must not go on."""
        self._record.begin("preflight", "unit, environment, models, port, GPUs, disk")
        old = self._plan.get("old")
        limit = float(self._plan["deadlines"]["generate"])
        serving = old if self._plan.get("restart", True) else self._plan["new"]
        port = probes.port_of(self._plan, serving)
        asked = Asked(lambda: probes.passing(serving, port, limit) if serving else [], self._interrupt)
        found = Preflight(self._plan)
        if found.errors:
            first = found.errors[0]
            self._record.fail(first["what"], {"findings": found.findings})
            said = first["what"], first["fix"], first["evidence"]
            refused = outcome("refused", PREFLIGHT, *said, left=self._settled)
            return self._record.result({**refused, "findings": found.findings})
        self._record.ok("nothing stands in the way", {"findings": found.findings})
        self._record.begin("record", "what is there now")
        there = before.take(self._plan, found.gpus, found.units)
        while not asked.done:
            self._interrupt.sleep(0.5)
        there["rungs"] = asked.answer or []
        before.save(self._record.folder, there)
        self._record.ok(_words(old, there), {"rungs": there["rungs"], "baseline_mib": there["baseline_mib"]})
        self._interrupt.check()
        return Work(self._record, self._interrupt, there)

    def _back(
        self,
        reason: str,
        fix: str = "",
        evidence: Sequence[str] = (),
        signature: Optional[Signature] = None,
        outcome_: str = "rolled-back",
    ) -> Json:
        """Evidence first, then everything back."""
        self._interrupt.disarm()
        begun = record.begun(list(record.read_events(self._record.folder)))
        if begun & record.CHANGING and systemd.is_stopping():
            raise LeftToBoot
        seen = list(evidence) or self._last_words(begun)
        failed = self._record.step
        self._record.fail(reason, {"evidence": seen, "signature": shown(signature)})
        self._record.failed_step = failed
        if self._work is None or not begun & record.CHANGING:
            code = ROLLED_BACK if outcome_ == "aborted" else PREFLIGHT
            name = outcome_ if outcome_ == "aborted" else "refused"
            left = self._settled or "nothing was changed"
            return self._record.result(outcome(name, code, reason, fix, seen, signature, left))
        return conclude(self._work, begun, outcome(outcome_, ROLLED_BACK, reason, fix, seen, signature))

    def _last_words(self, begun: Set[str]) -> List[str]:
        unit = self._plan["new"]["unit"] if "start" in begun else (self._plan.get("old") or {}).get("unit")
        if unit is None:
            return []
        try:
            return [f"journal: {line[:400]}" for line in watch.tail(unit)]
        except AgentError:
            return []


def _done(work: Work) -> Json:
    unit, slot = work.new["unit"], work.plan["slot"]
    if not work.empties:
        return outcome("done", DONE, f"{unit} serves", left=unit)
    fix = "memory that no process owns needs a GPU reset or a reboot" if work.held else ""
    said = f"slot {slot} is empty" + (f"; {work.held}" if work.held else "")
    return outcome("done", DONE, said, fix, left=f"slot {slot} is empty")


def _words(old: Optional[Json], there: Json) -> str:
    if old is None:
        return "the slot is empty"
    if not there["units"][old["unit"]]["active"]:
        return f"{old['unit']} does not run"
    return f"{old['unit']} passes: {', '.join(there['rungs']) or 'nothing'}"
