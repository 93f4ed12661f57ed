"""Environments that a specification derives from others: base, overlays, patch sets; planned, then made.

What is made is remembered on the host by a key of what the specification says, so that the same specification
is found there again without asking the hosts that it came from: they may have changed, or be gone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fleetctl.agent.paths import ENVS
from fleetctl.environment.bom import Bom, capture, require_verified
from fleetctl.environment.bring import bring_environment, require_movable, require_rsync
from fleetctl.environment.derived import apply_clone, plan_clone
from fleetctl.environment.events import OnEvent
from fleetctl.environment.overlay import plan_overlay
from fleetctl.environment.overlay_act import derived_path, overlay_from
from fleetctl.environment.place import Place
from fleetctl.environment.room import Want
from fleetctl.environment.ship import apply_environment, survey_environment
from fleetctl.environment.spec import EnvironmentSpec, Overlay, load_spec, python_range
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host
from fleetctl.inventory.nearest import hint
from fleetctl.patches.environment import Environment
from fleetctl.patches.patchset import load, load_all
from fleetctl.patches.plan import derived_digest
from fleetctl.transport.agent import Agent, open_agent
from fleetctl.words import counted

PROVING_S = 600.0
Made = Callable[[OnEvent], None]
Derives = Callable[[OnEvent, Mapping[str, Any]], Mapping[str, Any]]
NOTHING: Mapping[str, Any] = {"built": False}


@dataclass(frozen=True)
class SpecifiedPlan:
    """An environment as its specification makes it; ``changes`` says in words what :attr:`make` would do.

    ``wants`` is the room that this takes where that is known before.
    """

    path: str
    digest: str
    is_there: bool
    changes: list[str] = field(default_factory=list)
    make: Made = lambda on_event: None
    wants: list[Want] = field(default_factory=list)


def survey_specified(
    fleet: Fleet, host: Host, agent: Agent, spec: EnvironmentSpec, on_event: OnEvent, facts: Mapping[str, Any]
) -> SpecifiedPlan:
    """What ``spec`` makes on ``host``, and whether it is there; changes nothing on any host.

    FleetError: exit 2 for a specification that cannot be meant, 3 where a host that it takes from is not
    reached, 5 where something speaks against it: then nothing was touched.
    """
    if spec.base is None:
        house, plan = survey_environment(agent, spec, fleet.root, on_event, facts)
        sending = f", sending {plan.send_bytes / 1e6:.0f} MB of wheels" if plan.send else ""
        changes = [] if plan.is_there else [f"build {plan.path}{sending}"]

        def build(on_event: OnEvent) -> None:
            apply_environment(agent, host, house, plan, on_event)

        wants = [] if plan.is_there else [Want(plan.path, plan.needed, plan.free, plan.device)]
        return SpecifiedPlan(plan.path, plan.digest, plan.is_there, changes, build, wants)
    return _Survey(fleet, host, agent, spec, on_event, facts).plan()


@dataclass(frozen=True)
class _Stage:
    """An environment on the way, the last one being what was asked for: its making, and what is made of it.

    ``make`` takes what ``environment.derive`` is to prove, and gives its result.
    """

    path: str
    digest: str
    text: str
    make: Derives
    bom: Bom | None = None
    wants: tuple[Want, ...] = ()


class _Survey:
    """One derivation on one host, worked out stage by stage."""

    def __init__(
        self,
        fleet: Fleet,
        host: Host,
        agent: Agent,
        spec: EnvironmentSpec,
        on_event: OnEvent,
        facts: Mapping[str, Any],
    ) -> None:
        assert spec.base is not None
        self.fleet, self.host, self.agent, self.spec, self.base = fleet, host, agent, spec, spec.base
        self.on_event, self.facts = on_event, facts
        self.sets = [load(fleet.root, name) for name in spec.patches]

    def plan(self) -> SpecifiedPlan:
        inner = self._inner()
        key = self._key(inner)
        name = self.spec.name
        found = self.agent.call("environment.recall", name=name, key=key)
        if found is not None:
            return SpecifiedPlan(found["path"], found["digest"], True)
        stages = self._stages(inner)
        last = stages[-1]

        def make(on_event: OnEvent) -> None:
            self._make(stages, on_event)
            self.agent.call("environment.remember", name=name, key=key, path=last.path)

        changes = [line for stage in stages for line in stage.text.splitlines()]
        wants = [want for stage in stages for want in stage.wants]
        return SpecifiedPlan(last.path, last.digest, False, changes, make, wants)

    def _make(self, stages: list[_Stage], on_event: OnEvent) -> None:
        """All stages; the last one has its name only once it is proved. Refused, none of them stays."""
        last, made = stages[-1], []
        wanted = {"verify": True, "imports": self.spec.imports, "wants_abi": self.spec.abi}
        try:
            for stage in stages:
                result = stage.make(on_event, wanted if stage is last else {})
                if result["built"]:
                    made.append(stage.path)
            if not result.get("verified"):
                self._prove(last.path, on_event)
        except FleetError as error:
            if made and error.exit in (Exit.INPUT, Exit.PREFLIGHT):
                self._remove(made)
            raise

    def _remove(self, made: list[str]) -> None:
        with suppress(FleetError):
            self.agent.call("environment.prune", timeout=None, names=made)

    def _inner(self) -> SpecifiedPlan | None:
        if self.base.spec is None:
            return None
        if self.base.spec == self.spec.name:
            raise FleetError(f"{self.spec.name} is its own base", where=self.spec.source, fix="name another")
        spec = load_spec(self.fleet.root, self.base.spec)
        return survey_specified(self.fleet, self.host, self.agent, spec, self.on_event, self.facts)

    def _key(self, inner: SpecifiedPlan | None) -> str:
        said = [
            self.base.model_dump(),
            [overlay.model_dump() for overlay in self.spec.overlays],
            [[entry.name, entry.digest] for entry in self.sets],
            inner.digest if inner else None,
        ]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]

    def _stages(self, inner: SpecifiedPlan | None) -> list[_Stage]:
        stages = [self._first(inner)]
        for overlay in self.spec.overlays:
            stages.append(self._overlaid(stages[-1], overlay))
        if self.sets:
            stages.append(self._patched(stages[-1]))
        elif len(stages) == 1 and inner is None and stages[0].path == self.base.path:
            stages.append(self._cloned(stages[0]))
        return stages

    def _first(self, inner: SpecifiedPlan | None) -> _Stage:
        if inner is not None:
            bom = self._bom_of_built(inner) if self.spec.overlays else None
            text = "\n".join(inner.changes)
            if inner.is_there:
                self._require_unedited(inner)

            def build(on_event: OnEvent, proof: Mapping[str, Any]) -> Mapping[str, Any]:
                inner.make(on_event)
                return NOTHING

            return _Stage(inner.path, inner.digest, text, build, bom, tuple(inner.wants))
        assert self.base.path is not None
        bom = self._capture(Place(self.spec.source, self._host(self.base.host), path=self.base.path))
        self._require_python(bom)
        if self._is_here(self.base.host):
            return _Stage(self.base.path, bom["digest"], "", lambda on_event, proof: NOTHING, bom)
        return self._brought(bom)

    def _require_unedited(self, inner: SpecifiedPlan) -> None:
        place = Place(self.spec.source, self.host, path=inner.path)
        Environment(self.agent, place).require_unedited(inner.digest)

    def _bom_of_built(self, inner: SpecifiedPlan) -> Bom:
        if not inner.is_there:
            raise FleetError(
                f"what lies over {self.base.spec} can be planned only when that is there",
                where=f"{self.host.name}, {self.spec.source}",
                fix=f"fleetctl env build {self.host.name} {self.base.spec}",
                exit=Exit.PREFLIGHT,
            )
        return capture(self.agent, inner.path, self.on_event)

    def _brought(self, bom: Bom) -> _Stage:
        source, path = self._host(self.base.host), str(self.base.path)
        require_movable(bom, source.name)
        final = f"{ENVS}/{self.spec.name}-{bom['digest']}"

        def make(on_event: OnEvent, proof: Mapping[str, Any]) -> Mapping[str, Any]:
            return bring_environment(self.agent, source, self.host, bom, self.spec.name, on_event, proof)

        text = f"bring {source.name}:{path} ({bom['bytes'] / 1e6:,.0f} MB) as {final}"
        found = self.agent.call("environment.status", name=self.spec.name, digest=bom["digest"], wheels=[])
        want = Want(final, bom["bytes"], found["free_bytes"], found["device"])
        return _Stage(final, bom["digest"], text, make, {**bom, "path": final}, (want,))

    def _cloned(self, base: _Stage) -> _Stage:
        planned = plan_clone(self.agent, base.path, self.spec.name, self.on_event, self.host.name)

        def make(on_event: OnEvent, proof: Mapping[str, Any]) -> Mapping[str, Any]:
            return apply_clone(self.agent, planned, self.host.name, on_event, proof)

        return _Stage(planned.path, planned.digest, f"clone {base.path} as {planned.path}", make)

    def _overlaid(self, base: _Stage, overlay: Overlay) -> _Stage:
        assert base.bom is not None
        source = self._host(overlay.source.host)
        bom = self._capture(Place(self.spec.source, source, path=overlay.source.path))
        planned = plan_overlay(base.bom, bom, overlay.distributions, overlay.remove)
        path = derived_path(planned, self.spec.name)

        def make(on_event: OnEvent, proof: Mapping[str, Any]) -> Mapping[str, Any]:
            return overlay_from(self.agent, self.host, source, planned, self.spec.name, on_event, proof)

        what = f"{counted(len(planned.taken), 'distribution')} of {source.name}:{overlay.source.path}"
        text = f"lay {what} over it as {path}" + "".join(f"\nwarning: {line}" for line in planned.warnings)
        return _Stage(
            path, planned.digest, text, make, {**planned.result, "digest": planned.digest, "path": path}
        )

    def _patched(self, base: _Stage) -> _Stage:
        digest = derived_digest(base.digest, self.sets)

        def make(on_event: OnEvent, proof: Mapping[str, Any]) -> Mapping[str, Any]:
            environment = Environment(self.agent, Place(self.spec.source, self.host, path=base.path))
            known, _ = load_all(self.fleet.root)
            planned = environment.plan_apply(self.sets, known, self.spec.name, base.digest)
            return environment.derive(planned, on_event, keep=True, proof=proof)

        names = ", ".join(entry.name for entry in self.sets)
        path = f"{ENVS}/{self.spec.name}-{digest}"
        return _Stage(path, digest, f"patch it with {names} as {path}", make)

    def _prove(self, path: str, on_event: OnEvent) -> None:
        found = require_verified(self.agent, self.host.name, path, on_event)
        lacking = set((self.spec.abi or "").split("-")) - {"", *(found["abi"] or "").split("-")}
        if lacking:
            raise FleetError(
                f"{self.spec.name} has the ABI tag {found['abi']}; it must have {self.spec.abi}",
                where=f"{self.host.name}:{path}",
                fix=f"take what brings {', '.join(sorted(lacking))}, or correct `abi:` in {self.spec.source}",
                exit=Exit.PREFLIGHT,
            )
        if not self.spec.imports:
            return
        proved = self.agent.call(
            "environment.prove",
            on_event=on_event,
            timeout=PROVING_S,
            path=path,
            sources=[],
            imports=self.spec.imports,
            checks=[],
        )
        for failed in proved["failed"]:
            raise FleetError(
                f"{self.spec.name} is there, and {failed['what']} fails in it",
                where=f"{self.host.name}:{path}",
                fix="see its words below; what it lacks can be laid over it",
                evidence=failed["lines"][-10:],
                exit=Exit.PREFLIGHT,
            )

    def _require_python(self, bom: Bom) -> None:
        version = bom["python"]["version"]
        if not version or not python_range(self.spec.python).contains(version, prereleases=True):
            raise FleetError(
                f"{self.spec.name} is for Python {self.spec.python}, its base has {version or 'none that runs'}",
                where=f"{self.spec.source}, {bom['hostname']}:{bom['path']}",
                fix="correct `python:`, or name another base",
                exit=Exit.PREFLIGHT,
            )

    def _host(self, name: str | None) -> Host:
        if name is None or name == self.host.name:
            return self.host
        if name not in self.fleet.hosts:
            raise FleetError(
                f"no host {name}", where=self.spec.source, fix=hint(name, self.fleet.hosts, "hosts")
            )
        return self.fleet.hosts[name]

    def _is_here(self, name: str | None) -> bool:
        return self._host(name) is self.host

    def _capture(self, place: Place) -> Bom:
        assert place.host is not None and place.path is not None
        if place.host is self.host:
            return capture(self.agent, place.path, self.on_event)
        with open_agent(place.host) as other:
            require_rsync((other, place.host), (self.agent, self.host))
            return capture(other, place.path, self.on_event)
