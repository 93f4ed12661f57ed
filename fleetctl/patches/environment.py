"""An environment on a host as patch sets need it: what it says it is, its files, and deriving another from it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from fleetctl.environment.events import OnEvent
from fleetctl.environment.place import Place, locate
from fleetctl.errors import Exit, FleetError
from fleetctl.patches.patchset import PatchSet
from fleetctl.patches.plan import PatchWrites, derived_digest, plan, unmade
from fleetctl.patches.state import PatchState, State, judge
from fleetctl.patches.trees import HASHING_S, Read
from fleetctl.transport.agent import Agent

DERIVING_S = 3600.0


@dataclass(frozen=True)
class Derivation:
    """What making the new environment would write, and where; ``is_there``: it was made before.

    ``base`` is the digest of what it is made of.
    """

    name: str
    digest: str
    base: str
    path: str
    is_there: bool
    patches: tuple[PatchWrites, ...]

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object (``--json``)."""
        return {
            "name": self.name,
            "digest": self.digest,
            "path": self.path,
            "is_there": self.is_there,
            "patches": [
                {
                    "name": entry.patch_set.name,
                    "sha256": entry.patch_set.digest,
                    "files": [
                        {"path": write.path, "before": write.before, "after": write.after}
                        for write in entry.writes
                    ],
                }
                for entry in self.patches
            ],
        }


class Environment:
    """An environment on a host, through its agent."""

    def __init__(self, agent: Agent, place: Place) -> None:
        assert place.host is not None
        self.agent = agent
        self.place = place
        self.host = place.host.name
        self.path = locate(place, agent)
        self.shown = f"{self.host}:{self.path}"
        self.tree = Read(self.shown, self.path, agent)
        self.marker = self.tree.marker()

    def states(self, sets: Sequence[PatchSet], known: Sequence[PatchSet]) -> list[PatchState]:
        """Each patch set's state, by two calls for all of them."""
        installed = self.tree.distributions(entry.distribution for entry in sets)
        digests = self.tree.digests([change.path for entry in sets for change in entry.changes])
        states = []
        for entry in sets:
            found = installed[entry.distribution]
            states.append(judge(entry, found.version if found else None, digests, known))
        return states

    def holds(self, known: Sequence[PatchSet]) -> list[str]:
        """The patch sets that are in it: those that its marker names, and those whose files all say so."""
        there = [state.patch_set.name for state in self.states(known, known) if state.state == State.PATCHED]
        return list(dict.fromkeys([*(entry["name"] for entry in self.patched()), *there]))

    def patched(self) -> list[dict[str, str]]:
        """The patch sets that its marker names: ``{"name", "sha256"}``."""
        patches: list[dict[str, str]] = (self.marker or {}).get("patches") or []
        return patches

    def parent(self) -> Environment | None:
        """The environment it was derived from, where that is on this host and still is what it was then."""
        origin = (self.marker or {}).get("origin")
        if not origin or origin["host"] != self.host or origin["path"] == self.path:
            return None
        place = Place(f"{self.host}:{origin['path']}", self.place.host, path=origin["path"])
        try:
            parent = Environment(self.agent, place)
            if parent.digest != origin["digest"]:
                return None
            parent.require_unedited(parent.digest)
            return parent
        except FleetError as error:
            if error.exit == Exit.UNREACHABLE:
                raise
            return None

    @cached_property
    def digest(self) -> str:
        """12 hex digits of what is in it: its marker's, or those of its bill of materials."""
        if self.marker is not None:
            return str(self.marker["digest"])
        captured = self.agent.call("bom.capture", timeout=HASHING_S, path=self.path, native=False)
        return str(captured["digest"])

    def plan_apply(
        self,
        sets: Sequence[PatchSet],
        known: Sequence[PatchSet],
        name: str | None = None,
        base: str | None = None,
    ) -> Derivation:
        """The environment that the patch sets make of this one, whose digest is ``base`` where that is known.

        :class:`FleetError` as :func:`plan`, and exit 5 where it was edited since fleetctl made it.
        """
        installed = self.tree.distributions(entry.distribution for entry in sets)
        contents = self.tree.contents([change.path for entry in sets for change in entry.changes])
        planned = plan(sets, installed, contents, known, self.shown)
        base = base or self.digest
        digest = derived_digest(base, [entry.patch_set for entry in planned])
        return self._derivation(name, digest, base, planned)

    def plan_revert(self, sets: Sequence[PatchSet], name: str | None = None) -> Derivation:
        """The environment without the patch sets, the last one taken out first."""
        now = {
            path: content
            for path, content in self.tree.contents(
                [change.path for entry in sets for change in entry.changes]
            ).items()
            if content is not None
        }
        planned = []
        for entry in reversed(sets):
            planned.append(unmade(entry, now))
            now.update(
                {write.path: write.content for write in planned[-1].writes if write.content is not None}
            )
        return self._derivation(name, derived_digest(self.digest, sets, "revert"), self.digest, planned)

    def require_unedited(self, digest: str) -> None:
        """FleetError (exit 5) where ``digest`` is its marker's and it was edited since that was written."""
        self.agent.call(
            "environment.examine", timeout=HASHING_S, base=self.path, expects=digest, host=self.host
        )

    def derive(
        self,
        derivation: Derivation,
        on_event: OnEvent,
        *,
        keep: bool,
        proof: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Make it: ``{"path", "built", "method", "seconds"}``. ``keep``: its patch sets prove themselves.

        ``proof``: what else ``environment.derive`` is to prove.
        """
        patches = [entry.to_call() for entry in derivation.patches]
        for patch in patches if not keep else ():
            patch.update(imports=[], checks=[])
        result: dict[str, Any] = self.agent.call(
            "environment.derive",
            timeout=DERIVING_S,
            on_event=on_event,
            name=derivation.name,
            digest=derivation.digest,
            base=self.path,
            overlays=[],
            patches=patches,
            origin={"host": self.host, "path": self.path, "digest": derivation.base},
            abi=(self.marker or {}).get("abi"),
            **{"imports": [], **(proof or {})},
        )
        return result

    def _derivation(
        self, name: str | None, digest: str, base: str, planned: Sequence[PatchWrites]
    ) -> Derivation:
        name = name or _name(self.marker, self.path)
        status = self.agent.call("environment.status", name=name, digest=digest, wheels=[])
        is_there = status["environment"] is not None
        if not is_there:
            self.require_unedited(base)
        return Derivation(name, digest, base, status["path"], is_there, tuple(planned))


def _name(marker: dict[str, Any] | None, path: str) -> str:
    if marker is not None:
        return str(marker["name"])
    return re.sub(r"[^a-z0-9._-]", "-", PurePosixPath(path).name.lower()).lstrip("._-") or "patched"
