"""What of a host doctor looks at: its services in their environments, or an environment alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


def service_view(host: Host, service: Service, environment: str) -> ServiceView:
    """A service of the inventory as rules see it, in the environment at a path ("" where there is none)."""
    return ServiceView(
        name=service.name,
        engine=service.engine,
        mode=service.mode,
        unit=service.unit,
        port=host.slots[service.slot].port,
        gpus=tuple(host.slots[service.slot].gpus),
        arguments=arguments(host, service),
        variables=variables(host, service),
        environment=environment,
        model=host.models[service.model].path,
        drafter=host.models[service.drafter].path if service.drafter else None,
    )


def subjects(
    host: Host, paths: Mapping[str, str], service: str | None = None, environment: str | None = None
) -> list[Subject]:
    """The host's services (or the one named) in their environments, or the environment at a path alone.

    ``paths``: where the inventory's environments are, by name, as :func:`environment_paths` says. Service and
    environment both: the service as it would be in that environment.
    """
    if environment is not None and service is None:
        return [Subject(environment)]
    chosen = [host.services[service]] if service else list(host.services.values())
    placed = [(one, paths.get(one.environment, "") if environment is None else environment) for one in chosen]
    found = [Subject(path, service_view(host, one, path)) for one, path in placed]
    if service is None:
        used = {path for _, path in placed}
        found += [Subject(path) for path in dict.fromkeys(paths.values()) if path and path not in used]
    return found


def needs_list(host: Host) -> bool:
    """Whether only the host knows where some of its environments are: those that fleetctl makes."""
    return any(entry.path is None for entry in host.environments.values())


def environment_paths(host: Host, listed: Iterable[Mapping[str, Any]] = ()) -> dict[str, str]:
    """Where each of the inventory's environments is; one that is not made yet is left out.

    ``listed``: the host's ``environment.list``. Of several of one name the one that a slot runs now, else the
    newest, since that is the one which the specification made last.
    """
    made: dict[str, list[Mapping[str, Any]]] = {}
    for one in listed:
        made.setdefault(str(one.get("name")), []).append(one)
    found: dict[str, str] = {}
    for name, entry in host.environments.items():
        if entry.path is not None:
            found[name] = entry.path
        elif candidates := made.get(entry.spec or ""):
            found[name] = str(max(candidates, key=_preference)["path"])
    return found


def _preference(one: Mapping[str, Any]) -> tuple[bool, str]:
    slots = one.get("slots")
    return "current" in (slots.values() if isinstance(slots, Mapping) else ()), str(one.get("built_at") or "")


def questions(host: Host | None, chosen: Sequence[Subject], deep: bool = False) -> dict[str, Any]:
    """The arguments of ``doctor.facts`` for these subjects."""
    services = [one.service for one in chosen if one.service]
    models = [path for one in services for path in (one.model, one.drafter) if path]
    return {
        "environments": list(dict.fromkeys(one.environment for one in chosen if one.environment)),
        "models": list(dict.fromkeys(models)),
        "units": list(dict.fromkeys(one.unit for one in services)),
        "slots": {} if host is None else _slots(host),
        "paths": [],
        "deep": deep,
    }


def _slots(host: Host) -> dict[str, Any]:
    return {name: {"port": slot.port, "gpus": list(slot.gpus)} for name, slot in host.slots.items()}


def contexts(facts: Mapping[str, Any], chosen: Sequence[Subject]) -> list[tuple[str, Context]]:
    """Each subject with its environment's BOM, by label; the bare host where there is none."""
    if not chosen:
        return [("", Context(facts))]
    return [(one.label, Context(facts, bom_of(facts, one.environment), one.service)) for one in chosen]


def bom_of(facts: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """The environment's BOM; None where it was not read."""
    environments = facts.get("environments")
    found = environments.get(path) if isinstance(environments, Mapping) else None
    return found if isinstance(found, Mapping) and not found.get("error") else None


def subjects_of_facts(facts: Mapping[str, Any]) -> list[Subject]:
    """Each environment that recorded facts hold."""
    environments = facts.get("environments")
    return [Subject(str(path)) for path in environments] if isinstance(environments, Mapping) else []
