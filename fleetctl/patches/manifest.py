"""What a patch set's ``manifest.yaml`` may say, as types."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Self

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from fleetctl.agent.capture.contents import is_inside
from fleetctl.inventory.models import Model, Text

OWN = "fleetctl/"


def _why(text: str) -> str:
    if not text.strip() or text.strip().upper().startswith("TODO"):
        raise ValueError("is still to be written")
    return text


def _version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion:
        raise ValueError(f"is no exact version: {text!r}; ranges are not allowed") from None
    return text


def _distribution(text: str) -> str:
    try:
        return canonicalize_name(text, validate=True)
    except ValueError:
        raise ValueError(f"is no distribution's name: {text!r}") from None


def _installed(text: str) -> str:
    parts = PurePosixPath(text).parts
    if not is_inside(text):
        raise ValueError(f"leads elsewhere: {text!r}; write it relative to site-packages: package/module.py")
    if (
        text.endswith((".pyc", ".pth"))
        or "__pycache__" in parts
        or parts[0].endswith((".dist-info", ".data"))
    ):
        raise ValueError(f"is no file of the distribution's packages: {text!r}")
    return text


def _local(text: str) -> str:
    if not is_inside(text):
        raise ValueError(f"leads elsewhere: {text!r}; write it relative to the patch set's folder")
    return text


def _own(text: str) -> str:
    if not is_inside(text) or not text.startswith(OWN):
        raise ValueError(f"is no source of fleetctl: {text!r}; write it as {OWN}folder/module.py")
    return text


def _digest(text: str) -> str:
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise ValueError("is no sha256: 64 digits of 0-9 and a-f")
    return text


Why = Annotated[Text, AfterValidator(_why)]
Digest = Annotated[str, AfterValidator(_digest)]
Installed = Annotated[str, AfterValidator(_installed)]
Local = Annotated[str, AfterValidator(_local)]


class NewFile(Model):
    """A file that the distribution does not have: ``source`` in the patch set, or ``from`` fleetctl's own."""

    path: Installed
    source: Local | None = None
    own: Annotated[str, AfterValidator(_own)] | None = Field(default=None, alias="from")
    sha256: Digest
    why: Why | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.source is None) == (self.own is None):
            raise ValueError("needs exactly one of source and from")
        return self


class ChangedFile(Model):
    """A file of the distribution, the unified diff of it, and its digests before and after."""

    path: Installed
    diff: Local
    before: Digest
    after: Digest
    why: Why


class Check(Model):
    """What must hold: ``python`` code, or an ``argv`` that begins with ``python``, that exits 0 there
    within so many ``seconds``."""

    what: Text
    python: Text | None = None
    argv: Annotated[list[Text], Field(min_length=1)] | None = None
    seconds: Annotated[int, Field(gt=0, le=1800)] = 60

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.python is None) == (self.argv is None):
            raise ValueError("needs exactly one of python and argv")
        if self.argv and self.argv[0] != "python":
            raise ValueError("must begin with python: it runs in the environment's own; [python, -m, MODULE]")
        return self

    def command(self) -> list[str]:
        """Its words; the first stands for the environment's Python."""
        return self.argv or ["python", "-I", "-B", "-c", str(self.python)]


class Manifest(Model):
    """One ``runtime_patches/<name>/manifest.yaml``."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    distribution: Annotated[str, AfterValidator(_distribution)]
    versions: Annotated[list[Annotated[str, AfterValidator(_version)]], Field(min_length=1)]
    why: Why
    upstream: Text | None
    files: list[NewFile] = Field(default_factory=list)
    hunks: list[ChangedFile] = Field(default_factory=list)
    imports: list[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")]] = Field(
        default_factory=list
    )
    checks: list[Check] = Field(default_factory=list)
