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
COMMIT, SURE = "commit", "sure"
TOLD_S = 30.0
"""For a node to take the word that all are proven; one that has not by then is taken for lost, and all go back."""
SURE_S = 60.0
"""How long a node that has it waits to hear that all have. Then it goes on, so it must be told otherwise before."""
REJOIN_S = 60.0
"""How long a lost node is looked for, to hear what became of it."""
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
    heard: int = 0

    @property
    def outcome(self) -> str:
        """``done``, another outcome of the rollout's result, or ``lost``."""
        return str(self.result["outcome"]) if self.result else "lost"


def gates(limits: Deadlines) -> dict[str, float]:
    """How long a node waits for the others at each gate, in seconds, by the deadlines of the whole."""
    return {
        "begin": GATE_S,
        "stop": limits.drain + WORD_S,
        COMMIT: limits.ready + limits.generate + WORD_S,
        SURE: SURE_S,
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
        self._sure = False
        self._opened: set[str] = set()
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
        bound = 0.0
        with self._interrupt.covers(node.agent, rollout):
            try:
                started = node.agent.call("rollout.start", plan=node.message, timeout=30)
                self._interrupt.repeat(node.agent, rollout)
                if self._undoing:
                    node.agent.call("rollout.abort", id=rollout, timeout=30)
                bound = follow_bound(node.plan, started["settles"]) + sum(node.plan.gates.values())
                self._to_its_end(node, node.agent, bound)
            except FleetError as error:
                node.error = error
        if node.outcome != "done":
            self._undo(node)
        if node.result is None and bound:
            self._rejoin(node, bound)

    def _to_its_end(self, node: Node, agent: Agent, bound: float) -> None:
        node.result = agent.call(
            "rollout.follow",
            id=node.message["id"],
            on_event=lambda event: self._hear(node, event),
            timeout=bound,
        )

    def _rejoin(self, node: Node, bound: float) -> None:
        """Look for a lost node for a while: its host settles the rollout by itself, and knows what came of it."""
        self._say(node, "follow", f"the link is lost; looked for again for {REJOIN_S:g} s")

        def follow(agent: Agent) -> None:
            with self._interrupt.covers(agent, node.message["id"]):
                self._to_its_end(node, agent, bound)

        self._again(node, time.monotonic() + REJOIN_S, follow, lambda: self._interrupt.left)

    def _again(self, node: Node, end: float, act: Callable[[Agent], None], over: Callable[[], bool]) -> bool:
        """Do something in a new session with a node, as soon as there can be one; whether it was done."""
        while time.monotonic() < end and not node.result and not over():
            try:
                with open_agent(node.host) as agent:
                    act(agent)
                    return True
            except FleetError:
                time.sleep(AGAIN_S)
        return False

    def _say(self, node: Node, step: str, text: str) -> None:
        self._on_event({"host": node.host.name, "step": step, "state": "info", "text": text})

    def _hear(self, node: Node, event: Json) -> None:
        if event["seq"] <= node.heard:
            return
        node.heard = event["seq"]
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
            self._sure = gate == SURE
            self._opened.add(gate)
        for each in self._nodes:
            self._talk.submit(self._open, each, gate)
        if gate == COMMIT:
            late = threading.Timer(TOLD_S, self._late)
            late.daemon = True
            late.start()

    def _late(self) -> None:
        """Have all go back where one has not said by now that it knows that all are proven."""
        for node in self._nodes:
            if node.host.name not in self._waiting.get(SURE, ()) and node.result is None:
                node.failed = node.failed or f"{HOLD}{COMMIT}: not reached for {TOLD_S:g} s"
                self._undo(node)

    def _open(self, node: Node, gate: str) -> None:
        """Open a node's gate; on a lost link by a new one, as long as the node waits for it and all go forward."""
        end = time.monotonic() + node.plan.gates[gate]

        def tell(agent: Agent) -> None:
            if not self._undoing:
                agent.call("rollout.go", id=node.message["id"], gate=gate, timeout=10)

        try:
            tell(node.agent)
        except FleetError:
            self._again(node, end, tell, lambda: self._undoing)

    def _undo(self, failed: Node) -> None:
        """Once one has failed: the others go back too, at once, since what was there before spans them as well.

        Not where all have been told that all were told: they go on, with or without a link.
        """
        with self._lock:
            if self._undoing or self._sure:
                self._first = self._first or failed
                return
            self._undoing, self._first = True, failed
        for node in self._nodes:
            if node.result is None:
                self._talk.submit(self._abort, node)

    def _abort(self, node: Node) -> None:
        """Tell a node to go back; a lost one too, since it may have heard that all are proven and would go on."""
        end = time.monotonic() + SURE_S

        def tell(agent: Agent) -> None:
            agent.call("rollout.abort", id=node.message["id"], timeout=10)

        try:
            tell(node.agent)
        except FleetError as error:
            if not self._again(node, end, tell, lambda: self._interrupt.left) and not node.result:
                self._say(node, "abort", f"not told: {error}")

    def _failure(self) -> FleetError:
        first = self._first or self._nodes[0]
        result: Json = first.result or {}
        reason = f"failed at {first.failed}" if first.failed else str(first.error or result.get("reason"))
        left = "; ".join(f"{node.host.name}: {self._left(node)}" for node in self._nodes)
        lead = self._nodes[0]
        code = self._code()
        fix = result.get("fix") or (first.error.fix if first.error else "")
        if code == Exit.NOT_RESTORED:
            fix = f"once every node can be reached, `{self._mending()}` makes them one again"
        return FleetError(
            f"{lead.plan.kind} of {lead.plan.subject} over {len(self._nodes)} hosts: "
            f"{'interrupted' if self._interrupt.asked else f'{first.host.name} {reason}'}; {left}",
            where=f"{first.host.name}, slot {lead.plan.slot}, rollout {first.message['id']}",
            fix=fix,
            evidence=[str(line) for line in result.get("evidence") or []],
            exit=code,
        )

    def _mending(self) -> str:
        """The command that brings all nodes to what was wanted."""
        plan, name = self._nodes[0].plan, self._nodes[0].host.name
        if plan.new.is_vacant:
            return f"fleetctl stop {name} --slot {plan.slot}"
        return f"fleetctl deploy {name} --service {plan.new.service}"

    def _left(self, node: Node) -> str:
        if node.result:
            return str(node.result.get("left") or "nothing was changed")
        service = node.plan.new.service
        if self._sure:
            return f"not known ({node.error}); {service} is proven there and stays"
        heard = f", or keeps {service} if it heard that all are proven" if COMMIT in self._opened else ""
        return f"not known ({node.error}); it goes back by itself{heard}"

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
