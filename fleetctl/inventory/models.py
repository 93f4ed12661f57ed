"""What an inventory file may say, as types: a host with its slots, environments, models and services."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints, model_validator

Engine = Literal["standalone", "sglang", "other"]
Mode = Literal["autoregressive", "linear", "shadow", "tree"]

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
HostName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]
UnitName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:_.@-]{1,240}\.service$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"^/[^\x00-\x1f]*$")]
VenvPath = Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9._/+:@=-]+$")]
ArgumentName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
UserName = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
SecretSource = Annotated[str, StringConstraints(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:[^\x00-\x1f]+)$")]
Text = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]
Value = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Number = Annotated[float, Field(allow_inf_nan=False)]
Scalar = Value | bool | int | Number
Argument = Scalar | Annotated[list[Value | int | Number], Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Model(BaseModel):
    """Strict and frozen: unknown keys and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Named(Model):
    """An entry of a mapping that knows the key it stands under."""

    _name: str = PrivateAttr("")

    @property
    def name(self) -> str:
        """The entry's key in the inventory."""
        return self._name


class Ssh(Model):
    """How to reach the host; what is left out comes from ``~/.ssh/config``. Timeout in seconds.

    ``sudo``: the user is not root, and becomes it by ``sudo -n``.
    """

    hostname: Text | None = None
    user: Text | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    identity_file: Text | None = None
    known_hosts: Text | None = None
    proxy_jump: Text | None = None
    connect_timeout: Seconds | None = None
    sudo: bool = False


class Gpus(Model):
    """The host's GPUs, all of one kind; memory of each in MiB."""

    count: Annotated[int, Field(ge=0)]
    name: str = ""
    arch: str = ""
    memory_mib: Annotated[int, Field(gt=0)] | None = None


class Slot(Named):
    """A place for one service: GPUs by index, and a port."""

    gpus: list[Annotated[int, Field(ge=0)]]
    port: Annotated[int, Field(ge=1, le=65535)]


class EnvironmentRef(Named):
    """A venv: built by fleetctl from ``envs/<spec>.yaml``, or one that is on the host at ``path``."""

    spec: FileName | None = None
    path: VenvPath | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.spec is None) == (self.path is None):
            raise ValueError("needs exactly one of spec and path")
        return self


class ModelRef(Named):
    """A model's folder on the host; ``source`` (relative to the fleet folder) is sent where it is missing."""

    path: AbsolutePath
    source: Text | None = None


class Probe(Model):
    """The generation that proves a service: ``prompt`` must draw at least ``max_tokens`` tokens."""

    prompt: Text = "Count from one to one hundred: one, two, three, four,"
    max_tokens: Annotated[int, Field(ge=1)] = 16


class Deadlines(Model):
    """How long each wait of a rollout may take, in seconds."""

    drain: Seconds = 30
    stop: Seconds = 60
    free: Seconds = 60
    ready: Seconds = 300
    generate: Seconds = 60


class Service(Named):
    """A way to fill a slot. ``model_id``, ``unit`` and ``template`` are never empty once a host is loaded.

    ``keep_unit``: the unit's file is the host's own, and fleetctl neither writes nor changes it. ``remedies``: auto
    has deploy put doctor's remedies into the unit, show only names them. ``user``: whom the server runs as; root
    where it is left out. ``secrets``: variables whose values come from here (``env:NAME`` of the shell, or
    ``file:PATH``) and stand in a file that only the host's root reads.
    """

    slot: Text
    engine: Engine
    mode: Mode
    environment: Text
    model: Text
    drafter: Text | None = None
    model_id: Text = ""
    unit: UnitName = ""
    template: FileName = ""
    keep_unit: bool = False
    remedies: Literal["auto", "show"] = "show"
    args: dict[ArgumentName, Argument] = {}
    env: dict[VariableName, Value] = {}
    user: UserName | None = None
    secrets: dict[VariableName, SecretSource] = {}
    probe: Probe = Probe()
    deadlines: Deadlines = Deadlines()


class Host(Model):
    """One host, as its inventory file describes it."""

    host: HostName
    description: str = ""
    ssh: Ssh = Ssh()
    gpus: Gpus
    default_slot: Text | None = None
    slots: dict[Name, Slot]
    environments: dict[Name, EnvironmentRef] = {}
    models: dict[Name, ModelRef] = {}
    services: dict[Name, Service]

    @property
    def name(self) -> str:
        """The host's name in fleetctl and, unless ``ssh.hostname`` says otherwise, in ``~/.ssh/config``."""
        return self.host

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        for key, service in self.services.items():
            self.services[key] = service.model_copy(
                update={
                    "model_id": service.model_id or service.model,
                    "unit": service.unit or default_unit(key),
                    "template": service.template or f"{service.engine}.service.j2",
                }
            )
        entries: list[dict[str, Slot] | dict[str, EnvironmentRef] | dict[str, ModelRef] | dict[str, Service]]
        entries = [self.slots, self.environments, self.models, self.services]
        for mapping in entries:
            for key, entry in mapping.items():
                entry._name = key
        return self


def default_unit(service: str) -> str:
    """The unit's name of a service that names none."""
    return f"fleetctl-{service}.service"
