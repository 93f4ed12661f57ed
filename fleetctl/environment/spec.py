"""What an environment is to hold: ``envs/<name>.yaml``, every distribution pinned."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, PrivateAttr, StringConstraints, ValidationError

from fleetctl.environment.localwheel import PARTS
from fleetctl.errors import FleetError
from fleetctl.inventory.document import Document, Problem, read
from fleetctl.inventory.models import Model, Text
from fleetctl.inventory.nearest import hint
from fleetctl.inventory.problems import in_words

ENVS = "envs"


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


class EnvironmentSpec(Model):
    """One file of ``envs/``. ``source`` is that file, as messages show it."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    python: Annotated[str, AfterValidator(_python)]
    requirements: list[Annotated[str, AfterValidator(_pin)]]
    indexes: list[Text] = Field(default_factory=list)
    local: list[Annotated[str, AfterValidator(_part)]] = Field(default_factory=list)
    imports: list[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")]] = Field(
        default_factory=list
    )
    abi: Text | None = None
    _source: str = PrivateAttr("")

    @property
    def source(self) -> str:
        """The file it was read from, relative to the fleet folder."""
        return self._source

    def resolution_key(self) -> str:
        """12 hex digits of all that decides which wheels are found: requirements and indexes."""
        parts: dict[str, Any] = {"requirements": sorted(self.requirements), "indexes": self.indexes}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def load_spec(root: Path, name: str) -> EnvironmentSpec:
    """``<root>/envs/<name>.yaml``; FleetError (exit 2) naming every error with its file and line."""
    path = root / ENVS / f"{name}.yaml"
    if not path.is_file():
        known = [file.stem for file in path.parent.glob("*.yaml")]
        raise FleetError(
            f"no environment {name}", where=str(path.parent), fix=hint(name, known, "environments")
        )
    document, shown = read(path), f"{ENVS}/{path.name}"
    spec, problems = _parse(document, name)
    if spec is not None and not problems:
        spec._source = shown
        return spec
    problems.sort(key=lambda problem: problem.line or document.line(problem.key))
    errors = [
        FleetError(problem.what, f"{shown}:{problem.line or document.line(problem.key)}", problem.fix)
        for problem in problems
    ]
    if len(errors) == 1:
        raise errors[0]
    raise FleetError(
        f"{len(errors)} errors in the environment {name}",
        where=errors[0].where,
        fix="correct the lines above",
        evidence=[f"{error}" + (f"; {error.fix}" if error.fix else "") for error in errors],
    )


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
