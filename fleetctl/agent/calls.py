"""What the agent can be asked: the table from a call's name to the function that answers it.

A function takes the call's ``args`` and ``emit``, which sends one event; it returns the result (JSON). Its
module is imported at the first such call, so that starting the agent costs none of them.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict

from fleetctl.agent.errors import AgentError

Emit = Callable[[Dict[str, Any]], None]
Function = Callable[[Dict[str, Any], Emit], Any]

CALLS: Dict[str, str] = {
    "bom.capture": "fleetctl.agent.capture.bom:capture",
    "doctor.facts": "fleetctl.agent.host.doctor:facts",
    "facts": "fleetctl.agent.host.facts:facts",
    "logs": "fleetctl.agent.units.journal:logs",
    "history": "fleetctl.agent.rollout.history:history",
    "preflight": "fleetctl.agent.rollout.preflight:preflight",
    "rollout.start": "fleetctl.agent.rollout.control:start",
    "rollout.follow": "fleetctl.agent.rollout.control:follow",
    "rollout.settle": "fleetctl.agent.rollout.control:settle",
    "rollout.go": "fleetctl.agent.rollout.gates:go",
    "rollout.abort": "fleetctl.agent.rollout.control:abort",
    "environment.build": "fleetctl.agent.environment.build:build",
    "environment.damage": "fleetctl.agent.environment.damage:look",
    "environment.derive": "fleetctl.agent.environment.derive:derive",
    "environment.discard": "fleetctl.agent.environment.specs:discard",
    "environment.examine": "fleetctl.agent.environment.examine:examine",
    "environment.list": "fleetctl.agent.environment.environments:list_environments",
    "environment.prove": "fleetctl.agent.environment.proving:prove",
    "environment.prune": "fleetctl.agent.environment.prune:prune",
    "environment.recall": "fleetctl.agent.environment.specs:recall",
    "environment.remember": "fleetctl.agent.environment.specs:remember",
    "environment.status": "fleetctl.agent.environment.environments:status",
    "environment.verify": "fleetctl.agent.capture.verify:verify",
    "files.list": "fleetctl.agent.capture.contents:list_files",
    "files.read": "fleetctl.agent.capture.contents:read",
    "measuring.begin": "fleetctl.agent.rollout.measuring:begin",
    "model.commit": "fleetctl.agent.model.models:commit",
    "model.status": "fleetctl.agent.model.models:status",
    "programs": "fleetctl.agent.host.programs:programs",
    "secrets.find": "fleetctl.agent.rollout.secretfile:find",
    "secrets.keep": "fleetctl.agent.rollout.secretfile:keep",
    "servers.find": "fleetctl.agent.host.servers:find",
}


def find(name: str) -> Function:
    """The function behind a call's name; :class:`AgentError` for a name that no call has."""
    if name not in CALLS:
        raise AgentError(f"the agent has no call {name!r}", fix="known: " + ", ".join(sorted(CALLS)))
    module, _, attribute = CALLS[name].partition(":")
    function: Function = getattr(importlib.import_module(module), attribute)
    return function
