"""Why a session does not measure, or measured for nothing. Pure."""

from __future__ import annotations

from fleetctl.bench.filled import Change
from fleetctl.bench.points import Planned
from fleetctl.bench.suite import Suite
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import Host


def others_ask(what: str, where: str) -> FleetError:
    """Requests of others do not end."""
    return FleetError(
        f"{what}: nothing is measured, nor swapped, beside them",
        where,
        "keep other clients away while it is measured, or give deadlines.drain more time",
        exit=Exit.PREFLIGHT,
    )


def left_to_the_host(host: Host) -> FleetError:
    """The operator did not want to wait for what a swap under way comes to."""
    return FleetError(
        "interrupted; the swap under way is left to the host, which undoes it",
        host.name,
        f"`fleetctl attach {host.name}` follows it; `fleetctl status {host.name}` shows what serves",
        exit=Exit.INTERRUPTED,
    )


def require_room(planned: Planned, suite: Suite, context: int | None) -> None:
    """FleetError where prompt and answer are more than the service's ``context``, so far as that is known."""
    if context is not None and planned.context_tokens and planned.context_tokens + suite.max_tokens > context:
        raise FleetError(
            f"{planned.context_tokens:,} tokens of context and {suite.max_tokens:,} of answer are more than the "
            f"{context:,} that {planned.service} takes: it is not asked",
            planned.id,
            "leave such lengths out of the suite's context_tokens, or give the service a longer context",
            exit=Exit.PREFLIGHT,
        )


def disturbed(planned: Planned, change: Change) -> FleetError:
    """The service is not the one that was put there."""
    return FleetError(
        f"{planned.service} was disturbed while it was measured: {change.what}",
        planned.id,
        f"fleetctl history {planned.host} shows who; measure again when nobody else works there"
        if change.by_rollout
        else f"fleetctl logs {planned.host} {planned.service} tells why: no rollout did it",
        exit=Exit.PREFLIGHT,
    )
