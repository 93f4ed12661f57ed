"""One run of doctor: from what the operator asked for, over facts of hosts, files or this machine, to diagnoses."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import fleetctl.doctor.rules  # noqa: F401  registers the rules
from fleetctl.doctor.diagnosis import Diagnosis, diagnose
from fleetctl.doctor.facts import Here, gather, gather_local, load_facts, pick
from fleetctl.doctor.known import mapping
from fleetctl.doctor.rule import Context
from fleetctl.doctor.subjects import Subject, contexts, subjects, subjects_of_facts
from fleetctl.environment.place import Place, choose
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet, load_fleet
from fleetctl.inventory.models import Host
from fleetctl.inventory.nearest import hint
from fleetctl.inventory.select import hosts_of, select_host, select_service
from fleetctl.transport.agent import Agent, open_agent
from fleetctl.transport.fleet import AT_ONCE, on_hosts

Json = dict[str, Any]
Results = dict[str, Diagnosis | FleetError]


@dataclass(frozen=True)
class Asked:
    """What the operator wrote: hosts by name; an environment's path, name or ``HOST:PLACE``; a service's name; this
    machine (``local``) or recorded ``facts`` in a host's place; ``logs``; and whether to run kernels (``deep``)."""

    hosts: list[str] = field(default_factory=list)
    environment: str | None = None
    service: str | None = None
    local: bool = False
    facts: Path | None = None
    logs: list[str] = field(default_factory=list)
    deep: bool = False
    max_parallel: int = AT_ONCE


def examine_all(asked: Asked) -> Results:
    """A diagnosis for each host (log, file of facts) by name; its FleetError where that host failed.

    FleetError (exit 2) for what does not go together, for names that nobody knows and for files that are not what
    they are said to be.
    """
    check(asked)
    if asked.facts is not None:
        return _recorded(asked, load_facts(asked.facts))
    if asked.local:
        return _local(asked)
    if asked.logs and not asked.hosts:
        from fleetctl.doctor.logs import diagnose_log

        name = ", ".join("standard input" if log == "-" else log for log in asked.logs)
        return {name: diagnose(name, [], diagnose_log(asked.logs))}
    fleet = load_fleet()
    chosen, environment = _chosen(fleet, asked)
    return on_hosts(chosen, lambda host: _on_host(host, asked, environment), asked.max_parallel)


def check(asked: Asked) -> None:
    """FleetError (exit 2) for what does not go together."""
    single = [name for name, there in (("--local", asked.local), ("--facts", asked.facts)) if there]
    if len(single) > 1:
        raise FleetError("--local and --facts are one too many", fix="name one of them")
    if (single or asked.logs) and len(asked.hosts) > 1:
        what = single[0] if single else "--log"
        raise FleetError(f"{what} is of one host, not of {len(asked.hosts)}", fix="name one host")
    if asked.facts and asked.deep:
        raise FleetError("--deep runs kernels: recorded facts cannot", fix="leave --deep out")
    if single and asked.service and not asked.hosts:
        raise FleetError(
            f"whose service {asked.service}?",
            fix=f"name the host whose inventory has it: doctor HOST {single[0]} …",
        )


def private_names(asked: Asked) -> tuple[list[str], list[str]]:
    """Names of hosts (with addresses) and of users that the Markdown form must not tell."""
    hosts, users = [socket.gethostname()], [_operator()]
    try:
        known = load_fleet().hosts.values()
    except (FleetError, OSError):
        return hosts, users
    for host in known:
        hosts += [host.name, *([host.ssh.hostname] if host.ssh.hostname else [])]
        users += [host.ssh.user] if host.ssh.user else []
    return hosts, users


def _operator() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _chosen(fleet: Fleet, asked: Asked) -> tuple[list[Host], str | None]:
    """The hosts to look at, and the environment without its host's name."""
    environment = asked.environment
    names = list(dict.fromkeys(asked.hosts))
    named, colon, rest = (environment or "").partition(":")
    if colon and "/" not in named:
        select_host(fleet, named)
        if names not in ([], [named]):
            raise FleetError(
                f"{environment} is not on {', '.join(names)}", fix=f"fleetctl doctor --env {environment}"
            )
        names, environment = [named], rest
    if names:
        hosts = hosts_of(fleet, names)
    else:
        hosts = [one for one in fleet.hosts.values() if not asked.service or asked.service in one.services]
        if asked.service and not hosts:
            known = {name for one in fleet.hosts.values() for name in one.services}
            raise FleetError(
                f"no host has a service {asked.service}", fix=hint(asked.service, known, "services")
            )
    if asked.service:
        for host in hosts:
            select_service(host, service=asked.service)
    return hosts, environment


def _on_host(host: Host, asked: Asked, environment: str | None) -> Diagnosis:
    with open_agent(host) as agent:
        return _of_host(host, agent, asked, environment)


def _of_host(host: Host, agent: Agent | Here, asked: Asked, environment: str | None) -> Diagnosis:
    """What an inventory says of a host, examined with the facts of the machine that ``agent`` is on."""
    path = _placed(host, environment, lambda: agent.call("environment.list"))
    services = [asked.service] if asked.service else [] if path else None
    more = [path] if path else [] if services else _unused(host)
    facts = gather(agent, host, services=services, environments=more, deep=asked.deep)
    return _examined(host, facts, asked, path)


def _unused(host: Host) -> list[str]:
    """Paths of the inventory's environments that no service names."""
    used = {one.environment for one in host.services.values() if not one.is_router}
    return [one.path for name, one in host.environments.items() if one.path and name not in used]


def _placed(host: Host, environment: str | None, ask: Callable[[], list[Json]]) -> str | None:
    """The path of an environment that may be named; ``ask``: the host's ``environment.list``."""
    if environment is None or environment.startswith("/"):
        return environment
    entry = host.environments.get(environment)
    if entry is not None and entry.path:
        return entry.path
    place = Place(environment, host, name=entry.spec if entry else environment)
    return choose(place, ask())


def _recorded(asked: Asked, facts: Json) -> Results:
    """Recorded facts, with the services of a host's inventory where one is named."""
    name = str(facts.get("hostname") or asked.facts)
    there = subjects_of_facts(facts)
    if asked.hosts:
        host = select_host(load_fleet(), asked.hosts[0])
        made = [{"name": PurePosixPath(one.environment).name[:-13], "path": one.environment} for one in there]
        path = _placed(
            host, asked.environment, lambda: [{**one, "slots": {}, "built_at": ""} for one in made]
        )
        return {host.name: _examined(host, facts, asked, path)}
    chosen = [one for one in there if asked.environment in (None, one.environment)]
    if asked.environment and not chosen:
        raise FleetError(
            f"these facts have no environment {asked.environment}",
            where=str(asked.facts),
            fix=hint(asked.environment, [one.environment for one in there], "environments"),
        )
    return {name: _diagnosed(name, facts, chosen, asked)}


def _local(asked: Asked) -> Results:
    """This machine: as the host named, or by itself with the environment named or the one that is active."""
    if asked.hosts:
        host = select_host(load_fleet(), asked.hosts[0])
        return {host.name: _of_host(host, Here(), asked, asked.environment)}
    here = asked.environment or os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    facts = gather_local(environments=[here] if here else [], deep=asked.deep)
    name = str(facts.get("hostname"))
    return {name: _diagnosed(name, facts, subjects_of_facts(facts), asked)}


def _examined(host: Host, facts: Json, asked: Asked, path: str | None) -> Diagnosis:
    if asked.service:
        select_service(host, service=asked.service)
    named = mapping(pick(facts, "named", "environments"))
    paths = {name: named.get(name) or entry.path for name, entry in host.environments.items()}
    chosen = subjects(host, paths, asked.service, path, facts.get("units"))
    return _diagnosed(host.name, _brought(host, facts), chosen, asked)


def _brought(host: Host, facts: Json) -> Json:
    """Facts without the models that are not there yet because a deploy sends them."""
    sent = {one.path for one in host.models.values() if one.source}
    models = mapping(facts.get("models"))
    kept = {path: one for path, one in models.items() if path not in sent or pick(one, "exists") is not False}
    return {**facts, "models": kept}


def _diagnosed(name: str, facts: Json, chosen: list[Subject], asked: Asked) -> Diagnosis:
    known = contexts(facts, chosen)
    if not asked.logs:
        return diagnose(name, known)
    from fleetctl.doctor.logs import diagnose_log

    return diagnose(name, known, diagnose_log(asked.logs, _of_all(known)))


def _of_all(known: list[tuple[str, Context]]) -> Context:
    """What holds whichever of several services a log is of: the facts, and the environment where all have one."""
    host, subjects = known[0][1], [context for _, context in known[1:]]
    if len(subjects) == 1:
        return subjects[0]
    boms = [context.bom for context in subjects]
    return Context(host.facts, boms[0] if boms and all(bom is boms[0] for bom in boms) else None)
