"""What a bill of materials of schema 1 must hold for those who read it: the shape that its file is checked by."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

SHOWN = 10
KINDS = {
    "missing": "is missing",
    "list_type": "is no list",
    "model_type": "is no object",
    "dict_type": "is no object",
    "string_type": "is no text",
    "int_type": "is no number",
    "bool_type": "is neither true nor false",
}


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Record(_Part):
    state: str
    sha256: str | None = None


class _Distribution(_Part):
    name: str
    version: str
    info: str
    files: int
    bytes: int
    record: _Record
    editable: str | None
    changed: list[str]
    missing: list[str]
    outside: list[str]
    changed_count: int
    missing_count: int
    outside_count: int
    requires: list[str] = []
    imports: list[str] = []
    modules: dict[str, list[str]] = {}
    direct_url: dict[str, Any] | None = None


class _Extension(_Part):
    path: str
    distribution: str | None
    needed: list[str]
    missing: list[str]
    undefined: list[str]
    undefined_count: int
    error: str | None
    cuda: int | None = None
    gpu: list[str] = []
    glibc: str | None = None
    glibcxx: str | None = None


class _Python(_Part):
    path: str | None
    version: str | None
    tag: str | None
    real: str | None
    runs: bool
    why: str


class _Abi(_Part):
    tag: str | None
    torch: str | None
    cuda: dict[str, list[str]]


class _Unowned(_Part):
    count: int
    bytes: int
    files: list[str]
    packages: list[str]


class _Twice(_Part):
    name: str
    versions: list[str]
    infos: list[str]


class _Inherited(_Part):
    name: str
    version: str


class _Problem(_Part):
    where: str
    what: str


class _Patched(_Part):
    name: str


class _Made(_Part):
    origin: dict[str, Any] | None = None
    patches: list[_Patched] = []


class _Bom(_Part):
    kind: str
    path: str
    digest: str
    captured: str
    files: int
    bytes: int
    python: _Python
    platform: dict[str, str | None]
    site_packages: list[str]
    distributions: list[_Distribution]
    extensions: list[_Extension]
    inherited: list[_Inherited]
    unowned: _Unowned
    twice: list[_Twice]
    abi: _Abi
    problems: list[_Problem]
    hostname: str = ""
    made: _Made | None = None


def wrong(bom: dict[str, Any]) -> list[str]:
    """What is not as schema 1 has it, at most ten: ``distributions[0].version is missing``."""
    try:
        _Bom.model_validate(bom)
    except ValidationError as error:
        return [f"{_key(one['loc'])} {_words(one)}" for one in error.errors(include_url=False)[:SHOWN]]
    return []


def _key(place: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def _words(error: Any) -> str:
    return KINDS.get(error["type"], str(error["msg"]))
