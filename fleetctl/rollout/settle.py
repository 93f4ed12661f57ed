"""A rollout that was cut short is settled before the slot is planned anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetctl.inventory.models import Host
from fleetctl.rollout.current import Facts
from fleetctl.rollout.status import facts_arguments
from fleetctl.transport.agent import Agent

OnEvent = Callable[[dict[str, Any]], None]
SLACK_S = 30.0


def gather_facts(agent: Agent, host: Host) -> Facts:
    """The facts that a rollout is planned from, in one message."""
    return dict(agent.call("facts", **facts_arguments(host)))


def settled_facts(agent: Agent, host: Host, slot: str, plan_only: bool, on_event: OnEvent) -> Facts:
    """The host's facts, after settling what was cut short in the slot; a plan only shows that it would be."""
    facts = gather_facts(agent, host)
    left = facts["slots"][slot].get("unfinished") or {}
    if plan_only or not left or facts["slots"][slot]["locked_by"]:
        return facts
    for rollout, bound in left.items():
        on_event(_event("begin", f"rollout {rollout} was cut short: settled first, at most {bound:.0f} s"))
        result = agent.call(
            "rollout.settle", id=rollout, on_event=_told(rollout, on_event), timeout=bound + SLACK_S
        )
        on_event(_event("ok", f"rollout {rollout}, {result['outcome']}: {result.get('left')}"))
    return gather_facts(agent, host)


def _told(rollout: str, on_event: OnEvent) -> OnEvent:
    def tell(event: dict[str, Any]) -> None:
        if event["state"] != "begin":
            on_event(
                {**event, "step": "settle", "state": "wait", "text": f"{event['step']}: {event['text']}"}
            )

    return tell


def _event(state: str, text: str) -> dict[str, Any]:
    return {"step": "settle", "state": state, "text": text}
