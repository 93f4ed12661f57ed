"""Shell completion from the inventory. A broken inventory completes nothing and says nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fleetctl.errors import FleetError

if TYPE_CHECKING:
    from fleetctl.inventory.models import Host

Candidates = list[tuple[str, str]]


def hosts(ctx: typer.Context, incomplete: str) -> Candidates:
    """Host names."""
    return _matching(((host.name, host.description) for host in _hosts(ctx)), incomplete)


def doctor_words(ctx: typer.Context, incomplete: str) -> Candidates:
    """Host names; as the first word also doctor's own verbs."""
    verbs = [("explain", "why a rule is one"), ("rules", "all rules")] if not ctx.params.get("hosts") else []
    return _matching([*((host.name, host.description) for host in _hosts(ctx)), *verbs], incomplete)


def playbooks(ctx: typer.Context, incomplete: str) -> Candidates:
    """Playbooks of the fleet folder."""
    from fleetctl.inventory.loader import find_root
    from fleetctl.playbook.document import playbooks as names

    try:
        return _matching(((name, "") for name in names(find_root())), incomplete)
    except FleetError:
        return []


def rules(ctx: typer.Context, incomplete: str) -> Candidates:
    """Ids of doctor's rules."""
    import fleetctl.doctor.rules  # noqa: F401  registers the rules
    from fleetctl.doctor.rule import RULES

    return _matching(((rule.id, rule.reason) for rule in RULES.values()), incomplete)


def environments(ctx: typer.Context, incomplete: str) -> Candidates:
    """Environments of the host named so far, or of all."""
    found = (entry for host in _named_hosts(ctx) for entry in host.environments.values())
    return _matching(((entry.name, entry.path or f"envs/{entry.spec}.yaml") for entry in found), incomplete)


def services(ctx: typer.Context, incomplete: str) -> Candidates:
    """Services of the host named so far, or of all."""
    found = (entry for host in _named_hosts(ctx) for entry in host.services.values())
    return _matching(((entry.name, f"{entry.engine}, mode {entry.mode}") for entry in found), incomplete)


def slots(ctx: typer.Context, incomplete: str) -> Candidates:
    """Slots of the host named so far, or of all."""
    found = (entry for host in _named_hosts(ctx) for entry in host.slots.values())
    return _matching(((entry.name, f"port {entry.port}") for entry in found), incomplete)


def modes(ctx: typer.Context, incomplete: str) -> Candidates:
    """Modes that a service of the host named so far has."""
    found = (entry for host in _named_hosts(ctx) for entry in host.services.values())
    return _matching(((entry.mode, "") for entry in found), incomplete)


def _matching(candidates: Iterable[tuple[str, str]], incomplete: str) -> Candidates:
    return list({name: (name, about) for name, about in candidates if name.startswith(incomplete)}.values())


def _hosts(ctx: typer.Context) -> list[Host]:
    from fleetctl.inventory.loader import load_fleet

    options = ctx.find_root().params
    fleet = options.get("fleet")
    try:
        return list(load_fleet(Path(fleet) if fleet else None, options.get("inventory")).hosts.values())
    except (FleetError, OSError):
        return []


def _named_hosts(ctx: typer.Context) -> list[Host]:
    named = ctx.params.get("hosts") or ctx.params.get("host") or []
    words = {
        *([named] if isinstance(named, str) else named),
        *ctx.args,
    }  # args: before an option without value
    hosts = _hosts(ctx)
    return [host for host in hosts if host.name in words] or hosts
