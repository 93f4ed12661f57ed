"""What differs between two environments, grouped by what it breaks, and how the one becomes like the other.

Pure, but for a specification's local parts: their versions are digests of fleetctl's own sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fleetctl.environment.diff_abi import abi_differences
from fleetctl.environment.diff_drift import drift_differences
from fleetctl.environment.diff_packages import missing_differences, version_differences
from fleetctl.environment.difference import Difference, Group, Step, listed
from fleetctl.environment.localwheel import local_pin
from fleetctl.environment.sides import Sides
from fleetctl.environment.spec import EnvironmentSpec
from fleetctl.environment.stacks import in_stack
from fleetctl.environment.view import SPECIFICATION, View
from fleetctl.words import counted

Bom = Mapping[str, Any]


def compare(a: Bom, b: Bom) -> list[Difference]:
    """What B lacks of A, the worst first; each with the step that makes B like A.

    Both are BOMs (schema 1), or :func:`specification` 's of one. Empty for an environment and itself.
    """
    sides = Sides(View(a), View(b))
    found = [
        *abi_differences(sides),
        *missing_differences(sides),
        *version_differences(sides),
        *drift_differences(sides),
        *_facts(sides),
    ]
    return sorted(found, key=lambda one: one.rank)


def specification(spec: EnvironmentSpec) -> Bom:
    """A specification in the shape of a BOM: its pins and its local parts, as they are now, as distributions.

    Nothing is known of files and libraries.
    """
    pins = [
        (requirement, next(iter(requirement.specifier)))
        for requirement in map(Requirement, [*spec.requirements, *map(local_pin, spec.local)])
    ]
    return {
        "schema": 1,
        "kind": SPECIFICATION,
        "path": spec.source or f"envs/{spec.name}.yaml",
        "hostname": "",
        "python": {"version": "", "tag": "", "range": spec.python, "runs": True, "why": ""},
        "abi": {"tag": spec.abi},
        "distributions": [
            {"name": canonicalize_name(requirement.name), "version": pin.version, "requires": []}
            for requirement, pin in pins
        ],
    }


def _facts(sides: Sides) -> Iterator[Difference]:
    """What differs and breaks nothing."""
    a, b = sides.a, sides.b
    extra = [name for name in sides.only_b if name not in sides.stack.remove and not in_stack(name)]
    if extra:
        what = f"{counted(len(extra), 'distribution')} that {sides.a_name} does not have"
        lines = [f"{name} {b.versions[name]}" for name in extra]
        yield _fact("extra", what, lines, Step("none", (), "they break nothing"))
    if a.is_specification or b.is_specification:
        return
    for key, one, other in _named_facts(a, b):
        if one != other:
            yield _fact(key, f"{key} is {other}, in {sides.a_name} {one}")
    if a.patch_sets != b.patch_sets:
        one, other = (listed(view.patch_sets) or "none" for view in (a, b))
        yield _fact("patch sets", f"patch sets in it: {other}, in {sides.a_name}: {one}")
    ways = [name for name in sides.both if _installer(a, name) != _installer(b, name)]
    if ways:
        what = f"{counted(len(ways), 'distribution')} came by another installer"
        yield _fact(
            "installer", what, [f"{name}: {_installer(b, name)}, {_installer(a, name)}" for name in ways]
        )


def _named_facts(a: View, b: View) -> Iterator[tuple[str, str, str]]:
    yield "kind", a.kind, b.kind
    yield "python", a.bom["python"].get("version", ""), b.bom["python"].get("version", "")
    for library in ("glibc", "glibcxx"):
        one, other = (str(view.bom.get("platform", {}).get(library)) for view in (a, b))
        yield library, one, other


def _installer(view: View, name: str) -> str:
    return str(view.distributions[name].get("installer") or "unknown")


def _fact(id: str, what: str, evidence: list[str] | None = None, step: Step | None = None) -> Difference:
    return Difference(id, Group.FACT, "info", "", what, tuple(evidence or ()), step or Step("none"))
