"""Where an environment is, as an operator writes it: on a host, in a BOM file, or in a specification."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from fleetctl.agent import paths
from fleetctl.environment.spec import ENVS
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import EnvironmentRef, Host
from fleetctl.inventory.nearest import hint, nearest
from fleetctl.inventory.select import hosts_of, select_host
from fleetctl.inventory.selectors import is_selector

if TYPE_CHECKING:
    from fleetctl.transport.agent import Agent

FORMS = "HOST, HOST:/path, HOST:NAME, a BOM file, or envs/NAME"
NAME_LIMIT = 63
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
_BUILT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*-[0-9a-f]{12}$")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Place:
    """An environment's place; exactly one of ``host``, ``file`` and ``spec`` is there.

    With ``host`` comes either its ``path`` there, or the ``name`` of an environment that fleetctl built,
    whose path only the host knows: :func:`locate` asks for it. ``text`` is what the operator wrote.
    """

    text: str
    host: Host | None = None
    path: str | None = None
    name: str | None = None
    file: Path | None = None
    spec: str | None = None


def parse_place(fleet: Fleet, text: str) -> Place:
    """Read ``HOST``, ``HOST:/path``, ``HOST:NAME``, a BOM file's path, ``envs/NAME`` or ``NAME``.

    ``HOST`` alone is its only environment, or the one that its default slot's services share. Pure but for
    looking which files there are. FleetError (exit 2) for what is none of these, or more than one.
    """
    if not text or _CONTROL.search(text):
        raise FleetError("not the place of an environment", where=repr(text), fix=f"write {FORMS}")
    host, colon, rest = text.partition(":")
    if colon and (host in fleet.hosts or not ("/" in host or _is_file(text))):
        return _on_host(fleet, host, rest, text)
    return _without_colon(fleet, text)


def spread(fleet: Fleet, text: str) -> list[str]:
    """``@group:NAME`` as one place a host of the selector; any other place as it is."""
    words, colon, rest = text.partition(":")
    if "/" in words or not is_selector(words):
        return [text]
    return [f"{host.name}{colon}{rest}" for host in hosts_of(fleet, [words])]


def host_place(fleet: Fleet, text: str) -> Place:
    """As :func:`parse_place`, for what must be on a host; else FleetError (exit 2)."""
    place = parse_place(fleet, text)
    if place.host is None:
        raise FleetError(
            f"{text} is on no host", fix=f"write HOST:NAME or HOST:/path; hosts: {', '.join(fleet.hosts)}"
        )
    return place


def require_name(name: str) -> None:
    """FleetError (exit 2) unless an environment can be called ``name``."""
    if not _NAME.match(name) or len(name) > NAME_LIMIT:
        raise FleetError(
            f"{name} is no environment's name",
            fix=f"letters, digits, dots, dashes and underscores, at most {NAME_LIMIT}, such as serving",
        )


def locate(place: Place, agent: Agent) -> str:
    """The environment's path on its host; asks ``environment.list`` where only its name is known.

    FleetError (exit 2) where no environment has the name, or several have.
    """
    assert place.host is not None, f"{place.text} is on no host"
    if place.path is not None:
        return place.path
    return choose(place, agent.call("environment.list"))


def choose(place: Place, listed: list[dict[str, Any]]) -> str:
    """The path of the one environment of ``environment.list`` that ``place`` names."""
    assert place.host is not None
    named = [one for one in listed if one["name"] == place.name]
    if len(named) == 1:
        return str(named[0]["path"])
    if not named and any(entry.spec == place.name for entry in place.host.environments.values()):
        raise FleetError(
            f"the environment {place.name} is not built on {place.host.name} yet",
            where=place.text,
            fix=f"fleetctl env build {place.host.name} {place.name}",
        )
    if not named:
        known = {*place.host.environments, *(one["name"] for one in listed)}
        raise FleetError(
            f"no environment {place.name} on {place.host.name}",
            fix=hint(place.name or "", known, "environments"),
        )
    raise FleetError(
        f"which {place.name}? {place.host.name} has {len(named)} environments of that name",
        fix=f"write its digest too, such as {place.host.name}:{PurePosixPath(named[-1]['path']).name}",
        evidence=[_described(one) for one in named],
    )


def default_environment(host: Host) -> EnvironmentRef:
    """The environment that the host's name alone means; FleetError (exit 2) where that is not one."""
    if len(host.environments) == 1:
        return next(iter(host.environments.values()))
    if not host.environments:
        raise FleetError(
            f"{host.name} names no environment",
            fix=f"write {host.name}:/path, or add it to the host's environments",
        )
    used = {entry.environment for entry in host.services.values() if entry.slot == host.default_slot}
    if len(used) == 1:
        return host.environments[used.pop()]
    raise FleetError(
        f"which environment of {host.name}? It has {len(host.environments)}",
        fix="write " + " or ".join(f"{host.name}:{name}" for name in sorted(host.environments)),
    )


def _on_host(fleet: Fleet, name: str, rest: str, text: str) -> Place:
    host = select_host(fleet, name)
    if rest.startswith("/"):
        return Place(text, host, path=_absolute(rest, text))
    if rest in host.environments:
        return _of_inventory(host, host.environments[rest], text)
    if _BUILT.match(rest):
        return Place(text, host, path=f"{paths.ENVS}/{rest}")
    if not _NAME.match(rest):
        known = ", ".join(sorted(host.environments)) or "none"
        raise FleetError(
            f"{rest or 'nothing'} behind {name}: is neither a path from / on nor an environment's name",
            where=text,
            fix=f"write {name}:/path or {name}:NAME; environments of {name} in its inventory: {known}",
        )
    return Place(text, host, name=rest)


def _of_inventory(host: Host, entry: EnvironmentRef, text: str) -> Place:
    return Place(text, host, path=entry.path) if entry.path else Place(text, host, name=entry.spec)


def _without_colon(fleet: Fleet, text: str) -> Place:
    specs = _specs(fleet)
    spec = _spec_name(fleet, text)
    if "/" in text:
        return Place(text, spec=spec) if spec in specs else _file(fleet, text, spec, specs)
    readings = {
        "a host": (text in fleet.hosts, f"{text}:NAME for its environment"),
        "a specification": (text in specs, f"{ENVS}/{text}"),
        "a file": (_is_file(text), f"./{text}"),
    }
    meant = [(what, write) for what, (holds, write) in readings.items() if holds]
    if len(meant) > 1:
        raise FleetError(
            f"{text} is {' and '.join(what for what, _ in meant)}",
            fix="write " + ", or ".join(write for _, write in meant),
        )
    if text in fleet.hosts:
        host = fleet.hosts[text]
        return _of_inventory(host, default_environment(host), text)
    if text in specs:
        return Place(text, spec=text)
    if _is_file(text) or text.endswith(".json"):
        return _file(fleet, text, None, specs)
    raise FleetError(
        f"{text} is no host, no specification and no file",
        where=str(fleet.inventory),
        fix=hint(text, {*fleet.hosts, *specs}, "hosts and specifications"),
    )


def _file(fleet: Fleet, text: str, spec: str | None, specs: list[str]) -> Place:
    path = Path(text).expanduser()
    if path.is_file():
        return Place(text, file=path)
    if path.is_dir():
        raise FleetError(
            f"{text} is a folder here, not a BOM file",
            fix=f"an environment on a host is written HOST:/path; hosts: {', '.join(fleet.hosts)}",
        )
    if _is_there(path):
        raise FleetError(
            f"{text} is no BOM: it is no regular file", fix="make one: fleetctl env capture HOST:PATH -o FILE"
        )
    if spec is not None:
        raise FleetError(
            f"no specification {spec}", where=str(fleet.root / ENVS), fix=hint(spec, specs, "specifications")
        )
    files = [one.name for one in path.parent.glob("*.json")] if path.parent.is_dir() else []
    near = nearest(path.name, files)
    meant = f"did you mean {path.parent / near}?" if near else f"write {FORMS}"
    raise FleetError(f"no file {text}", fix=meant)


def _specs(fleet: Fleet) -> list[str]:
    return sorted(file.stem for file in (fleet.root / ENVS).glob("*.yaml"))


def _spec_name(fleet: Fleet, text: str) -> str | None:
    """The specification's name where ``text`` says ``envs/NAME``, ``envs/NAME.yaml`` or that file's path."""
    path = Path(text)
    if path.parent not in (Path(ENVS), fleet.root / ENVS) or path.suffix == ".json":
        return None
    return path.stem if path.suffix == ".yaml" else path.name


def _absolute(rest: str, text: str) -> str:
    path = PurePosixPath(rest)
    if ".." in path.parts:
        raise FleetError("a path on a host has no ..", where=text, fix="write it from / on")
    return "/" + str(path).lstrip("/")


def _is_file(text: str) -> bool:
    try:
        return Path(text).expanduser().is_file()
    except (OSError, RuntimeError):
        return False


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _described(one: dict[str, Any]) -> str:
    slots = ", ".join(f"{slot} ({when})" for slot, when in sorted(one["slots"].items())) or "no slot"
    return f"{one['path']}, built {one['built_at']}, used by {slots}"
