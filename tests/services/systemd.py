"""Reads units as systemd does: systemd.syntax(7), systemd.service(5) and systemd.unit(5)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", '"': '"', "'": "'", "s": " ",
}  # fmt: skip
_SPECIFIER = re.compile(r"%(.)", re.DOTALL)
_VARIABLE = re.compile(r"\$(\$|\{\w+\}|\w+)")


def settings(text: str, name: str) -> list[str]:
    """The values of a setting, line by line; a line that ends in a backslash would go on, and is refused."""
    lines = re.split(r"[\n\r\0]", text)
    found = [line.partition("=")[2].strip() for line in lines if line.partition("=")[0] == name]
    assert not any(line.endswith("\\") for line in found)
    return found


def words(value: str) -> list[str]:
    """The words of a setting, quotes and escapes taken off and ``%%`` read back; specifiers are refused."""
    return [_specifiers(word) for word in _split(value)]


def exec_words(value: str) -> list[str]:
    """As :func:`words`, for ``ExecStart=``: ``$$`` read back in the arguments; variables are refused."""
    program, *arguments = words(value)
    assert program.startswith("/"), "no prefix such as - or @"
    return [program, *(_variables(word) for word in arguments)]


def verify(text: str, name: str, folder: Path) -> list[str]:
    """The lines that ``systemd-analyze verify`` prints of a unit; none means that it is right."""
    path = folder / name
    path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(path)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    return (done.stdout + done.stderr).splitlines()


def _split(value: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(value):
        if value[at] in " \t":
            at += 1
            continue
        assert not re.match(r"\\?;([ \t]|$)", value[at:]), "a bare ; ends the command"
        word, quote = "", ""
        while at < len(value) and (quote or value[at] not in " \t"):
            character = value[at]
            at += 1
            if character == "\\":
                character, at = _escape(value, at)
                word += character
            elif quote and character == quote:
                quote = ""
            elif not quote and character in "\"'":
                quote = character
            else:
                word += character
        assert not quote, "a quote is not closed"
        found.append(word)
    return found


def _escape(value: str, at: int) -> tuple[str, int]:
    kind = value[at]
    if kind == "x":
        return chr(int(value[at + 1 : at + 3], 16)), at + 3
    return _ESCAPES[kind], at + 1


def _specifiers(word: str) -> str:
    assert set(_SPECIFIER.findall(word)) <= {"%"}, f"a specifier in {word!r}"
    return word.replace("%%", "%")


def _variables(word: str) -> str:
    assert set(_VARIABLE.findall(word)) <= {"$"}, f"a variable in {word!r}"
    return _VARIABLE.sub("$", word)
