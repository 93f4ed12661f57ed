"""Blue-green: the old service serves until the new one is proven and has the traffic; then it is stopped."""

from __future__ import annotations

from typing import Any, Dict

from fleetctl.agent.errors import AgentError
from fleetctl.agent.rollout import probes, routing, steps
from fleetctl.agent.rollout.ladder import Failed
from fleetctl.agent.rollout.outcome import DONE, outcome
from fleetctl.agent.rollout.steps import Work

Json = Dict[str, Any]


def finish(work: Work) -> Json:
    """After an overlapping rollout's commit: finish the old service's requests, stop it, and write the result.

    An old service that cannot be stopped does not take the new one's place back: the result says so.
    """
    unit = work.new["unit"]
    came = outcome("done", DONE, f"{unit} serves", left=unit)
    if work.old is None:
        return work.record.result(came)
    try:
        steps.drain(work)
        routing.close_old(work)
        steps.stop(work, "stop", work.old["unit"], work.patience(work.old))
    except Failed as failed:
        said, seen = failed.reason, failed.evidence
    except (AgentError, OSError) as error:
        said, seen = str(error), []
    else:
        return work.record.result(came)
    work.record.fail(said, {"evidence": seen})
    fix = f"{work.old['unit']} has no traffic and is not enabled: stop it by hand, `systemctl stop {work.old['unit']}`"
    return work.record.result({**came, "reason": f"{came['reason']}; {said}", "fix": fix, "evidence": seen})


def forward(work: Work) -> Json:
    """Forward with the old service serving until the new one is proven: it is stopped last, after the commit."""
    routing.unroute(work)
    steps.free(work, "free")
    steps.install(work)
    work.interrupt.check()
    steps.start(work, work.new, "", probes.rungs_of(work.new))
    routing.route(work)
    work.interrupt.disarm()
    steps.commit(work)
    steps.confirm(work)
    return finish(work)
