"""Plain data as YAML text with comments, in the style of the inventories that people write."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

Key = tuple[str, ...]
Notes = Mapping[Key, Sequence[str]]

WIDTH = 110
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+-]*(?: [A-Za-z0-9_./@+()-]+)*")
_WORDS = re.compile(r"true|false|null|yes|no|on|off|y|n|~", re.IGNORECASE)


def dump(data: Mapping[str, Any], notes: Notes, flow: Sequence[Key], apart: Sequence[Key]) -> str:
    """YAML of ``data``; ``notes`` are comments above a key (or, under ``()``, above all).

    Mappings below the keys of ``flow`` stand on one line; ``"*"`` in a key is any name. Before the keys of
    ``apart`` is an empty line.
    """
    lines = _comment(notes.get((), ()), 0)
    for name, value in data.items():
        lines += _entry((name,), value, notes, flow, apart)
    return "\n".join(lines).lstrip("\n") + "\n"


def scalar(value: Any) -> str:
    """One value as YAML reads it back: quoted where it would be taken for something else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(scalar(item) for item in value)}]"
    text = str(value)
    if _PLAIN.fullmatch(text) and not _WORDS.fullmatch(text):
        return text
    quoted: str = yaml.safe_dump(text, default_style='"', width=1 << 30, allow_unicode=True)
    return quoted.rstrip("\n")


def _entry(key: Key, value: Any, notes: Notes, flow: Sequence[Key], apart: Sequence[Key]) -> list[str]:
    indent = "  " * (len(key) - 1)
    lines = [""] if any(_fits(key, pattern) for pattern in apart) else []
    lines += _comment(notes.get(key, ()), len(key) - 1)
    name = scalar(key[-1])
    if not isinstance(value, dict):
        return [*lines, f"{indent}{name}: {scalar(value)}"]
    inner = any(len(other) > len(key) and other[: len(key)] == key for other in notes)
    if not value or (any(_fits(key, pattern) for pattern in flow) and not inner):
        pairs = ", ".join(f"{scalar(one)}: {scalar(two)}" for one, two in value.items())
        return [*lines, f"{indent}{name}: {{{pairs}}}"]
    lines.append(f"{indent}{name}:")
    for place, (one, two) in enumerate(value.items()):
        lines += _entry((*key, one), two, notes, flow, apart if place else ())
    return lines


def _fits(key: Key, pattern: Key) -> bool:
    return len(key) == len(pattern) and all(
        wanted in ("*", part) for part, wanted in zip(key, pattern, strict=True)
    )


def _comment(notes: Sequence[str], depth: int) -> list[str]:
    lead = "  " * depth + "# "
    lines = []
    for note in notes:
        safe = "".join(character if character.isprintable() else "?" for character in note)
        for line in textwrap.wrap(safe, WIDTH - len(lead), break_long_words=False, break_on_hyphens=False):
            lines.append(lead + line)
    return lines
