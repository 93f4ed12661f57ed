"""The steps of a rollout that a router in front of the slot is told of; without a router each does nothing."""

from __future__ import annotations

import contextlib
from typing import Optional

from fleetctl.agent.errors import AgentError
from fleetctl.agent.rollout import probes
from fleetctl.agent.rollout.ladder import Failed
from fleetctl.agent.rollout.router import CLOSED, DRAIN, READY, Router
from fleetctl.agent.rollout.steps import Work

SEEN_UP_S = 15.0


def unroute(work: Work) -> None:
    """Send no new request to the place where a service is to start, until it is proven."""
    router = work.router
    if router is None:
        return
    state = CLOSED if router.new != router.old else DRAIN
    work.record.begin("unroute", f"the router {router.service} sends nothing to {router.new}")
    if not router.runs():
        if work.overlap:
            fix = f"fleetctl deploy of {router.service} starts it; or swap without --blue-green"
            raise Failed(f"{router.unit} does not run: there is nobody to move the traffic", fix=fix)
        router.forget()
        work.record.ok(f"{router.unit} does not run: nobody to tell")
        return
    if router.new != router.old and not work.overlap:
        router.tell(router.old, DRAIN)
    router.tell(router.new, state)
    if work.old_was_active and not work.overlap and not router.others_up():
        until = "from now on" if work.empties else "until the new service is proven"
        work.record.info(f"nothing else stands behind the router: requests fail {until}")
    work.record.ok(f"{router.new} gets no new requests")


def route(work: Work) -> None:
    """Give the traffic to the new service, and ask it once through the router; where there is none, to nobody."""
    router = work.router
    if router is None:
        return
    if work.empties:
        if router.runs():
            router.tell(router.new, CLOSED)
        return
    work.record.begin("route", f"the router {router.service} sends requests to {router.new}")
    if not router.runs():
        if work.overlap:
            raise Failed(f"{router.unit} does not run any more", fix=f"see why: journalctl -u {router.unit}")
        router.forget()
        work.record.ok(f"{router.unit} does not run: nobody to tell")
        return
    router.tell(router.new, READY)
    waiting = work.until(SEEN_UP_S, lambda: _not_up(router))
    if waiting is not None:
        raise Failed(waiting, fix=f"its health check asks GET /health: journalctl -u {router.unit}")
    if router.old != router.new:
        router.tell(router.old, DRAIN)
    if not router.alone:
        work.record.ok(f"{router.new} gets requests")
        return
    answer = probes.generate(router.port, work.new, work.limit("generate", work.new))
    if not answer.ok:
        raise Failed(f"through the router: {answer.text}", [f"last answer: {answer.body}"])
    work.record.ok(f"{router.new} has the traffic, {answer.text} through port {router.port}")


def close_old(work: Work) -> None:
    """Where the old service was, nothing is expected any more until the next rollout."""
    router = work.router
    if router is not None and router.old != router.new:
        with contextlib.suppress(AgentError):
            router.tell(router.old, CLOSED)


def release(work: Work) -> None:
    """Leave it to the router's health checks which of the slot's places gets requests."""
    router = work.router
    if router is not None and router.runs():
        for place in dict.fromkeys((router.old, router.new)):
            router.tell(place, READY)


def restore(work: Work) -> None:
    """Send requests to the old service again; what the new one has in flight is let finish."""
    router = work.router
    if router is None:
        return
    work.record.begin("restore-route", f"the router {router.service} sends requests to {router.old}")
    if not router.runs():
        router.forget()
        work.record.ok(f"{router.unit} does not run: nobody to tell")
        return
    router.tell(router.old, READY)
    if router.new == router.old:
        work.record.ok(f"{router.old} gets requests again")
        return
    if not work.overlap:
        router.tell(router.new, CLOSED)
        work.record.ok(f"{router.old} gets requests again")
        return
    router.tell(router.new, DRAIN)
    left = work.until(work.limit("drain", work.new), lambda: _flying(router))
    router.tell(router.new, CLOSED)
    work.record.ok(f"{router.old} has the traffic" + (f"; {left}: going on" if left else ""))


def _flying(router: Router) -> Optional[str]:
    seen = router.server(router.new)
    return f"{seen.sessions} requests in flight at {router.new}" if seen and seen.sessions else None


def _not_up(router: Router) -> Optional[str]:
    seen = router.server(router.new)
    if seen is None:
        return f"the router {router.service} does not say what {router.new} is"
    return None if seen.up else f"the router {router.service} sees {router.new} {seen.status}"
