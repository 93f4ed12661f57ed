"""What a service needs on its host before a rollout: environment, models, secrets; surveyed and then brought."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleetctl.environment.room import Want
from fleetctl.environment.weights import ModelPlan, apply_model, survey_model
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host, Service
from fleetctl.rollout.current import Facts
from fleetctl.services.secrets import survey_secrets
from fleetctl.transport.agent import Agent

OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Needs:
    """A service's environment, models and secrets on one host.

    ``pending``: paths that are not there yet; ``changes``: what ``bring`` will do about them, in words;
    ``wants``: the room that this takes. ``verify`` reads the environment anew, where fleetctl made it and not
    just now: FleetError (exit 5) where it is not what it was.
    """

    environment_path: str
    environment_digest: str
    pending: list[str]
    changes: list[str]
    wants: list[Want]
    secrets_file: str
    bring: Callable[[OnEvent], None]
    verify: Callable[[OnEvent], None]


def survey_needs(
    fleet: Fleet, host: Host, service: Service, agent: Agent, facts: Facts, on_event: OnEvent
) -> Needs:
    """What is there and what is missing; changes nothing on the host.

    Raises ``FleetError`` as :func:`survey_specified` and :func:`survey_model`.
    """
    if service.is_router:
        return Needs("", "", [], [], [], "", lambda on_event: None, lambda on_event: None)
    environment = host.environments[service.environment]
    names = [name for name in (service.model, service.drafter) if name is not None]
    models = [_survey_model(fleet, host, agent, name) for name in names]
    missing = [model for model in models if not model.is_there]
    pending = [model.path for model in missing]
    wants = [Want(model.path, model.send_bytes, model.free, model.device) for model in missing]
    secrets = survey_secrets(fleet, host, service, agent)
    changes = [f"send {model.path} ({model.send_bytes / 1e6:.0f} MB)" for model in missing] + secrets.changes
    if not secrets.is_there:
        pending.append(secrets.path)

    def bring_rest(on_event: OnEvent) -> None:
        secrets.bring(agent)
        for model in models:
            apply_model(agent, host, model, on_event)

    if environment.spec is None:
        path = environment.path or ""
        return Needs(path, "", pending, changes, wants, secrets.path, bring_rest, lambda on_event: None)

    from fleetctl.environment.bom import require_verified
    from fleetctl.environment.spec import load_spec
    from fleetctl.rollout.specified import survey_specified

    plan = survey_specified(fleet, host, agent, load_spec(fleet.root, environment.spec), on_event, facts)
    if not plan.is_there:
        pending.append(plan.path)
        wants[:0] = plan.wants
        changes[:0] = plan.changes

    def bring(on_event: OnEvent) -> None:
        if not plan.is_there:
            plan.make(on_event)
        bring_rest(on_event)

    def verify(on_event: OnEvent) -> None:
        if plan.is_there:
            require_verified(agent, host.name, plan.path, on_event)

    return Needs(plan.path, plan.digest, pending, changes, wants, secrets.path, bring, verify)


def _survey_model(fleet: Fleet, host: Host, agent: Agent, name: str) -> ModelPlan:
    """As :func:`survey_model`; what is wrong with the model's source names the inventory's line too."""
    try:
        return survey_model(agent, host.models[name], fleet.root)
    except FleetError as error:
        if error.exit != Exit.INPUT:
            raise
        raise FleetError(
            f"{error.what} (model {name} of {host.name})",
            where=f"{fleet.where(host.name, 'models', name, 'source')}, {error.where}",
            fix=error.fix,
        ) from None
