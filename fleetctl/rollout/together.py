"""Rollouts on several hosts as one: each waits at its gates for the others, and where one fails all go back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import Deadlines, Host
from fleetctl.rollout.follow import follow_bound
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.rollout.plan import Plan
from fleetctl.transport.agent import Agent, open_agent

Json = dict[str, Any]
OnEvent = Callable[[Json], None]

GATE_S = 60.0
"""For the slowest node's preflight."""
WORD_S = 15.0
"""For the controller's word, beyond what the other nodes may take."""
HOLD = "hold-"
AGAIN_S = 1.0


@dataclass
class Node:
    """One host of the whole: its session, its plan, and what became of it."""

    host: Host
    agent: Agent
    plan: Plan
    message: Json = field(default_factory=dict)
    result: Json | None = None
    error: FleetError | None = None
    failed: str = ""

    @property
    def outcome(self) -> str:
        """``done``, another outcome of the rollout's result, or ``lost``."""
        return str(self.result["outcome"]) if self.result else "lost"


def gates(limits: Deadlines) -> dict[str, float]:
    """How long a node waits for the others at each gate, in seconds, by the deadlines of the whole."""
    return {
        "begin": GATE_S,
        "stop": limits.drain + WORD_S,
        "commit": limits.ready + limits.generate + WORD_S,
    }


class Together:
    """Starts, follows and, where one fails, undoes the rollouts of all nodes."""

    def __init__(self, nodes: Sequence[Node], interrupt: Interrupt, on_event: OnEvent) -> None:
        self._nodes = list(nodes)
        self._interrupt = interrupt
        self._on_event = on_event
        self._lock = threading.Lock()
        self._waiting: dict[str, set[str]] = {}
        self._undoing = False
        self._first: Node | None = None
        self._talk = ThreadPoolExecutor(max_workers=2 * len(self._nodes))

    def run(self) -> dict[str, Json]:
        """Each host's result by name, where all of them committed.

        Raises ``FleetError``: exit 5 refused and nothing changed, 6 all are as before, 7 a person is needed, 130.
        """
        for node in self._nodes:
            node.message = node.plan.to_message()
        threads = [threading.Thread(target=self._follow, args=(node,), daemon=True) for node in self._nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._talk.shutdown(wait=True)
        if all(node.outcome == "done" for node in self._nodes) and not self._interrupt.asked:
            return {node.host.name: node.result or {} for node in self._nodes}
        raise self._failure()

    def _follow(self, node: Node) -> None:
        rollout = node.message["id"]
        with self._interrupt.covers(node.agent, rollout):
            try:
                started = node.agent.call("rollout.start", plan=node.message, timeout=30)
                self._interrupt.repeat(node.agent, rollout)
                if self._undoing:
                    node.agent.call("rollout.abort", id=rollout, timeout=30)
                bound = follow_bound(node.plan, started["settles"]) + sum(node.plan.gates.values())
                node.result = node.agent.call(
                    "rollout.follow",
                    id=rollout,
                    on_event=lambda event: self._hear(node, event),
                    timeout=bound,
                )
            except FleetError as error:
                node.error = error
        if node.outcome != "done":
            self._undo(node)

    def _hear(self, node: Node, event: Json) -> None:
        self._on_event({"host": node.host.name, **event})
        step, state = str(event["step"]), event["state"]
        if state == "fail":
            node.failed = node.failed or f"{step}: {event['text']}"
            self._undo(node)
        elif step.startswith(HOLD) and state == "begin":
            self._arrived(node, step.removeprefix(HOLD))

    def _arrived(self, node: Node, gate: str) -> None:
        with self._lock:
            there = self._waiting.setdefault(gate, set())
            there.add(node.host.name)
            if len(there) < len(self._nodes) or self._undoing:
                return
        for each in self._nodes:
            self._talk.submit(self._open, each, gate)

    def _open(self, node: Node, gate: str) -> None:
        """Open a node's gate; on a lost link by a new one, as long as the node waits for it."""
        end = time.monotonic() + node.plan.gates[gate]
        asked = {"id": node.message["id"], "gate": gate}
        try:
            node.agent.call("rollout.go", **asked, timeout=10)
            return
        except FleetError:
            pass
        while time.monotonic() < end and not node.result:
            try:
                with open_agent(node.host) as agent:
                    agent.call("rollout.go", **asked, timeout=10)
                    return
            except FleetError:
                time.sleep(AGAIN_S)

    def _undo(self, failed: Node) -> None:
        """Once one has failed: the others go back too, at once, since what was there before spans them as well."""
        with self._lock:
            if self._undoing:
                return
            self._undoing, self._first = True, failed
        for node in self._nodes:
            if node is not failed and node.result is None:
                self._talk.submit(self._abort, node)

    def _abort(self, node: Node) -> None:
        try:
            node.agent.call("rollout.abort", id=node.message["id"], timeout=30)
        except FleetError as error:
            self._on_event(
                {"host": node.host.name, "step": "abort", "state": "info", "text": f"not told: {error}"}
            )

    def _failure(self) -> FleetError:
        first = self._first or self._nodes[0]
        result: Json = first.result or {}
        reason = f"failed at {first.failed}" if first.failed else str(first.error or result.get("reason"))
        left = "; ".join(f"{node.host.name}: {self._left(node)}" for node in self._nodes)
        lead = self._nodes[0]
        code = self._code()
        fix = result.get("fix") or (first.error.fix if first.error else "")
        if code == Exit.NOT_RESTORED:
            fix = "deploy again once every node can be reached: all of them start and stop as one"
        return FleetError(
            f"{lead.plan.kind} of {lead.plan.subject} over {len(self._nodes)} hosts: "
            f"{'interrupted' if self._interrupt.asked else f'{first.host.name} {reason}'}; {left}",
            where=f"{first.host.name}, slot {lead.plan.slot}, rollout {first.message['id']}",
            fix=fix,
            evidence=[str(line) for line in result.get("evidence") or []],
            exit=code,
        )

    def _left(self, node: Node) -> str:
        if node.result:
            return str(node.result.get("left") or "nothing was changed")
        return f"not known ({node.error}); without a word of this command it goes back by itself"

    def _code(self) -> Exit:
        """7 where one is not as before, or where some committed and others did not; nothing changed is 5."""
        codes = {node.result["exit"] for node in self._nodes if node.result}
        outcomes = {node.outcome for node in self._nodes}
        mixed = "done" in outcomes and len(outcomes) > 1
        if mixed or Exit.NOT_RESTORED in codes:
            return Exit.NOT_RESTORED
        if self._interrupt.asked:
            return Exit.INTERRUPTED
        errors = [node.error for node in self._nodes if node.error]
        if any(error.exit == Exit.LOCKED for error in errors):
            return Exit.LOCKED
        if errors:
            return errors[0].exit
        changed = [
            node for node in self._nodes if not str(self._left(node)).startswith("nothing was changed")
        ]
        return Exit.ROLLED_BACK if changed else Exit.PREFLIGHT
