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
    "bom.capture": "fleetctl.agent.bom:capture",
    "doctor.facts": "fleetctl.agent.doctor:facts",
    "facts": "fleetctl.agent.facts:facts",
    "logs": "fleetctl.agent.journal:logs",
    "history": "fleetctl.agent.history:history",
    "preflight": "fleetctl.agent.preflight:preflight",
    "rollout.start": "fleetctl.agent.control:start",
    "rollout.follow": "fleetctl.agent.control:follow",
    "rollout.settle": "fleetctl.agent.control:settle",
    "rollout.go": "fleetctl.agent.gates:go",
    "rollout.abort": "fleetctl.agent.control:abort",
    "environment.build": "fleetctl.agent.build:build",
    "environment.damage": "fleetctl.agent.damage:look",
    "environment.derive": "fleetctl.agent.derive:derive",
    "environment.discard": "fleetctl.agent.specs:discard",
    "environment.examine": "fleetctl.agent.examine:examine",
    "environment.list": "fleetctl.agent.environments:list_environments",
    "environment.prove": "fleetctl.agent.proving:prove",
    "environment.prune": "fleetctl.agent.prune:prune",
    "environment.recall": "fleetctl.agent.specs:recall",
    "environment.remember": "fleetctl.agent.specs:remember",
    "environment.status": "fleetctl.agent.environments:status",
    "environment.verify": "fleetctl.agent.verify:verify",
    "files.list": "fleetctl.agent.contents:list_files",
    "files.read": "fleetctl.agent.contents:read",
    "measuring.begin": "fleetctl.agent.measuring:begin",
    "model.commit": "fleetctl.agent.models:commit",
    "model.status": "fleetctl.agent.models:status",
    "programs": "fleetctl.agent.programs:programs",
    "secrets.find": "fleetctl.agent.secretfile:find",
    "secrets.keep": "fleetctl.agent.secretfile:keep",
    "servers.find": "fleetctl.agent.servers:find",
}


def find(name: str) -> Function:
    """The function behind a call's name; :class:`AgentError` for a name that no call has."""
    if name not in CALLS:
        raise AgentError(f"the agent has no call {name!r}", fix="known: " + ", ".join(sorted(CALLS)))
    module, _, attribute = CALLS[name].partition(":")
    function: Function = getattr(importlib.import_module(module), attribute)
    return function
