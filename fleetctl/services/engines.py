"""The engines: how each is started in each mode, and what its metrics are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import get_args

from fleetctl.inventory.models import ROUTER, Argument, Host, Mode, Service

Arguments = dict[str, Argument]

EVERY_ADDRESS = "0.0.0.0"
TREES: tuple[Mode, ...] = ("shadow", "tree")
EVERY_MODE: tuple[Mode, ...] = get_args(Mode)
DRAFTING: tuple[Mode, ...] = ("linear", *TREES)


@dataclass(frozen=True)
class Setting:
    """What an engine calls a setting that has one name for all engines, which modes take it, which values it has.

    ``low`` and ``high`` bound a number (``whole``: without a fraction); ``words`` are the only values of a text;
    with neither it is a flag, true or false.
    """

    argument: str
    modes: tuple[Mode, ...] = TREES
    low: float | None = None
    high: float | None = None
    whole: bool = True
    words: tuple[str, ...] = ()

    def refuses(self, value: Argument) -> str:
        """What the setting must be, where ``value`` is not that; else empty."""
        if self.words:
            return "" if value in self.words else f"one of {', '.join(self.words)}"
        if self.low is None or self.high is None:
            return "" if isinstance(value, bool) else "true or false"
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.whole:
            fits = number and isinstance(value, int) and self.low <= value <= self.high
            return "" if fits else f"a whole number from {self.low:g} to {self.high:g}"
        fits = isinstance(value, int | float) and number and self.low <= value < self.high
        return "" if fits else f"a number of at least {self.low:g} and below {self.high:g}"


STANDALONE_DRAIN_S = 30
"""How long the standalone server finishes requests after SIGTERM unless it is told otherwise."""


@dataclass(frozen=True)
class EngineFacts:
    """One engine: the module that Python runs, its arguments, and the metrics that count its requests."""

    module: str
    arguments: Callable[[Host, Service], Arguments]
    running: str
    queued: str
    settings: Mapping[str, Setting] = field(default_factory=dict)

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
        settings={
            "budget": Setting("budget", low=1, high=1024),
            "topk": Setting("top-k", low=1, high=1024),
            "min-prob": Setting("min-prob", low=0, high=1, whole=False),
        },
    ),
    "sglang": EngineFacts(
        module="sglang.launch_server",
        arguments=_sglang,
        running="sglang:num_running_reqs",
        queued="sglang:num_queue_reqs",
        settings={
            "budget": Setting("speculative-ddtree-budget", low=1, high=255),
            "topk": Setting("speculative-ddtree-topk", low=1, high=64),
            "max-depth": Setting("speculative-ddtree-max-depth", low=1, high=255),
            "min-prob": Setting("speculative-ddtree-min-prob", low=0, high=1, whole=False),
            "spine": Setting("speculative-ddtree-spine"),
            "hybrid": Setting("speculative-ddtree-hybrid", words=("fork", "unsafe", "refuse")),
            "builder": Setting("speculative-ddtree-builder", words=("auto", "triton", "torch")),
            "commit": Setting("speculative-ddtree-commit", words=("host", "device", "graph")),
            "metrics": Setting("speculative-ddtree-metrics"),
            "block-size": Setting("speculative-dflash-block-size", DRAFTING, low=2, high=256),
            "tp": Setting("tp-size", EVERY_MODE, low=1, high=64),
        },
    ),
    # A server that only its own unit or template knows how to start.
    "other": EngineFacts(module="", arguments=_other, running="", queued=""),
    ROUTER: EngineFacts(module="", arguments=_other, running="", queued=""),
}
