"""A server's command line read back into an inventory's ``args``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.inventory.models import Argument, Engine
from fleetctl.services.engines import Arguments

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_NUMBER = re.compile(r"-[0-9.]")
ALIASES: Mapping[str, Mapping[str, str]] = {
    "sglang": {
        "model": "model-path",
        "tp": "tp-size",
        "tensor-parallel-size": "tp-size",
        "speculative-algo": "speculative-algorithm",
        "speculative-draft-model": "speculative-draft-model-path",
    },
    "vllm": {"tp": "tensor-parallel-size"},
}


@dataclass(frozen=True)
class Parsed:
    """``given``: arguments by name, without ``--``; ``secrets``: names whose values stayed on the host.

    ``rest``: the words that ``args`` cannot say, and ``twice``: names that came more than once (the last counts).
    """

    given: Arguments = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)


def parse(words: Sequence[str | None], engine: str) -> Parsed:
    """Read the words behind the program; None stands in a secret's place."""
    found = Parsed()
    aliases = ALIASES.get(engine, {})
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        flag, equals, joined = (word or "").partition("=")
        name = flag[2:]
        if word is None or not word.startswith("--") or not _NAME.fullmatch(name):
            found.rest.append("…" if word is None else word)
            continue
        values: list[str | None] = [joined] if equals else []
        while not equals and place < len(words) and _is_value(words[place]):
            values.append(words[place])
            place += 1
        name = aliases.get(name, name)
        if None in values:
            found.secrets.append(name)
            continue
        if name in found.given:
            found.twice.append(name)
        found.given[name] = _argument([value for value in values if value is not None])
    return found


def own_arguments(standard: Arguments, given: Arguments) -> Arguments:
    """The ``args`` with which an engine's ``standard`` arguments become the ``given`` ones."""
    missing: Arguments = {name: False for name, value in standard.items() if name not in given and value}
    changed = {
        name: value
        for name, value in given.items()
        if name not in standard or _text(standard[name]) != _text(value)
    }
    return {**changed, **missing}


def text_of(given: Mapping[str, Argument], name: str) -> str | None:
    """An argument's value as text, the first of several; None where it is not given or has none."""
    value = given.get(name)
    if isinstance(value, list):
        value = value[0]
    return None if value is None or isinstance(value, bool) else str(value)


def known_engine(engine: str) -> Engine:
    """The inventory's engine for one that was found."""
    if engine == "sglang":
        return "sglang"
    return "standalone" if engine == "standalone" else "other"


def _is_value(word: str | None) -> bool:
    return word is None or not word.startswith("-") or _NUMBER.match(word) is not None


def _argument(values: list[str]) -> Argument:
    if not values:
        return True
    scalars = [_scalar(value) for value in values]
    return scalars[0] if len(scalars) == 1 else scalars


def _scalar(text: str) -> str | int | float:
    """A number where it is written back as it was, else the text."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text and text not in ("inf", "-inf", "nan"):
            return number
    return text


def _text(value: Argument) -> object:
    if isinstance(value, list):
        return [str(item) for item in value]
    return value if isinstance(value, bool) else str(value)
