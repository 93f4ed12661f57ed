"""Which values must not leave the host: told by the name they stand under, or by what they look like."""

from __future__ import annotations

import re
from typing import Iterable, List, Optional, Tuple

NAMES = {"token", "secret", "secrets", "password", "passwd", "passphrase", "credential", "credentials"}
NAMES |= {"key", "apikey", "auth", "bearer", "pat", "pwd"}
SHAPES = re.compile(
    r"\b(?:hf_|sk-|ghp_|github_pat_|glpat-|nvapi-|xox[abp]-|AKIA)[A-Za-z0-9_-]{12,}"
    r"|://[^/\s:@]*:[^/\s@]+@"
    r"|\bBearer\s+\S{8,}"
    r"|[\"']?\b\w*(?:token|secret|password|passwd|api_?key)[\"']?\s*[:=]\s*[\"']?[^\s\"',}]{4,}",
    re.IGNORECASE,
)
HARMLESS = re.compile(r"[-+]?[0-9]{0,7}(?:\.[0-9]{0,7})?|true|false|yes|no|on|off|none|auto", re.IGNORECASE)
SETTING = re.compile(
    r"(?:^|[\s\"';=])(?P<name>--[\w.-]+|[A-Za-z_]\w*)(?P<sign>=|\s+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"']+)"
)


def is_secret(name: str, value: str) -> bool:
    """Whether ``value``, which stands under ``name``, looks like a token or a password."""
    if HARMLESS.fullmatch(value):
        return False
    words = re.split(r"[-_.\s]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower())
    return bool(NAMES.intersection(words)) or SHAPES.search(value) is not None


def without(words: Iterable[str]) -> Tuple[List[Optional[str]], List[str]]:
    """A command line's words with None in place of each secret, and the names that these stand under.

    ``--api-key=x`` becomes the two words ``--api-key`` and None.
    """
    kept: List[Optional[str]] = []
    names: List[str] = []
    before = ""
    for word in words:
        flag, equals, value = word.partition("=")
        if word.startswith("--") and equals and is_secret(flag, value):
            kept += [flag, None]
            names.append(flag)
        elif not word.startswith("--") and is_secret(before, word):
            kept.append(None)
            names.append(before or "a word without a name")
        else:
            kept.append(word)
        before = word if word.startswith("--") and not equals else ""
    return kept, list(dict.fromkeys(names))


def within(text: str) -> List[str]:
    """The names under which a text (a unit's file) holds secrets; empty where it holds none."""
    found: List[str] = []
    for whole in text.splitlines():
        line = re.sub(r"^\s*Environment\s*=", "", whole)
        names = []
        for match in SETTING.finditer(line):
            name, value = match["name"], match["value"].strip("\"'")
            is_flag = name.startswith("--")
            if (is_flag or match["sign"] == "=") and not value.startswith("--") and is_secret(name, value):
                names.append(name)
        if not names and SHAPES.search(line):
            names.append(line.partition("=")[0].strip() or "a line")
        found += names
    return list(dict.fromkeys(found))
