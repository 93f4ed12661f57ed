"""One run of doctor: from what the operator asked for, over facts of hosts, files or this machine, to diagnoses."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fleetctl.doctor.rules  # noqa: F401  registers the rules
from fleetctl.doctor import facts as gathering
from fleetctl.doctor.diagnosis import Diagnosis, diagnose
from fleetctl.doctor.finding import Finding
from fleetctl.doctor.rule import Context
from fleetctl.doctor.subjects import (
    Subject,
    contexts,
    environment_paths,
    needs_list,
    questions,
    subjects,
    subjects_of_facts,
)
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet, load_fleet
from fleetctl.inventory.models import Host
from fleetctl.inventory.nearest import hint
from fleetctl.inventory.select import select_host, select_service
from fleetctl.transport.agent import Agent, open_agent
from fleetctl.transport.fleet import on_hosts

Json = dict[str, Any]
OnEvent = Callable[[Json], None]
Call = Callable[..., Any]
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


def examine_all(asked: Asked, on_event: OnEvent) -> Results:
    """A diagnosis for each host (log, file of facts) by name; its FleetError where that host failed.

    FleetError (exit 2) for what does not go together, for names that nobody knows and for files that are not what
    they are said to be.
    """
    check(asked)
    if asked.facts is not None:
        return _recorded(asked, gathering.load_facts(asked.facts))
    if asked.local:
        return _local(asked, on_event)
    if asked.logs and not asked.hosts:
        return {name: diagnose(name, [], found) for name, found in _logs(asked, None).items()}
    fleet = load_fleet()
    chosen, environment = _chosen(fleet, asked)
    return on_hosts(chosen, lambda host: _on_host(host, asked, environment, on_event))


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
        hosts = [select_host(fleet, name) for name in names]
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


def _on_host(host: Host, asked: Asked, environment: str | None, on_event: OnEvent) -> Diagnosis:
    def tell(event: Json) -> None:
        on_event({**event, "host": host.name})

    with open_agent(host) as agent:
        chosen = _subjects(host, agent.call, asked, environment)
        found = _gathered(agent, host, chosen, asked, tell)
    return _diagnosed(host.name, found, chosen, asked)


def _gathered(agent: Agent, host: Host, chosen: list[Subject], asked: Asked, tell: OnEvent) -> Json:
    facts: Json = agent.call(
        "doctor.facts", on_event=tell, timeout=gathering.GATHER_S, **questions(host, chosen, asked.deep)
    )
    return facts


def _subjects(host: Host, call: Call, asked: Asked, environment: str | None) -> list[Subject]:
    listed = call("environment.list") if needs_list(host) or _is_name(environment) else []
    paths = environment_paths(host, listed)
    return subjects(host, paths, asked.service, _placed(host, environment, paths, listed))


def _is_name(environment: str | None) -> bool:
    return environment is not None and not environment.startswith("/")


def _placed(host: Host, environment: str | None, paths: dict[str, str], listed: Iterable[Json]) -> str | None:
    """The path of an environment that may be named."""
    if environment is None or environment.startswith("/"):
        return environment
    made = {str(one.get("name")): str(one.get("path")) for one in listed}
    if found := paths.get(environment) or made.get(environment):
        return found
    if environment in host.environments:
        raise FleetError(
            f"{environment} is not made yet",
            where=host.name,
            fix=f"fleetctl env build {host.name} {host.environments[environment].spec}",
        )
    known = {*host.environments, *made}
    raise FleetError(
        f"no environment {environment} on {host.name}",
        fix=f"write its path, or: {hint(environment, known, 'names')}",
    )


def _recorded(asked: Asked, facts: Json) -> Results:
    name = str(facts.get("hostname") or asked.facts)
    if not asked.hosts:
        chosen = subjects_of_facts(facts)
        if asked.environment is not None:
            chosen = [one for one in chosen if one.environment == asked.environment]
            if not chosen:
                known = [one.environment for one in subjects_of_facts(facts)]
                raise FleetError(
                    f"these facts have no environment {asked.environment}",
                    where=str(asked.facts),
                    fix=hint(asked.environment, known, "environments"),
                )
        return {name: _diagnosed(name, facts, chosen, asked)}
    host = select_host(load_fleet(), asked.hosts[0], service=asked.service)
    if asked.service:
        select_service(host, service=asked.service)
    known_paths = [
        {"name": Path(one.environment).name[:-13], "path": one.environment}
        for one in subjects_of_facts(facts)
    ]
    paths = environment_paths(host, known_paths)
    chosen = subjects(host, paths, asked.service, _placed(host, asked.environment, paths, known_paths))
    return {host.name: _diagnosed(host.name, facts, chosen, asked)}


def _local(asked: Asked, on_event: OnEvent) -> Results:
    host = select_host(load_fleet(), asked.hosts[0]) if asked.hosts else None
    if host is not None:
        if asked.service:
            select_service(host, service=asked.service)
        chosen = _subjects(host, gathering.call_here, asked, asked.environment)
    else:
        here = asked.environment or os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
        chosen = [Subject(str(Path(here).absolute()))] if here else []
    found = gathering.call_here("doctor.facts", on_event=on_event, **questions(host, chosen, asked.deep))
    name = host.name if host else socket.gethostname()
    return {name: _diagnosed(name, found, chosen, asked)}


def _diagnosed(name: str, facts: Json, chosen: list[Subject], asked: Asked) -> Diagnosis:
    known = contexts(facts, chosen)
    logged: list[Finding] = []
    if asked.logs:
        logged = [one for found in _logs(asked, known[0][1]).values() for one in found]
    return diagnose(name, known, logged)


def _logs(asked: Asked, context: Context | None) -> dict[str, list[Finding]]:
    """Each log's findings, the first cause first."""
    from fleetctl.doctor.logs import diagnose_log

    return {name: diagnose_log(name, context) for name in asked.logs}
