"""A service's secrets on the controller's side: read here, kept on the host in a file that only root reads."""

from __future__ import annotations

import os
import secrets as randomness
from dataclasses import dataclass
from pathlib import Path

from fleetctl.agent.paths import SECRETS
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host, Service
from fleetctl.transport.agent import Agent


@dataclass(frozen=True)
class SecretFile:
    """The file on the host that the unit names; its values are in no message but the agent's own calls.

    ``path`` is empty where the service has no secrets.
    """

    path: str
    names: list[str]
    is_there: bool
    _values: dict[str, str]

    def __repr__(self) -> str:
        return f"SecretFile({self.path!r}, {self.names!r}, is_there={self.is_there})"

    @property
    def changes(self) -> list[str]:
        """What :meth:`bring` will do, in words."""
        return [] if self.is_there else [f"send the secrets {', '.join(self.names)}"]

    def bring(self, agent: Agent) -> None:
        """Write the file where it is not there."""
        if not self.is_there:
            agent.call("secrets.keep", path=self.path, values=self._values)


def survey_secrets(fleet: Fleet, host: Host, service: Service, agent: Agent) -> SecretFile:
    """The file with the service's secrets as they are now, or the one that is to be written; changes nothing.

    Raises FleetError (exit 2) where a secret's source cannot be read here.
    """
    if not service.secrets:
        return SecretFile("", [], True, {})
    values = {name: _read(fleet, host, service, name, source) for name, source in service.secrets.items()}
    api_key(fleet, host, service)
    found = agent.call("secrets.find", service=service.name, values=values)["path"]
    path = found or f"{SECRETS}/{service.name}-{randomness.token_hex(4)}.env"
    return SecretFile(path, sorted(values), found is not None, values)


def api_key(fleet: Fleet, host: Host, service: Service) -> str:
    """What the service's server asks of its clients; "" where nothing. Errors as :func:`survey_secrets`."""
    name = service.api_key
    if not name:
        return ""
    value = _read(fleet, host, service, name, service.secrets[name])
    if not (value.isascii() and value.isprintable()):
        where = fleet.where(host.name, "services", service.name, "api_key")
        raise FleetError(
            f"the API key {name} holds what no HTTP header can",
            where,
            "choose one of ASCII letters and digits",
        )
    return value


def _read(fleet: Fleet, host: Host, service: Service, name: str, source: str) -> str:
    where = fleet.where(host.name, "services", service.name, "secrets", name)
    kind, _, rest = source.partition(":")
    value = (
        _variable(name, rest, where)
        if kind == "env"
        else _file(name, fleet.root / Path(rest).expanduser(), where)
    )
    value = value.rstrip("\r\n")
    if not value or any(character < " " for character in value):
        raise FleetError(f"the secret {name} is empty or more than one line", where, f"see {source}")
    return value


def _variable(name: str, variable: str, where: str) -> str:
    value = os.environ.get(variable)
    if value is None:
        what = f"the secret {name} is not in this shell: {variable} is not set"
        raise FleetError(what, where, f"export {variable}=…, or name a file: `file:PATH`")
    return value


def _file(name: str, path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text"
        what = f"the secret {name} cannot be read: {path}: {why}"
        raise FleetError(what, where, "put it there, or name another source") from None
