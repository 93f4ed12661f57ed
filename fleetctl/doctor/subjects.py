"""What of a host doctor looks at: its services in their environments, or an environment alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.doctor.execstart import unit_arguments
from fleetctl.doctor.facts import bom_of, pick
from fleetctl.doctor.known import mapping
from fleetctl.doctor.rule import Context, ServiceView
from fleetctl.inventory.models import Host, Service
from fleetctl.services.arguments import arguments, variables


@dataclass(frozen=True)
class Subject:
    """One thing to examine: an environment by its path (empty where it is not there yet), with the service that
    runs in it or None."""

    environment: str = ""
    service: ServiceView | None = None

    @property
    def label(self) -> str:
        """How it is called on the screen: the service's name, or the environment's path."""
        return self.service.name if self.service else self.environment


def service_view(host: Host, service: Service, environment: str, unit_text: str = "") -> ServiceView:
    """A service of the inventory as rules see it, in the environment at a path ("" where there is none).

    ``unit_text``: its unit's, which alone knows the arguments where fleetctl's own template does not make it.
    """
    is_ours = not service.keep_unit and service.template == f"{service.engine}.service.j2"
    return ServiceView(
        name=service.name,
        engine=service.engine,
        mode=service.mode,
        unit=service.unit,
        port=host.slots[service.slot].port,
        gpus=tuple(host.slots[service.slot].gpus),
        arguments=arguments(host, service) if is_ours else unit_arguments(unit_text, service.engine),
        variables=variables(host, service),
        environment=environment,
        model=host.models[service.model].path,
        drafter=host.models[service.drafter].path if service.drafter else None,
    )


def subjects(
    host: Host,
    paths: Mapping[str, str | None],
    service: str | None = None,
    environment: str | None = None,
    units: Mapping[str, Any] | None = None,
) -> list[Subject]:
    """The host's services (or the one named) in their environments, or the environment at a path alone.

    ``paths``: where the inventory's environments are, by name; what is not made yet is None or left out. ``units``:
    the facts', for services whose unit is not of fleetctl's making. Service
    and environment both: the service as it would be in that environment.
    """
    if environment is not None and service is None:
        return [Subject(environment)]
    chosen = (
        [host.services[service]] if service else [one for one in host.services.values() if not one.is_router]
    )
    placed = [(one, environment or paths.get(one.environment) or "") for one in chosen]
    found = [
        Subject(path, service_view(host, one, path, pick(units, one.unit, "text", default="")))
        for one, path in placed
    ]
    if service is None:
        used = {path for _, path in placed}
        found += [Subject(path) for path in dict.fromkeys(paths.values()) if path and path not in used]
    return found


def contexts(facts: Mapping[str, Any], chosen: Sequence[Subject]) -> list[tuple[str, Context]]:
    """The host by itself, labelled "", then each subject with its environment's BOM, by label."""
    subjects = [(one.label, Context(facts, bom_of(facts, one.environment), one.service)) for one in chosen]
    return [("", Context(facts)), *subjects]


def subjects_of_facts(facts: Mapping[str, Any]) -> list[Subject]:
    """Each environment that facts hold."""
    return [Subject(str(path)) for path in mapping(facts.get("environments"))]
