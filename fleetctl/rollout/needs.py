"""What a service needs on its host before a rollout: its environment and its models, surveyed and then brought."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleetctl.environment.ship import apply_environment, survey_environment
from fleetctl.environment.specfile import load_spec
from fleetctl.environment.weights import ModelPlan, ModelRef, apply_model, survey_model
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host, Service
from fleetctl.rollout.current import Facts
from fleetctl.transport.agent import Agent

OnEvent = Callable[[dict[str, Any]], None]
CACHE = ".fleetctl"


@dataclass(frozen=True)
class Needs:
    """A service's environment and models on one host; ``changes`` says what ``bring`` will do, in words."""

    environment_path: str
    environment_digest: str
    changes: list[str]
    bring: Callable[[OnEvent], None]


def survey_needs(fleet: Fleet, host: Host, service: Service, agent: Agent, facts: Facts, on_event: OnEvent) -> Needs:
    """What is there and what is missing; changes nothing on the host.

    Raises ``FleetError`` as :func:`survey_environment` and :func:`survey_model`.
    """
    environment = host.environments[service.environment]
    models = [
        _survey_model(fleet, host, name, agent) for name in (service.model, service.drafter) if name is not None
    ]
    changes = [
        f"send {model.ref.path} ({model.send_bytes / 1e6:.0f} MB)" for model in models if not model.is_there
    ]

    def bring_models(on_event: OnEvent) -> None:
        for model in models:
            apply_model(agent, host, model, on_event)

    if environment.spec is None:
        return Needs(environment.path or "", "", changes, bring_models)

    spec = load_spec(fleet.root, environment.spec)
    house, plan = survey_environment(agent, spec, fleet.root / CACHE / "wheelhouse", on_event, facts)
    if not plan.is_there:
        sending = f", sending {plan.send_bytes / 1e6:.0f} MB of wheels" if plan.send else ""
        changes.insert(0, f"build {plan.path}{sending}")

    def bring(on_event: OnEvent) -> None:
        apply_environment(agent, host, house, plan, on_event)
        bring_models(on_event)

    return Needs(plan.path, plan.digest, changes, bring)


def _survey_model(fleet: Fleet, host: Host, name: str, agent: Agent) -> ModelPlan:
    model = host.models[name]
    ref = ModelRef(model.path, fleet.root / model.source if model.source else None)
    return survey_model(agent, ref, fleet.root / CACHE / "digests")
