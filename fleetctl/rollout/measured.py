"""Who measures a slot now: a rollout that somebody asks for says so, and goes on. Pure."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import datetime
from typing import Any

from fleetctl.inventory.models import Host

Facts = dict[str, Any]


def measured_words(facts: Facts, slot: str) -> str | None:
    """Who measures the slot now, from where and since when; None where nobody does, or this very process."""
    by = facts["slots"][slot].get("measured_by")
    if not by or by.get("process") == this_process():
        return None
    since = f" since {datetime.fromtimestamp(by['since']):%H:%M:%S}" if by.get("since") else ""
    what = f" ({by['what']})" if by.get("what") else ""
    who = f"{by.get('operator', 'somebody')} from {by.get('from', 'somewhere')}"
    return f"being measured by {who}{since}{what}"


def this_process() -> str:
    """What tells this process from all others that may measure a slot."""
    return f"{socket.gethostname()} {os.getpid()}"


def measured_findings(facts: Facts, host: Host, slot: str) -> list[dict[str, Any]]:
    """A warning that what is measured in the slot would be spoilt; none where nobody measures."""
    words = measured_words(facts, slot)
    return (
        [
            {
                "id": "measured",
                "severity": "warning",
                "what": f"the slot is {words}: a change fails what is measured",
                "where": f"{host.host}, slot {slot}",
                "fix": "wait for its end, or ask who measures",
                "evidence": [],
            }
        ]
        if words
        else []
    )


def tell_measured(facts: Facts, slot: str, on_event: Callable[[dict[str, Any]], None]) -> None:
    """Say it as an event, before a rollout that goes on all the same."""
    if words := measured_words(facts, slot):
        on_event({"step": "plan", "state": "info", "text": f"slot {slot} is {words}"})
