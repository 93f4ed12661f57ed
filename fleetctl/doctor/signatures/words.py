"""Words without which a pattern cannot match: looking for them is much cheaper than the pattern itself."""

from __future__ import annotations

import re
from functools import cache

SHORTEST = 4
_ESCAPED = frozenset("dDwWsSbBAZ0123456789")
_TOKEN = re.compile(
    r"\\(?P<escaped>.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<quantity>[*+?]\??|\{\d*,?\d*\}\??)"
    r"|(?P<group>\((?:\?(?::|<?[=!]|P<\w+>|[aiLmsux]+\)?))?)|(?P<other>.)",
    re.S,
)
_LOOKS = ("(?=", "(?!", "(?<=", "(?<!")

Words = frozenset[str]


@cache
def words(pattern: str) -> tuple[str, ...]:
    """Texts of which one stands in each match; ``()`` where there is none of four letters, or for odd "
    "patterns."""
    if "(?i" in pattern:
        return ()
    found, _ = _alternatives(list(_TOKEN.finditer(pattern)), 0)
    return tuple(sorted(found)) if found and min(map(len, found)) >= SHORTEST else ()


def _alternatives(tokens: list[re.Match[str]], at: int) -> tuple[Words, int]:
    """The words of what stands between here and the end of the group; empty where an alternative has "
    "none."""
    branches: list[Words] = []
    while True:
        found, at = _branch(tokens, at)
        branches.append(found)
        if at >= len(tokens) or tokens[at]["other"] == ")":
            return (frozenset[str]().union(*branches) if all(branches) else frozenset()), at
        at += 1


def _branch(tokens: list[re.Match[str]], at: int) -> tuple[Words, int]:
    """The best words of one alternative, and where it ends."""
    candidates: list[Words] = []
    run = ""
    while at < len(tokens) and tokens[at]["other"] not in ("|", ")"):
        token = tokens[at]
        optional = at + 1 < len(tokens) and _is_optional(tokens[at + 1])
        if token["group"]:
            inner, at = _alternatives(tokens, at + 1)
            optional = at + 1 < len(tokens) and _is_optional(tokens[at + 1])
            if inner and not optional and not token["group"].startswith(_LOOKS):
                candidates.append(inner)
        letter = _letter(token)
        if letter and not optional:
            run += letter
        else:
            candidates.append(frozenset([run]))
            run = ""
        at += 1
    candidates.append(frozenset([run]))
    return max(candidates, key=lambda each: min(map(len, each))), at


def _letter(token: re.Match[str]) -> str:
    if token["escaped"]:
        return "" if token["escaped"] in _ESCAPED else str(token["escaped"])
    return "" if token["other"] in (None, ".", "^", "$", ")") else str(token["other"])


def _is_optional(token: re.Match[str]) -> bool:
    quantity = token["quantity"] or ""
    return quantity.startswith(("?", "*", "{0", "{,"))
