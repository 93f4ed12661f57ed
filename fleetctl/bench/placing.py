"""A service in its slot as a benchmark wants it, and what exactly stands there then."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleetctl.bench.filled import Filled, filled
from fleetctl.bench.points import Planned, gpus_for
from fleetctl.bench.record import Point
from fleetctl.bench.suite import Suite
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Argument, Host, Service
from fleetctl.rollout.needs import Needs
from fleetctl.services.arguments import arguments, metrics
from fleetctl.services.unit import render_unit
from fleetctl.transport.agent import Agent

UNLIKELY = "an-argument-to-look-for-"


@dataclass(frozen=True)
class Placed:
    """What fills a slot: the host with its service as overridden, and what the host says of it.

    ``swap_s``: seconds that putting it there took, None where it stood there already; ``filled``: the very process.
    """

    host: Host
    service: Service
    environment: str | None
    abi: str | None
    patches: list[Any]
    model: dict[str, Any]
    drafter: dict[str, Any] | None
    remedies: list[dict[str, Any]]
    unit_sha256: str
    swap_s: float | None
    filled: Filled | None = None

    @property
    def metrics(self) -> dict[str, str]:
        """The names of the metrics that count requests."""
        return metrics(self.host, self.service)

    @property
    def port(self) -> int:
        """The slot's port."""
        return self.host.slots[self.service.slot].port


def overridden(host: Host, service: str, args: Mapping[str, Argument], tp: int | None = None) -> Host:
    """``host`` with the service's arguments and number of GPUs changed."""
    entry = host.services[service]
    changed = entry.model_copy(update={"args": {**entry.args, **args}})
    update: dict[str, Any] = {"services": {**host.services, service: changed}}
    if tp is not None:
        place = host.slots[entry.slot].model_copy(update={"gpus": gpus_for(host, entry.slot, tp)})
        update["slots"] = {**host.slots, entry.slot: place}
    return host.model_copy(update=update)


def require_overridable(fleet: Fleet, host: Host, service: str, args: Mapping[str, Argument]) -> None:
    """FleetError (exit 2) where other arguments would not reach the service's process: its unit is not made of them."""
    entry = host.services[service]
    if not args:
        return
    made = [
        None if entry.keep_unit else render_unit(fleet, each, service, "/venv").text
        for each in (host, overridden(host, service, {name: f"{UNLIKELY}{name}" for name in args}))
    ]
    if made[0] == made[1]:
        source = (
            "the host's own" if entry.keep_unit else f"made by {entry.template}, which does not take them"
        )
        raise FleetError(
            f"{service} cannot be measured with other arguments ({', '.join(args)}): its unit is {source}",
            fleet.where(host.name, "services", service),
            "use the engine's own template, or a template with {{ command | exec }}",
        )


def look(agent: Agent, host: Host, service: Service, swap_s: float | None) -> Placed:
    """Ask the host what stands in the service's slot: environment, patches, models' digests, the unit's text."""
    facts = agent.call("facts", slots=_slots(host), units=[service.unit], gpus=False)
    state = facts["slots"][service.slot]["state"] or {}
    text = facts["units"].get(service.unit, {}).get("text") or ""
    placed = _placed(agent, host, service, state.get("environment"), state.get("environment_digest"))
    return replace(
        placed,
        remedies=state.get("remedies") or [],
        unit_sha256=hashlib.sha256(text.encode()).hexdigest(),
        swap_s=swap_s,
        filled=filled(facts, service),
    )


def foreseen(agent: Agent, host: Host, service: Service, needs: Needs) -> Placed:
    """What :func:`look` will find once the service is deployed; without remedies, since only doctor tells those."""
    return _placed(agent, host, service, needs.environment_path, needs.environment_digest)


def _placed(
    agent: Agent, host: Host, service: Service, environment: str | None, digest: str | None
) -> Placed:
    marker = _marker(agent, environment)
    return Placed(
        host=host,
        service=service,
        environment=digest or marker.get("digest"),
        abi=marker.get("abi"),
        patches=marker.get("patches") or [],
        model={**_model(agent, host, service.model), "id": service.model_id},
        drafter=_model(agent, host, service.drafter) if service.drafter else None,
        remedies=[],
        unit_sha256="",
        swap_s=None,
    )


def point(
    planned: Planned,
    placed: Placed,
    suite: Suite,
    prompts: str,
    via: str = "",
    started: str = "",
    by: str | None = None,
) -> Point:
    """The record of a point: what was planned, as it stands; ``prompts``: their digest, ``by``: a load generator."""
    args = arguments(placed.host, placed.service)
    for remedy in placed.remedies:
        args.update(remedy.get("arguments") or {})
    alike = {
        "environment": placed.environment,
        "patches": placed.patches,
        "model": placed.model,
        "drafter": placed.drafter,
        "engine": planned.engine,
        "mode": planned.mode,
        "args": args,
        "env": placed.service.env,
        "remedies": placed.remedies,
        "concurrency": planned.concurrency,
        "context_tokens": planned.context_tokens,
        "prompts": prompts,
        "turns": suite.turns,
        "max_tokens": suite.max_tokens,
        "seed": suite.seed,
        **({"by": by} if by else {}),
    }
    return Point(
        id=planned.id,
        host=planned.host,
        slot=planned.slot,
        service=planned.service,
        mode=planned.mode,
        engine=planned.engine,
        args=args,
        varied=planned.varied,
        environment=placed.environment,
        abi=placed.abi,
        patches=placed.patches,
        model=placed.model,
        drafter=placed.drafter,
        concurrency=planned.concurrency,
        suite_part=suite.suite,
        digest=hashlib.sha256(json.dumps(alike, sort_keys=True, default=str).encode()).hexdigest(),
        unit_sha256=placed.unit_sha256,
        started=started,
        via=via,
    )


def unmeasured(planned: Planned, host: Host, suite: Suite, started: str) -> Point:
    """The record of a point that could not be put into its slot: nothing but what was planned, and no digest."""
    service = overridden(host, planned.service, planned.overrides, planned.tp).services[planned.service]
    return Point(
        id=planned.id,
        host=planned.host,
        slot=planned.slot,
        service=planned.service,
        mode=planned.mode,
        engine=planned.engine,
        args=dict(service.args),
        varied=planned.varied,
        environment=None,
        abi=None,
        patches=[],
        model={"id": service.model_id, "digest": None},
        drafter={"id": service.drafter, "digest": None} if service.drafter else None,
        concurrency=planned.concurrency,
        suite_part=suite.suite,
        digest="",
        unit_sha256="",
        started=started,
    )


def host_facts(agent: Agent) -> dict[str, Any]:
    """What a report says of a host, in short."""
    found = agent.call(
        "doctor.facts", timeout=60, environments=[], models=[], units=[], slots={}, toolkits=[]
    )
    system = found.get("os") or {}
    gpus = (found.get("gpus") or {}).get("gpus") or []
    return {
        "hostname": found["hostname"],
        "os": system.get("name"),
        "kernel": found.get("kernel"),
        "arch": found.get("arch"),
        "cpus": found.get("cpus"),
        "memory": (found.get("memory") or {}).get("total"),
        "cuda": (found.get("driver") or {}).get("cuda"),
        "gpus": [
            {
                "name": gpu.get("name"),
                "driver": gpu.get("driver_version"),
                "memory_mib": gpu.get("memory_total_mib"),
            }
            for gpu in gpus
        ],
    }


def _slots(host: Host) -> dict[str, Any]:
    return {name: {"port": slot.port, "gpus": slot.gpus} for name, slot in host.slots.items()}


def _marker(agent: Agent, environment: str | None) -> dict[str, Any]:
    if not environment:
        return {}
    known: list[dict[str, Any]] = agent.call("environment.list")
    return next((one for one in known if one["path"] == environment), {})


def _model(agent: Agent, host: Host, name: str) -> dict[str, Any]:
    path = host.models[name].path
    return {"id": name, "path": path, "digest": agent.call("model.status", path=path)["digest"]}
