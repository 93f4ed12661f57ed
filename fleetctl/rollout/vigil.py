"""Watching what a rollout has put into service, for as long as the pause between two waves takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import Host
from fleetctl.rollout.status import SlotStatus, facts_arguments, slot_statuses
from fleetctl.transport.agent import Agent, open_agent
from fleetctl.transport.fleet import on_hosts
from fleetctl.words import counted

OnEvent = Callable[[dict[str, Any]], None]
EVERY_S = 1.0
IN_A_ROW = 2
"""So often must a service not be ready before it counts: one late answer of a busy one does not."""


def watch(
    hosts: Sequence[Host],
    slots: Mapping[str, str],
    seconds: float,
    on_event: OnEvent,
    may_go_on: Callable[[], bool],
) -> dict[str, FleetError]:
    """Ask each host's slot for its health until ``seconds`` are over; the hosts whose service failed meanwhile.

    The first failure ends the watch on all hosts, and so does ``may_go_on`` when it says no.
    """
    deadline = time.monotonic() + seconds
    failed: list[str] = []

    def on_host(host: Host) -> None:
        with open_agent(host) as agent:
            said = _watch(
                host, slots[host.name], agent, deadline, on_event, lambda: not failed and may_go_on()
            )
        if said is not None:
            failed.append(host.name)
            raise said

    found = on_hosts(hosts, on_host)
    return {name: end for name, end in found.items() if isinstance(end, FleetError)}


def _watch(
    host: Host,
    slot: str,
    agent: Agent,
    deadline: float,
    on_event: OnEvent,
    may_go_on: Callable[[], bool],
) -> FleetError | None:
    first = now = _ask(host, slot, agent)
    bad = 0
    while True:
        bad = 0 if now.health == "ready" else bad + 1
        if now.restarts > first.restarts or now.unit != first.unit or bad >= IN_A_ROW:
            return _gone_bad(host, first, now)
        left = deadline - time.monotonic()
        if left <= 0 or not may_go_on():
            return None
        text = f"{now.service} {now.health}"
        on_event({"host": host.name, "step": "watch", "state": "wait", "text": text, "left_s": left})
        time.sleep(min(EVERY_S, left))
        now = _ask(host, slot, agent)


def _ask(host: Host, slot: str, agent: Agent) -> SlotStatus:
    facts = agent.call("facts", **facts_arguments(host))
    return next(one for one in slot_statuses(host, facts) if one.slot == slot)


def _gone_bad(host: Host, first: SlotStatus, now: SlotStatus) -> FleetError:
    how = f"is {now.health}"
    if now.restarts > first.restarts:
        how = f"was restarted {counted(now.restarts - first.restarts, 'time')}"
    if now.unit != first.unit:
        how = f"gave its place to {now.unit or 'nothing'}"
    return FleetError(
        f"{first.service or first.unit} {how} after it had been put into service",
        where=f"{host.name}, slot {first.slot}",
        fix=f"fleetctl logs {host.name} {first.service or ''}; fleetctl rollback {host.name} --slot {first.slot}",
        evidence=[f"unit {now.unit_state}", *now.notes],
        exit=Exit.PARTIAL,
    )
