"""Start a rollout on its host and follow it to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetctl.errors import Exit, FleetError
from fleetctl.rollout.interrupt import Interrupt
from fleetctl.rollout.plan import Plan
from fleetctl.transport.agent import Agent

OnEvent = Callable[[dict[str, Any]], None]


def run_rollout(agent: Agent, plan: Plan, interrupt: Interrupt, on_event: OnEvent) -> dict[str, Any]:
    """Carry ``plan`` out on the agent's host; returns ``result.json`` of a rollout that was committed, and its id.

    Raises ``FleetError``: exit 4 locked, 5 refused, 6 rolled back, 7 not restored, 130 interrupted.
    """
    message = plan.to_message()
    if interrupt.asked:
        raise FleetError(
            f"interrupted before the {plan.kind} of {plan.subject} began; the slot was not touched",
            where=f"{plan.host}, slot {plan.slot}",
            fix="run it again when it is wanted",
            exit=Exit.INTERRUPTED,
        )
    with interrupt.covers(agent, message["id"]):
        try:
            started = agent.call("rollout.start", plan=message, timeout=30)
            interrupt.repeat(agent, message["id"])
            bound = follow_bound(plan, started["settles"])
            result = agent.call("rollout.follow", id=message["id"], on_event=on_event, timeout=bound)
        except FleetError:
            if interrupt.left:
                raise _left_to_host(plan, message["id"], interrupt.was_told(message["id"])) from None
            raise
    if result["outcome"] == "done" and not interrupt.asked:
        return {**result, "rollout": message["id"]}
    raise _failure(plan, message["id"], result, interrupt.asked)


def follow_bound(plan: Plan, settles: dict[str, float]) -> float:
    """The most seconds to wait for a rollout's result: forward, back, and the crashed ones it settles first."""
    limits = {**plan.deadlines.model_dump(), **plan.new.deadlines}
    leaving = {**limits, **(plan.old.deadlines if plan.old else {})}
    return float(
        60.0 + 2 * leaving["drain"] + sum(limits.values()) + sum(leaving.values()) + sum(settles.values())
    )


def _failure(plan: Plan, rollout: str, result: dict[str, Any], interrupted: bool) -> FleetError:
    step = f"at {result['failed_step']}: " if result.get("failed_step") else ""
    reason = "interrupted" if interrupted else f"failed {step}{result['reason']}"
    left = "it had been committed before" if result["outcome"] == "done" else result.get("left")
    status = Exit(result["exit"])
    return FleetError(
        f"{plan.kind} of {plan.subject} {reason}; {left or 'nothing was changed'}",
        where=f"{plan.host}, slot {plan.slot}, rollout {rollout}",
        fix=result.get("fix") or ("" if interrupted else f"fleetctl logs {plan.host} {plan.subject}"),
        evidence=[str(line) for line in result.get("evidence") or []],
        exit=Exit.INTERRUPTED if interrupted and status != Exit.NOT_RESTORED else status,
    )


def _left_to_host(plan: Plan, rollout: str, told: bool) -> FleetError:
    what = "which goes on undoing it" if told else "which may not know that it is to be undone"
    return FleetError(
        f"rollout {rollout} is left to the host, {what}",
        where=f"{plan.host}, slot {plan.slot}",
        fix=f"fleetctl history {plan.host}, fleetctl status {plan.host}",
        exit=Exit.INTERRUPTED,
    )
