"""What an environment is to hold: ``envs/<name>.yaml``.

Built from ``requirements`` (every distribution pinned), or derived from a ``base``: another environment, with
distributions of other environments laid over it and patch sets on top.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Self

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from fleetctl.environment.localwheel import PARTS
from fleetctl.errors import FleetError
from fleetctl.inventory.document import Document, Problem, read
from fleetctl.inventory.models import FileName, HostName, Model, Name, Text, VenvPath
from fleetctl.inventory.nearest import hint
from fleetctl.inventory.problems import in_words, together

ENVS = "envs"
DistributionPattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._*-]*$")]


def _pin(text: str) -> str:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(f"not a requirement: {error}") from None
    pins = list(requirement.specifier)
    if requirement.url or len(pins) != 1 or pins[0].operator != "==" or pins[0].version.endswith(".*"):
        raise ValueError("not pinned; write it as name==version")
    return text


def _python(text: str) -> str:
    try:
        python_range(text)
    except InvalidSpecifier:
        raise ValueError("not a Python version or range, such as 3.11 or >=3.10,<3.13") from None
    return text


def _part(text: str) -> str:
    if text not in PARTS:
        raise ValueError(f"not a part of fleetctl; known: {', '.join(sorted(PARTS))}")
    return text


def python_range(text: str) -> SpecifierSet:
    """``3.11`` means any 3.11; anything else is a range such as ``>=3.10,<3.13``."""
    try:
        Version(text)
    except InvalidVersion:
        return SpecifierSet(text)
    return SpecifierSet(f"=={text}.*")


class Place(Model):
    """An environment that is on a host already; without ``host``: on the host that is deployed to."""

    path: VenvPath
    host: HostName | None = None


class Base(Model):
    """What an environment is derived from: one that is at ``path``, or what ``envs/<spec>.yaml`` makes."""

    path: VenvPath | None = None
    host: HostName | None = None
    spec: FileName | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.spec is None) == (self.path is None):
            raise ValueError("needs exactly one of spec and path")
        if self.spec is not None and self.host is not None:
            raise ValueError("has a host, which goes with path alone: a spec is built where it is needed")
        return self


class Overlay(Model):
    """Distributions that come from ``source`` in place of the base's own; ``nvidia-*`` means all of that name.

    ``remove``: distributions of the base, or nested copies in it (``sglang/sglang``), that go.
    """

    source: Place
    distributions: Annotated[list[DistributionPattern], Field(min_length=1)]
    remove: list[Text] = Field(default_factory=list)


class EnvironmentSpec(Model):
    """One file of ``envs/``. ``source`` is that file, as messages show it."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    python: Annotated[str, AfterValidator(_python)]
    requirements: list[Annotated[str, AfterValidator(_pin)]] = Field(default_factory=list)
    indexes: dict[Name, Text] = Field(default_factory=dict)
    local: list[Annotated[str, AfterValidator(_part)]] = Field(default_factory=list)
    base: Base | None = None
    overlays: list[Overlay] = Field(default_factory=list)
    patches: list[FileName] = Field(default_factory=list)
    imports: list[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")]] = Field(
        default_factory=list
    )
    abi: Text | None = None
    _source: str = PrivateAttr("")

    @model_validator(mode="after")
    def _built_or_derived(self) -> Self:
        if self.base is None:
            if not self.requirements:
                raise ValueError("has neither requirements to be built from nor a base to be derived from")
            if self.overlays or self.patches:
                raise ValueError("has overlays or patches but no base; name the spec they go on as its base")
        elif self.requirements or self.local or self.indexes:
            raise ValueError(
                "is derived from a base; what it builds (requirements, local, indexes) belongs there"
            )
        return self

    @property
    def source(self) -> str:
        """The file it was read from, relative to the fleet folder."""
        return self._source

    def resolution_key(self) -> str:
        """12 hex digits of all that decides which wheels are found: requirements and indexes."""
        parts: dict[str, Any] = {
            "requirements": sorted(self.requirements),
            "indexes": [*self.indexes.values()],
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def load_spec(root: Path, name: str) -> EnvironmentSpec:
    """``<root>/envs/<name>.yaml``; FleetError (exit 2) naming every error with its file and line."""
    path = root / ENVS / f"{name}.yaml"
    known = [file.stem for file in (root / ENVS).glob("*.yaml")]
    if name not in known or not path.is_file():
        raise FleetError(
            f"no environment {name}", where=str(root / ENVS), fix=hint(name, known, "environments")
        )
    document, shown = read(path), f"{ENVS}/{path.name}"
    spec, problems = _parse(document, name)
    if spec is not None and not problems:
        spec._source = shown
        return spec
    raise together(document, shown, problems, f"the environment {name}")


def _parse(document: Document, name: str) -> tuple[EnvironmentSpec | None, list[Problem]]:
    if document.problems:
        return None, document.problems
    if not isinstance(document.data, dict):
        return None, [Problem((), "the file describes no environment", f"begin with name: {name}")]
    try:
        spec = EnvironmentSpec.model_validate(document.data)
    except ValidationError as error:
        return None, in_words(error, document.data, EnvironmentSpec)
    problems = [*_twice(spec)]
    if spec.name != name:
        problems.append(Problem(("name",), f"the file is {name}.yaml, its name {spec.name}", "make them one"))
    return spec, problems


def _twice(spec: EnvironmentSpec) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for index, pin in enumerate(spec.requirements):
        name = canonicalize_name(Requirement(pin).name)
        if name in seen:
            yield Problem(("requirements", index), f"{pin} stands beside {seen[name]}", "keep one of them")
        seen.setdefault(name, pin)
