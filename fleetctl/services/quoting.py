"""Text as systemd reads it back (systemd.syntax(7), systemd.service(5), systemd.unit(5))."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PLAIN = re.compile(r"[A-Za-z0-9_./:=,+@%-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def word(text: str) -> str:
    """One word of a setting such as ``Environment=``: quoted where it must be, ``%`` doubled."""
    text = text.replace("%", "%%")
    if _PLAIN.fullmatch(text):
        return text
    return f'"{"".join(_escaped(character) for character in text)}"'


def exec_line(words: Iterable[str]) -> str:
    """The words of ``ExecStart=``: as :func:`word`, and ``$`` doubled in the arguments."""
    program, *rest = words
    return " ".join([word(program), *(word(text.replace("$", "$$")) for text in rest)])


def value(text: str) -> str:
    """A setting that systemd takes as it stands (``Description=``): one line, ``%`` doubled."""
    return " ".join(text.replace("%", "%%").split()).rstrip("\\")


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character < " " or character == "\x7f":
        return f"\\x{ord(character):02x}"
    return character
