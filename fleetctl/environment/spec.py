"""What an environment is to hold: ``envs/<name>.yaml``, every distribution pinned."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fleetctl.environment.localwheel import PARTS


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


class EnvironmentSpec(BaseModel):
    """One file of ``envs/``. ``source`` is that file, for messages."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    python: Annotated[str, AfterValidator(_python)]
    requirements: tuple[Annotated[str, AfterValidator(_pin)], ...]
    indexes: tuple[str, ...] = ()
    local: tuple[Annotated[str, AfterValidator(_part)], ...] = ()
    imports: tuple[str, ...] = ()
    abi: str | None = None
    source: Path = Field(default=Path(), exclude=True)

    @property
    def pins(self) -> dict[str, Requirement]:
        """Canonical distribution name → its requirement."""
        return {canonicalize_name(pin.name): pin for pin in map(Requirement, self.requirements)}

    def resolution_key(self) -> str:
        """12 hex digits of all that decides which wheels are found: requirements and indexes."""
        parts: dict[str, Any] = {"requirements": sorted(self.requirements), "indexes": list(self.indexes)}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
