"""``doctor.facts``: all that doctor's rules look at, asked at once; each part has its own deadline and fails alone."""

from __future__ import annotations

import os
import socket
import time
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

from fleetctl.agent.errors import AgentError
from fleetctl.agent.host import cards, hardware, kernellog, toolkits
from fleetctl.agent.host import facts as plain
from fleetctl.agent.host.parts import Parts
from fleetctl.agent.model import modelfiles

Json = Dict[str, Any]
Emit = Callable[[Json], None]

SCHEMA = 1
QUICK_S = 5.0
UNITS_S = 15.0
MODEL_S = 30.0
ENVIRONMENT_S = 300.0
NO_GPUS: Json = {
    "gpus": [],
    "apps": [],
    "error": "nvidia-smi was not heard",
    "unknown_fields": [],
    "on_bus": [],
}
NO_TOPOLOGY: Json = {"links": {}, "peer": {}, "iommu": None, "acs": None}
NO_LOG: Json = {"xid": [], "oom": [], "nvrm": [], "error": "not read"}


def facts(args: Json, emit: Emit) -> Json:
    """The ``doctor.facts`` of docs/architecture.md.

    ``args``: ``environments``, ``models``, ``units``, ``paths``, ``toolkits`` (more folders to look at), ``slots`` as
    in ``facts``, ``deep`` (runs a kernel on each GPU), ``python`` (whose torch runs it) and ``hashes`` (compares every
    file of the environments with its RECORD; default false: sizes alone). What the slots' states name is looked at too.
    """
    return _Gathering(args, emit).run()


class _Gathering:
    """One answer: its parts are asked in the order of how long they take."""

    def __init__(self, args: Json, emit: Emit) -> None:
        self.args = args
        self.emit = emit
        self.begin = time.monotonic()
        self.parts = Parts()
        self.slots: Dict[str, Json] = args.get("slots") or {}
        states = _states(self.slots)
        self.environments = _unique(
            [*_list(args, "environments"), *(one.get("environment") for one in states)]
        )
        self.models = _unique(
            [*_list(args, "models"), *(path for one in states for path in one.get("model_paths") or [])]
        )

    def run(self) -> Json:
        """Ask everything, then take the answers."""
        self._ask_environments()
        self._ask_gpus()
        self._ask_services()
        self._ask_host()
        gpus = self._gpus()
        running = self._deep(gpus)
        answer = self.parts.answer
        facts = {
            "schema": SCHEMA,
            "hostname": socket.gethostname(),
            "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "kernel": os.uname().release,
            "arch": os.uname().machine,
            "python": plain.python_facts(),
            "gpus": gpus,
            "driver": cards.driver(gpus, answer("cuda")),
            **{name: answer(name) for name in HOST},
            **{
                name: answer(name)
                for name in ("toolkits", "topology", "ports", "units", "limits", "kernel_log")
            },
            "slots": {
                slot: {"state": answer(f"slots.{slot}"), **answer(f"service.{slot}")} for slot in self.slots
            },
            "environments": {path: answer(f"environments.{path}") for path in self.environments},
            "ptxas": answer("ptxas"),
            "ninja": answer("ninja"),
            "models": {path: answer(f"models.{path}") for path in self.models},
            "deep": answer("deep") if running else None,
        }
        facts["errors"] = self.parts.errors
        facts["seconds"] = round(time.monotonic() - self.begin, 3)
        return facts

    def _ask_environments(self) -> None:
        for path in self.environments:
            self.parts.ask_within(
                ENVIRONMENT_S,
                f"environments.{path}",
                {"error": f"not read within {ENVIRONMENT_S:g} s"},
                capture,
                path,
                self.emit,
                bool(self.args.get("hashes")),
            )
        self.parts.ask_within(QUICK_S, "ptxas", {}, toolkits.ptxas, self.environments)
        self.parts.ask_within(QUICK_S, "ninja", {}, toolkits.ninja, self.environments)
        for path in self.models:
            self.parts.ask_within(MODEL_S, f"models.{path}", _no_model(), modelfiles.look, path)

    def _ask_gpus(self) -> None:
        self.parts.ask_within(cards.SMI_S + 1, "gpus", NO_GPUS, cards.look)
        self.parts.ask_within(cards.SMI_S + 1, "cuda", None, cards.supported_cuda)
        self.parts.ask_within(cards.SMI_S + 1, "topology", NO_TOPOLOGY, cards.topology)
        self.parts.ask_within(kernellog.LOG_S + 1, "kernel_log", NO_LOG, kernellog.look)
        self.parts.ask_within(QUICK_S, "toolkits", [], toolkits.toolkits, _list(self.args, "toolkits"))

    def _ask_services(self) -> None:
        ports = plain.ports_of(self.slots)
        ask = self.parts.ask_within
        ask(QUICK_S, "ports", {}, plain.port_owners, ports)
        ask(UNITS_S, "units", {}, self._units)
        ask(UNITS_S, "limits", {}, self._limits)
        for slot, place in self.slots.items():
            ask(QUICK_S, f"slots.{slot}", None, plain.slot_state, slot)
            ask(QUICK_S, f"service.{slot}", plain.no_service("not heard"), plain.service_facts, slot, place)

    def _units(self) -> Json:
        ports = self.parts.answer("ports")
        names = plain.unit_names(_list(self.args, "units"), self.slots, ports)
        return plain.units(names, hardware.UNIT_LIMITS)

    def _limits(self) -> Json:
        units = self.parts.answer("units")
        return hardware.limits({name: units.get(name, {}) for name in _list(self.args, "units")})

    def _ask_host(self) -> None:
        for name, (empty, function) in HOST.items():
            self.parts.ask_within(QUICK_S, name, empty, function, *self._told(name))

    def _told(self, name: str) -> List[Any]:
        """What a part of the host is asked with."""
        if name == "paths":
            return [_list(self.args, "paths")]
        if name == "disks":
            places = ["/", "/tmp", str(plain.STATE), *self.environments, *self.models]
            return [_unique([*places, *_list(self.args, "paths")])]
        return []

    def _gpus(self) -> Json:
        found: Json = self.parts.answer("gpus")
        late = self.parts.errors.get("gpus")
        return {**found, "error": late} if late else found

    def _deep(self, gpus: Json) -> bool:
        if not self.args.get("deep"):
            return False
        from fleetctl.agent.host import deep

        cards_known = gpus["gpus"] or [{"index": place, "uuid": None} for place in range(len(gpus["on_bus"]))]
        self.parts.ask_within(
            deep.CHILD_S * 2 + 5, "deep", None, deep.look, cards_known, self.args.get("python")
        )
        return True


def capture(path: str, emit: Emit, hashes: bool) -> Json:
    """The BOM of an environment; ``{"error"}`` where it is none."""
    from fleetctl.agent.capture import bom

    try:
        return bom.capture({"path": path, "hashes": hashes}, emit)
    except AgentError as error:
        return {"error": error.what}


def path_facts(paths: Iterable[str]) -> Json:
    """:func:`facts.path_facts` of each path; one that cannot be looked at says so itself."""
    found: Json = {}
    for path in paths:
        try:
            found[path] = plain.path_facts(path)
        except OSError as error:
            found[path] = {"exists": False, "kind": None, "bytes": 0, "error": error.strerror}
    return found


HOST: Dict[str, "tuple[Any, Callable[..., Any]]"] = {
    "os": (None, plain.os_facts),
    "glibc": (None, plain.glibc_facts),
    "glibcxx": (None, hardware.glibcxx),
    "uptime_s": (None, hardware.uptime),
    "paths": ({}, path_facts),
    "disks": ([], hardware.disks),
    "shm": (None, hardware.shm),
    "memory": (None, hardware.memory),
    "cpus": (None, hardware.cpus),
    "numa_nodes": (None, hardware.numa_nodes),
    "libraries": ({}, hardware.libraries),
}


def _no_model() -> Json:
    return {
        "exists": None,
        "config": None,
        "index": None,
        "bytes": 0,
        "fs": None,
        "files": 0,
        "problems": ["it could not be looked at"],
    }


def _states(slots: Json) -> List[Json]:
    found: List[Json] = []
    for slot in slots:
        try:
            found.append(plain.slot_state(slot) or {})
        except (AgentError, OSError):
            continue
    return found


def _list(args: Json, name: str) -> List[str]:
    return [str(one) for one in args.get(name) or []]


def _unique(found: Sequence[Optional[str]]) -> List[str]:
    return list(dict.fromkeys(one for one in found if one))
