"""What a rollout starts or goes back to: TARGET of docs/architecture.md, "A plan"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fleetctl.agent.paths import VACANT_UNITS
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host, Probe, Service
from fleetctl.services.arguments import metrics

ROUTER_RUNGS = ["process", "unit", "port"]
"""A router answers for itself only so far: the rest depends on what stands behind it."""
VACANT = "vacant"
NODE_RUNGS = ["process", "unit"]
"""A node but the first serves nobody: that the first one generates proves it."""


@dataclass(frozen=True)
class Target:
    """One service as the agent needs it. ``unit_text`` None: the file that is on the host is kept.

    ``deadlines``: its own, in seconds; empty where no inventory knows it, and the plan's hold. ``port``: where it
    listens, None for the plan's; ``rungs``: the probes that it can pass, None for all; ``nodes``: the hosts that it
    spans, of which this is number ``rank``; ``api_key``: the variable of its secrets that holds what its server asks of
    clients.
    """

    service: str
    mode: str
    engine: str
    unit: str
    unit_text: str | None = None
    environment: str = ""
    environment_digest: str | None = None
    model_id: str = ""
    model_paths: list[str] = field(default_factory=list)
    metrics: dict[str, str] = field(default_factory=dict)
    probe: dict[str, Any] = field(default_factory=lambda: Probe().model_dump())
    deadlines: dict[str, float] = field(default_factory=dict)
    adopted: bool = False
    remedies: list[dict[str, Any]] = field(default_factory=list)
    port: int | None = None
    rungs: list[str] | None = None
    nodes: list[str] | None = None
    rank: int = 0
    api_key: str | None = None

    @property
    def is_vacant(self) -> bool:
        """Whether it is no service: the slot is to be empty."""
        return self.unit.startswith(VACANT_UNITS)

    def to_dict(self) -> dict[str, Any]:
        """The target as the JSON object of docs/architecture.md."""
        return asdict(self)


def build_target(
    fleet: Fleet,
    host: Host,
    service_name: str,
    environment: str,
    environment_digest: str | None,
    remedies: Sequence[dict[str, Any]] = (),
    secrets_file: str = "",
) -> Target:
    """A service of the inventory, to run in the venv at ``environment``; errors as :func:`render_unit`.

    ``remedies``: what doctor added to its arguments, as the unit's text names it. ``secrets_file`` as there.
    """
    from fleetctl.services.unit import render_unit

    service = host.services[service_name]
    keeps = service.keep_unit
    return Target(
        unit_text=None
        if keeps
        else render_unit(fleet, host, service_name, environment, remedies, secrets_file).text,
        environment=environment,
        environment_digest=environment_digest,
        remedies=list(remedies),
        port=host.slots[service.slot].port,
        **_known(host, service),
    )


def recorded_target(host: Host, slot: str, recorded: Mapping[str, Any], *, adopted: bool) -> Target:
    """A target from what a host keeps in ``slots/<slot>.json``, or from a found unit's name alone.

    What the record lacks comes from the inventory's service with that unit in that slot; a unit that no
    inventory knows is its own service. To prove itself it has the longer of the time that it had and that the
    inventory gives it now, so that no later change there can keep it from coming back.
    """
    unit = str(recorded["unit"])
    if unit.startswith(VACANT_UNITS):
        return vacant_target(slot)
    service = next(
        (entry for entry in host.services.values() if entry.unit == unit and entry.slot == slot), None
    )
    known = {**(_known(host, service) if service else _unknown(unit)), "port": host.slots[slot].port}
    names = [*known, "unit_text", "environment", "environment_digest", "remedies"]
    said = {name: recorded[name] for name in names if recorded.get(name) is not None}
    said["deadlines"] = _longer(said.get("deadlines") or {}, known["deadlines"])
    return Target(**{**known, **said}, adopted=adopted)


def vacant_target(slot: str) -> Target:
    """The service that is none, for a ``slot`` that is to be empty, its record and a rollback; nothing is started."""
    return Target(service=VACANT, mode="", engine="other", unit=f"{VACANT_UNITS}{slot}.service")


def _longer(had: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    proving = {
        name: max(had[name], now[name]) for name in ("ready", "generate") if name in had and name in now
    }
    return {**had, **now, **proving}


def _known(host: Host, service: Service) -> dict[str, Any]:
    paths = [host.models[name].path for name in (service.model, service.drafter) if name]
    return {
        "service": service.name,
        "mode": service.mode,
        "engine": service.engine,
        "unit": service.unit,
        "model_id": service.model_id,
        "model_paths": paths,
        "metrics": {} if service.rank(host.name) else metrics(host, service),
        "probe": service.probe.model_dump(),
        "deadlines": service.deadlines.model_dump(),
        "nodes": service.nodes,
        "rank": service.rank(host.name),
        "rungs": _rungs(host, service),
        "api_key": service.api_key,
    }


def _rungs(host: Host, service: Service) -> list[str] | None:
    if service.is_router:
        return ROUTER_RUNGS
    return NODE_RUNGS if service.rank(host.name) else None


def _unknown(unit: str) -> dict[str, Any]:
    return {
        "service": unit.removesuffix(".service"),
        "mode": "",
        "engine": "",
        "unit": unit,
        "model_id": "",
        "model_paths": [],
        "metrics": {},
        "probe": Probe().model_dump(),
        "deadlines": {},
        "nodes": None,
        "rank": 0,
        "rungs": None,
    }
