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
    """Carry ``plan`` out on the agent's host; returns ``result.json`` of a rollout that was committed.

    Raises ``FleetError``: exit 4 locked, 5 refused, 6 rolled back, 7 not restored, 130 interrupted.
    """
    message = plan.to_message()
    bound = 60.0 + 2 * sum(message["deadlines"].values())
    if interrupt.asked:
        raise KeyboardInterrupt
    with interrupt.covers(agent, message["id"]):
        try:
            agent.call("rollout.start", plan=message, timeout=30)
            result = agent.call("rollout.follow", id=message["id"], on_event=on_event, timeout=bound)
        except FleetError:
            if interrupt.left:
                raise _left_to_host(plan, message["id"]) from None
            raise
    if result["outcome"] == "done" and not interrupt.asked:
        return dict(result)
    raise _failure(plan, message["id"], result, interrupt.asked)


def _failure(plan: Plan, rollout: str, result: dict[str, Any], interrupted: bool) -> FleetError:
    back = f"{plan.old.service} is back and proven" if plan.old else "the slot is empty, as it was before"
    ending = {
        "done": "it had been committed before",
        "refused": "nothing was changed",
        "rolled-back": back,
        "aborted": back,
        "not-restored": "the slot is NOT restored",
    }[result["outcome"]]
    step = f"{result['failed_step']}: " if result.get("failed_step") else ""
    reason = "interrupted" if interrupted else f"failed: {step}{result['reason']}"
    status = Exit(result["exit"])
    return FleetError(
        f"{plan.kind} of {plan.new.service} {reason}; {ending}",
        where=f"{plan.host}, slot {plan.slot}, rollout {rollout}",
        fix=result.get("fix") or f"fleetctl logs {plan.host} {plan.new.service}",
        evidence=[str(line) for line in result.get("evidence") or []],
        exit=Exit.INTERRUPTED if interrupted and status != Exit.NOT_RESTORED else status,
    )


def _left_to_host(plan: Plan, rollout: str) -> FleetError:
    return FleetError(
        f"rollout {rollout} is left to the host, which goes on undoing it",
        where=f"{plan.host}, slot {plan.slot}",
        fix=f"fleetctl history {plan.host}, fleetctl status {plan.host}",
        exit=Exit.INTERRUPTED,
    )
