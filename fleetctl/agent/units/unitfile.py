"""A unit file's settings, as systemd.syntax(7) has them: continued lines, quoted words, settings that reset."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Sequence, Tuple

ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
CODES = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})")
VARIABLE = re.compile(r"\$\$|\$\{(\w+)\}")

Settings = Dict[str, List[str]]


def settings(texts: Sequence[str], section: str = "Service") -> Settings:
    """The values of each setting of a section, of a unit's file and then its drop-ins; an empty one resets."""
    found: Settings = {}
    for text in texts:
        here = ""
        for line in _lines(text):
            if line.startswith("[") and line.endswith("]"):
                here = line[1:-1]
                continue
            name, equals, value = line.partition("=")
            if here != section or not equals:
                continue
            name, value = name.strip(), value.strip()
            if value:
                found.setdefault(name, []).append(value)
            else:
                found[name] = []
    return found


def _lines(text: str) -> List[str]:
    lines: List[str] = []
    held = ""
    for line in text.splitlines():
        if line.lstrip().startswith(("#", ";")):
            continue
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        lines.append((held + line).strip())
        held = ""
    return [line for line in [*lines, held.strip()] if line]


def words(value: str) -> List[str]:
    """The words of a setting, unquoted; specifiers and variables stay as they are."""
    found: List[str] = []
    word, quote, begun = "", "", False
    place = 0
    while place < len(value):
        character = value[place]
        place += 1
        if character == "\\" and place < len(value):
            said, width = _escape(value[place:])
            word, place, begun = word + said, place + width, True
        elif quote:
            if character == quote:
                quote = ""
            else:
                word += character
        elif character in "\"'" and not word:
            quote, begun = character, True
        elif character.isspace():
            if begun or word:
                found.append(word)
            word, begun = "", False
        else:
            word += character
    if begun or word:
        found.append(word)
    return found


def _escape(rest: str) -> Tuple[str, int]:
    code = CODES.match(rest)
    if code:
        digits = code[1] or code[2] or code[3]
        number = int(digits, 16) if digits else int(code[4], 8)
        return (chr(number) if number < 0x110000 else "?"), code.end()
    return ESCAPES.get(rest[0], rest[0]), 1


def variables(found: Settings) -> Dict[str, str]:
    """What the ``Environment=`` lines set."""
    pairs = (word.partition("=") for value in found.get("Environment", []) for word in words(value))
    return {name: value.replace("%%", "%") for name, equals, value in pairs if equals}


def exec_words(line: str, unit: str, known: Mapping[str, str]) -> List[str]:
    """The command line of an ``ExecStart=``, with the instance, ``%%`` and known variables filled in."""
    stem = unit.rpartition(".")[0]
    prefix, _, instance = stem.partition("@")
    specifiers = {"%i": instance, "%I": instance, "%p": prefix, "%n": unit, "%N": stem, "%%": "%"}
    found: List[str] = []
    for word in words(line.lstrip("@-:+!")):
        word = re.sub(r"%[iIpnN%]", lambda match: specifiers[match[0]], word)
        if re.fullmatch(r"\$\w+", word) and word[1:] in known:
            found += known[word[1:]].split()
        else:
            found.append(VARIABLE.sub(lambda match: _value(match, known), word))
    return found


def _value(match: "re.Match[str]", known: Mapping[str, str]) -> str:
    return "$" if match[0] == "$$" else known.get(match[1], match[0])
