"""``fleetctl env build`` of a specification that derives from other environments."""

from __future__ import annotations

from typing import Any

import typer

from fleetctl.cli.output import Output
from fleetctl.cli.progress import progress
from fleetctl.environment.spec import EnvironmentSpec
from fleetctl.errors import Exit
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host
from fleetctl.rollout.specified import survey_specified
from fleetctl.transport.agent import open_agent


def derive_specified(output: Output, fleet: Fleet, host: Host, spec: EnvironmentSpec, plan: bool) -> None:
    """Make it on ``host``, or with ``plan`` only say what would be done (exit 10 where there is work)."""
    with open_agent(host) as agent, progress(output) as listener:

        def on_event(event: dict[str, Any]) -> None:
            listener({**event, "host": host.name})

        facts = agent.call("facts", gpus=False)
        planned = survey_specified(fleet, host, agent, spec, on_event, facts)
        if not plan and not planned.is_there:
            planned.make(on_event)
    made = not plan and not planned.is_there
    if output.json:
        output.event(
            {
                "path": planned.path,
                "digest": planned.digest,
                "is_there": planned.is_there,
                "built": made,
                "changes": planned.changes,
            }
        )
    elif planned.is_there:
        output.line(f"{host.name}: {planned.path} is there, nothing to do")
    elif made:
        output.line(f"{host.name}: made {planned.path}, verified")
    else:
        for change in planned.changes:
            output.line(f"{host.name}: {change}")
    if plan and not planned.is_there:
        raise typer.Exit(int(Exit.PLAN_CHANGES))
