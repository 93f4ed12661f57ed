"""Whether named distributions of one environment can be laid over another, and what comes of it. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from packaging.utils import canonicalize_name

from fleetctl.environment.overlay_checks import Overlay, refusals, warnings
from fleetctl.environment.stacks import is_toolkit
from fleetctl.environment.view import View
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.nearest import nearest

Bom = Mapping[str, Any]
OPTION = re.compile(r"--(dist|remove) ([^\s,;]+)")
ROUNDS = 10


@dataclass(frozen=True)
class Taken:
    """A distribution that comes: its RECORD's digest, and the version that it ``replaces`` (None: it is new)."""

    name: str
    version: str
    record: str
    replaces: str | None


@dataclass(frozen=True)
class OverlayPlan:
    """What an overlay makes of its base.

    ``digest`` (12 hex digits) is of ``inputs``: the base's digest and what is laid over and taken out, so the
    same overlay has the same name. ``result`` is the BOM to expect, as far as two BOMs tell.
    """

    base: Bom
    source: Bom
    taken: tuple[Taken, ...]
    removed: tuple[str, ...]
    paths: tuple[str, ...]
    warnings: tuple[str, ...]
    inputs: Mapping[str, Any]
    result: Bom

    @property
    def digest(self) -> str:
        """12 hex digits of ``inputs``."""
        return hashlib.sha256(json.dumps(self.inputs, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def distributions(self) -> dict[str, str]:
        """Every distribution of the result with its version."""
        return {entry["name"]: entry["version"] for entry in self.result["distributions"]}

    @property
    def is_there(self) -> bool:
        """Whether the base has all of it already, so that there is nothing to do."""
        return not (self.taken or self.removed or self.paths)

    def to_dict(self) -> dict[str, Any]:
        """The plan as one JSON object, without the whole BOMs."""
        return {
            "base": {key: self.base.get(key) for key in ("hostname", "path", "digest")},
            "source": {key: self.source.get(key) for key in ("hostname", "path", "digest")},
            "digest": self.digest,
            "inputs": self.inputs,
            "taken": [vars(one) for one in self.taken],
            "removed": list(self.removed),
            "removed_paths": list(self.paths),
            "warnings": list(self.warnings),
            "distributions": self.distributions,
        }


def plan_overlay(base: Bom, source: Bom, names: Sequence[str], remove: Sequence[str] = ()) -> OverlayPlan:
    """Plan laying ``names`` (patterns such as ``nvidia-*`` too) of ``source`` over ``base``.

    ``remove`` names distributions of the base, or nested copies in it (``sglang/sglang``), that go. Where torch
    comes and its CUDA is another one, the base's toolkit distributions that the source does not have go as well.
    What is the same in both already is left alone. FleetError (exit 5) with every reason against it.
    """
    ours, theirs = View(base), View(source)
    asked = _named(theirs, names)
    gone, paths = _removed(ours, remove)
    overlay = _overlay(ours, theirs, asked, gone, paths)
    _raise(refusals(overlay), overlay)
    take = overlay.take
    taken = tuple(
        Taken(name, entry["version"], entry["record"]["sha256"], ours.versions.get(name))
        for name in sorted(take)
        for entry in (theirs.distributions[name],)
    )
    inputs = {
        "base": base["digest"],
        "overlays": [[one.name, one.version, one.record] for one in taken],
        "removed": sorted([*overlay.remove, *overlay.paths]),
    }
    return OverlayPlan(
        base,
        source,
        taken,
        tuple(sorted(overlay.remove)),
        tuple(sorted(paths)),
        tuple(warnings(overlay)),
        inputs,
        overlay.after.bom,
    )


def _overlay(ours: View, theirs: View, asked: set[str], gone: set[str], paths: set[str]) -> Overlay:
    """Of what is asked for that which is not the same already; with torch of another CUDA goes the old toolkit."""
    if "torch" in asked and ours.cuda != theirs.cuda:
        gone = gone | {
            name for name in ours.distributions if is_toolkit(name) and name not in theirs.distributions
        }
    take = {name for name in asked if not _is_same(ours, theirs, name)}
    return Overlay(ours, theirs, frozenset(take), frozenset(gone - take), frozenset(paths), frozenset(asked))


def _named(source: View, names: Sequence[str]) -> set[str]:
    """The source's distributions that are meant; FleetError (exit 5) for a name that fits none."""
    found: set[str] = set()
    for name in names:
        is_pattern = any(sign in name for sign in "*?[")
        wanted = name.lower().replace("_", "-") if is_pattern else canonicalize_name(name)
        fitting = {one for one in source.distributions if fnmatchcase(one, wanted)}
        if not fitting:
            raise FleetError(
                f"{name} is not installed in {source.label}",
                where=source.label,
                fix=_near(wanted, source.distributions, source),
                exit=Exit.PREFLIGHT,
            )
        found |= fitting
    return found


def _removed(base: View, names: Sequence[str]) -> tuple[set[str], set[str]]:
    gone, paths = set(), set()
    nested = {base.inside(path) for path in base.bom.get("unowned", {}).get("packages", ())}
    for name in names:
        if name.strip("/") in nested:
            paths.add(name.strip("/"))
        elif canonicalize_name(name) in base.distributions:
            gone.add(str(canonicalize_name(name)))
        else:
            raise FleetError(
                f"there is no {name} to remove from {base.label}",
                where=base.label,
                fix=_near(name, {*base.distributions, *nested}, base),
                exit=Exit.PREFLIGHT,
            )
    return gone, paths


def _near(name: str, known: Iterable[str], view: View) -> str:
    near = nearest(name, known)
    return f"did you mean {near}?" if near else f"`fleetctl env show {view.label}` lists what is there"


def _is_same(base: View, source: View, name: str) -> bool:
    """Whether the base has that very distribution, whole."""
    ours, theirs = base.distributions.get(name), source.distributions[name]
    if ours is None or ours["version"] != theirs["version"]:
        return False
    whole = not any(ours.get(key) for key in ("changed", "missing", "outside", "editable"))
    twice = any(entry["name"] == name for entry in base.bom.get("twice", ()))
    return whole and not twice and ours["record"]["state"] == "ok" and ours["record"] == theirs["record"]


def _raise(reasons: list[FleetError], overlay: Overlay) -> None:
    if not reasons:
        return
    remedy = _remedy(reasons, overlay)
    if len(reasons) == 1:
        if len(OPTION.findall(remedy)) > len(OPTION.findall(reasons[0].fix)):
            reasons[0].fix = remedy
        raise reasons[0]
    raise FleetError(
        f"{len(reasons)} reasons against this overlay",
        where=overlay.base.label,
        fix=remedy or reasons[0].fix,
        evidence=[
            line
            for reason in reasons
            for line in (
                f"{reason.what} (at {reason.where}); {reason.fix}",
                *(f"  {seen}" for seen in reason.evidence),
            )
        ],
        exit=Exit.PREFLIGHT,
    )


def _remedy(reasons: list[FleetError], overlay: Overlay) -> str:
    """``add --dist A --dist B --remove C``: all that the reasons ask for, and then those against that; "" for none."""
    dist: dict[str, None] = {}
    remove: dict[str, None] = {}
    for _ in range(ROUNDS):
        asked = [found for reason in reasons for found in OPTION.findall(reason.fix)]
        known = len(dist) + len(remove)
        dist.update(dict.fromkeys(name for option, name in asked if option == "dist"))
        remove.update(
            dict.fromkeys(name for option, name in asked if option == "remove" and name not in dist)
        )
        if len(dist) + len(remove) == known:
            break
        paths = {name for name in remove if "/" in name}
        gone = {*overlay.remove, *(remove.keys() - paths)}
        wider = _overlay(
            overlay.base, overlay.source, {*overlay.asked, *dist}, gone, {*overlay.paths, *paths}
        )
        reasons = refusals(wider)
    words = [*(f"--dist {name}" for name in dist), *(f"--remove {name}" for name in remove)]
    return f"add {' '.join(words)}" if words else ""
