"""The engines: how each is started in each mode, and what its metrics are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from fleetctl.inventory.models import ROUTER, Argument, Host, Service

Arguments = dict[str, Argument]

EVERY_ADDRESS = "0.0.0.0"
STANDALONE_DRAIN_S = 30
"""How long the standalone server finishes requests after SIGTERM unless it is told otherwise."""


@dataclass(frozen=True)
class EngineFacts:
    """One engine: the module that Python runs, its arguments, and the metrics that count its requests."""

    module: str
    arguments: Callable[[Host, Service], Arguments]
    running: str
    queued: str

    def metrics(self, arguments: Mapping[str, Argument]) -> dict[str, str]:
        """The names of the metrics of requests running and queued; empty where the engine serves none."""
        if not self.running or arguments.get("enable-metrics") is False:
            return {}
        return {"running": self.running, "queued": self.queued}


def _standalone(host: Host, service: Service) -> Arguments:
    arguments: Arguments = {"model": host.models[service.model].path}
    if service.drafter:
        arguments["drafter"] = host.models[service.drafter].path
    if service.deadlines.drain > STANDALONE_DRAIN_S:
        arguments["drain-timeout"] = ceil(service.deadlines.drain)
    return {
        **arguments,
        "mode": service.mode,
        "served-model-name": service.model_id,
        "host": EVERY_ADDRESS,
        "port": host.slots[service.slot].port,
    }


def _sglang(host: Host, service: Service) -> Arguments:
    slot = host.slots[service.slot]
    arguments: Arguments = {
        "model-path": host.models[service.model].path,
        "served-model-name": service.model_id,
        "host": EVERY_ADDRESS,
        "port": slot.port,
        "enable-metrics": True,
    }
    nodes = service.nodes or [host.name]
    if ranks := service.tp or len(slot.gpus) * len(nodes):
        arguments |= {"tp-size": ranks} if ranks > 1 else {}
    if service.nodes:
        arguments["nnodes"] = len(nodes)
        arguments["node-rank"] = service.rank(host.name)
        arguments["dist-init-addr"] = service.meet
    if service.mode == "autoregressive":
        return arguments
    arguments["speculative-algorithm"] = "DFLASH" if service.mode == "linear" else "DDTREE"
    if service.drafter:
        arguments["speculative-draft-model-path"] = host.models[service.drafter].path
    if service.mode in ("shadow", "tree"):
        arguments["speculative-ddtree-mode"] = service.mode
    return arguments


def _other(host: Host, service: Service) -> Arguments:
    return {}


ENGINES: dict[str, EngineFacts] = {
    "standalone": EngineFacts(
        module="fleetctl.standalone",
        arguments=_standalone,
        running="fleetctl_requests_running",
        queued="fleetctl_requests_queued",
    ),
    "sglang": EngineFacts(
        module="sglang.launch_server",
        arguments=_sglang,
        running="sglang:num_running_reqs",
        queued="sglang:num_queue_reqs",
    ),
    # A server that only its own unit or template knows how to start.
    "other": EngineFacts(module="", arguments=_other, running="", queued=""),
    ROUTER: EngineFacts(module="", arguments=_other, running="", queued=""),
}
