"""What an inventory file may say, as types: a host with its slots, environments, models and services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints, model_validator

Engine = Literal["standalone", "sglang", "other"]
Mode = Literal["autoregressive", "linear", "shadow", "tree"]
ROUTER = "haproxy"
"""The engine of a router's service; no inventory names it."""
ROUTER_MODE = "router"
MEET_PORT = 20000
"""Where a service's nodes find each other, unless its ``meet`` says otherwise."""

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


class Spare(Model):
    """A slot's second place: where ``--blue-green`` starts the new service while the old one serves."""

    gpus: list[Annotated[int, Field(ge=0)]]
    port: Annotated[int, Field(ge=1, le=65535)]


class Slot(Named):
    """A place for one service: GPUs by index, and a port."""

    gpus: list[Annotated[int, Field(ge=0)]]
    port: Annotated[int, Field(ge=1, le=65535)]
    spare: Spare | None = None
    _in_spare: bool = PrivateAttr(False)


class Router(Named):
    """An HAProxy on ``port`` in front of ``slots``: one slot with a spare, or the slots of replicas."""

    port: Annotated[int, Field(ge=1, le=65535)]
    slots: Annotated[list[Text], Field(min_length=1)]
    balance: Literal["leastconn", "roundrobin", "random"] = "leastconn"
    template: FileName = "haproxy.service.j2"


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
    ``file:PATH``) and stand in a file that only the host's root reads; ``api_key``: the one of them that its server
    asks of clients, which probes and benchmarks send. ``replicas``: more slots that it fills too,
    one after the other. ``nodes``: the hosts that the service spans, this one first, each with the slot, environment
    and models of the same names; ``tp``: its tensor parallelism over all of them; ``meet``: where they find each
    other, ``address:port``.
    """

    slot: Text
    engine: Engine
    mode: Mode
    environment: Text
    model: Text
    replicas: list[Text] = []
    nodes: Annotated[list[HostName], Field(min_length=2)] | None = None
    tp: Annotated[int, Field(ge=1)] | None = None
    meet: Text = ""
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
    api_key: VariableName | None = None
    probe: Probe = Probe()
    deadlines: Deadlines = Deadlines()
    _is_replica: bool = PrivateAttr(False)

    @property
    def is_router(self) -> bool:
        """Whether it stands in front of other services and is none itself."""
        return str(self.engine) == ROUTER

    @property
    def is_replica(self) -> bool:
        """Whether it is there because another service names its slot among its replicas."""
        return self._is_replica

    def rank(self, host: str) -> int:
        """Which of the service's nodes a host is; 0, that which serves, of a service on one host."""
        return self.nodes.index(host) if self.nodes else 0


class Host(Model):
    """One host, as its inventory file describes it. ``address``: where other hosts reach it, if not as ssh does."""

    host: HostName
    description: str = ""
    ssh: Ssh = Ssh()
    address: Text | None = None
    gpus: Gpus
    default_slot: Text | None = None
    slots: dict[Name, Slot]
    routers: dict[Name, Router] = {}
    environments: dict[Name, EnvironmentRef] = {}
    models: dict[Name, ModelRef] = {}
    services: dict[Name, Service]

    @property
    def name(self) -> str:
        """The host's name in fleetctl and, unless ``ssh.hostname`` says otherwise, in ``~/.ssh/config``."""
        return self.host

    def _meeting_place(self, service: Service) -> str:
        return f"{self.address or self.ssh.hostname or self.host}:{MEET_PORT}" if service.nodes else ""

    def router_of(self, slot: str) -> Router | None:
        """The router that stands in front of a slot."""
        return next((router for router in self.routers.values() if slot in router.slots), None)

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        for key, service in self.services.items():
            self.services[key] = service.model_copy(
                update={
                    "model_id": service.model_id or service.model,
                    "unit": service.unit or default_unit(key),
                    "template": service.template or f"{service.engine}.service.j2",
                    "meet": service.meet or self._meeting_place(service),
                }
            )
        for key, service in [*self.services.items()]:
            for slot in service.replicas:
                self.services[replica_name(key, slot)] = _replica(service, slot)
        for key, router in self.routers.items():
            self.slots[key] = Slot(gpus=[], port=router.port)
            self.services[key] = _router_service(key, router)
        entries: list[Mapping[str, Named]]
        entries = [self.slots, self.routers, self.environments, self.models, self.services]
        for mapping in entries:
            for key, entry in mapping.items():
                entry._name = key
        return self


def replica_name(service: str, slot: str) -> str:
    """What a service is called in one of its replicas' slots."""
    return f"{service}.{slot}"


def replica_unit(unit: str, slot: str) -> str:
    """The unit's name of a service in one of its replicas' slots."""
    return f"{unit.removesuffix('.service')}-{slot}.service"


def _replica(service: Service, slot: str) -> Service:
    unit = replica_unit(service.unit, slot)
    copy = service.model_copy(update={"slot": slot, "unit": unit, "replicas": []})
    copy._is_replica = True
    return copy


def _router_service(name: str, router: Router) -> Service:
    """A router as the one service of a slot of its own, so that it is deployed and rolled back like any other."""
    return Service.model_construct(
        slot=name,
        engine=ROUTER,
        mode=ROUTER_MODE,
        environment="",
        model="",
        model_id="",
        unit=default_unit(name),
        template=router.template,
        deadlines=Deadlines(ready=30),
    )


def default_unit(service: str) -> str:
    """The unit's name of a service that names none."""
    return f"fleetctl-{service}.service"
