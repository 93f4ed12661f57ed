"""Text without what must not stand in a public issue: users, homes, keys, tokens, addresses and host names. Pure.

Rather too much goes than too little.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fleetctl.agent.secrets import HARMLESS, is_secret

USER, HOME, ADDRESS, HOST, SECRET, ID, MAC = "USER", "~", "ADDRESS", "HOST", "SECRET", "ID", "MAC"
MOST = 20_000
LOOKED_AT = 200


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_HOME = re.compile(r"(?<![\w.~-])/(?:home|Users)/(?P<user>[^/\s'\":,;)(\]\[}{<>|=]+)")
_ROOT = re.compile(r"(?<![\w.~-])/root(?![\w.-])")
_LOGIN = re.compile(r"\b(?:User|USER|LOGNAME|SUDO_USER)=[\"']?(?P<user>[A-Za-z_][\w.-]*)")
_KEY_BLOCK = re.compile(r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)", re.DOTALL)
_SSH_KEY = re.compile(r"\bAAAA[A-Za-z0-9+/]{16,}={0,2}(?:[ \t]+\S+@\S+)?")
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_|sk-|gh[opsur]_|github_pat_|glpat-|nvapi-|xox[abprs]-|AKIA|ASIA|AIza|dckr_pat_|npm_|pypi-)[A-Za-z0-9_-]{8,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"
    r"|(?i:\bbearer\s+)\S{6,}"
    r"|(?i:\bauthorization[\"']?\s*[:=]\s*[\"']?(?:\w+\s+)?)\S+"
)
_URL_USER = re.compile(r"(?<=://)[^/\s@]+@")
_URL_HOST = re.compile(r"(?<=://)(?P<host>[^/\s:@'\"<>()\[\]]+)")
_VALUE = r"(?=(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',;}\])]+))"
_SETTINGS = (
    re.compile(r"(?P<name>--[A-Za-z][\w.-]*)(?:\s+|=)" + _VALUE),
    re.compile(r"(?<![\w.-])(?P<name>[A-Za-z_][\w.-]*)[\"']?\s*[=:]\s*" + _VALUE),
)
_ERROR = re.compile(r"(?:Error|Exception|Warning)$")
_LONG = re.compile(r"(?<![\w+.$-])(?!_Z)(?=[\w+-]*[a-z])(?=[\w+-]*[A-Z])(?=[\w+-]*\d)[\w+-]{40,}={0,2}")
_UUID = re.compile(r"(?:GPU-|MIG-)?(?<![0-9a-fA-F])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MAC = re.compile(r"(?<![0-9a-fA-F:])[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}(?![0-9a-fA-F]|:[0-9a-fA-F]{2}\b)")
_V4 = re.compile(r"(?<!\d)(?<!\d\.)(?:\d{1,3}\.){3}\d{1,3}(?!\.?\d)")
_VERSIONED = re.compile(r"nvidia[-_][a-z0-9_-]+?\s?(?:[=<>~!]=|[-_<> ])\s?$")
_V6 = re.compile(
    r"(?<![\w:.])(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{2,}(?:\d{1,3}(?:\.\d{1,3}){3})?(?:%\w+)?(?![\w:])"
)
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_UNITS = (".service", ".socket", ".slice", ".scope", ".timer", ".target", ".mount", ".device")
_JOURNAL = re.compile(
    r"(?m)^(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?) "
    r"(?P<host>[\w.-]+) (?=[^\s:]+: )"
)
_NAME = re.compile(
    r"(?<![\w./@-])(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+(?P<last>[A-Za-z]{2,24})(?![\w-]|\.\w)"
)
_TOP = _words("com net org edu gov io ai dev cloud local localdomain lan internal intranet intra corp arpa ")
_NO_COUNTRY = _words("so py md cu cc rs sh js ts gz xz nn fx op hh pt db bz hs go ")
_PUBLIC = re.compile(
    r"(?:^|\.)(?:github\.com|nvidia\.com|pytorch\.org|huggingface\.co|pypi\.org|python\.org|ubuntu\.com|debian\.org"
    r"|sglang\.ai|vllm\.ai|kernel\.org|freedesktop\.org)$",
    re.IGNORECASE,
)
_NOBODY = _words(
    "root nobody user users ubuntu debian admin systemd sglang vllm torch triton cuda nvidia "
    "python fleetctl model models gpu llm ai ml data work app service "
)
_LOCAL = {"localhost", "localhost.localdomain"}


def known_names(texts: Any, users: Iterable[str] = ()) -> dict[str, str]:
    """Private users: those named by ``users``, and those whose homes any text of a JSON value names."""
    found: dict[str, str] = {}
    _collect(texts, found)
    return found | {name: USER for name in users if _is_person(name)}


def _collect(value: Any, found: dict[str, str]) -> None:
    if isinstance(value, str):
        for pattern in (_HOME, _LOGIN):
            found |= {match["user"]: USER for match in pattern.finditer(value) if _is_person(match["user"])}
    elif isinstance(value, Mapping):
        for key, one in value.items():
            _collect(key, found)
            _collect(one, found)
    elif isinstance(value, list | tuple):
        for one in value:
            _collect(one, found)


def _is_person(name: str) -> bool:
    return bool(name) and name.lower() not in _NOBODY and not name.isdigit()


def host_names(hosts: Iterable[str]) -> dict[str, str]:
    """Hosts by name, long and short, each with what stands for it; addresses go by their own look."""
    found: dict[str, str] = {}
    for name in hosts:
        for each in (name, name.partition(".")[0]):
            if each and not each.isdigit() and each.lower() not in _LOCAL:
                found[each] = HOST
    return found


def versions_in(facts: Mapping[str, Any]) -> set[str]:
    """Versions of the environments' distributions: some look like addresses."""
    environments = facts.get("environments")
    boms = environments.values() if isinstance(environments, Mapping) else ()
    listed = [bom.get("distributions") for bom in boms if isinstance(bom, Mapping)]
    return {
        str(one.get("version"))
        for rows in listed
        for one in (rows if isinstance(rows, list) else [])
        if isinstance(one, Mapping)
    }


def redact(text: str, names: Mapping[str, str] | None = None, versions: Collection[str] = ()) -> str:
    """``text`` with each secret replaced by what it was: ``USER``, ``~``, ``ADDRESS``, ``HOST``, ``SECRET``, ``ID``.

    ``names``: private words and what stands for each; ``versions`` that are no addresses though they look so. Of
    a text longer than :data:`MOST` characters the rest is left out.
    """
    text = cut(text, MOST)
    names = {**(names or {}), **known_names(text)}
    for pattern, place in (
        (_KEY_BLOCK, SECRET),
        (_SSH_KEY, SECRET),
        (_URL_USER, f"{USER}@"),
        (_TOKEN, SECRET),
    ):
        text = pattern.sub(place, text)
    for pattern in _SETTINGS:
        text = _without_values(pattern, text)
    text = _JOURNAL.sub(rf"\g<time> {HOST} ", text)
    text = _ROOT.sub(HOME, _HOME.sub(HOME, text))
    text = _MAIL.sub(_mail, text)
    for pattern, place in _private(names):
        text = pattern.sub(place, text)
    text = _MAC.sub(MAC, _UUID.sub(ID, text))
    text = _V6.sub(_v6, text)
    text = _V4.sub(lambda match: _v4(match, versions), text)
    text = _NAME.sub(_host, _URL_HOST.sub(_url_host, text))
    return _LONG.sub(SECRET, text)


def cut(text: str, most: int) -> str:
    """At most so many characters, and no beginning of a word: half a key is no longer known as one."""
    return text if len(text) <= most else f"{text[:most].rpartition(' ')[0]} …"


def _without_values(pattern: re.Pattern[str], text: str) -> str:
    """``text`` without the values that stand under a secret's name; names within values are looked at too."""
    parts, at = [], 0
    for match in pattern.finditer(text):
        name, value = match["name"], match["value"]
        bare = value.strip("\"'")
        harmless = bare.startswith("--") or bare == SECRET or HARMLESS.fullmatch(bare) or _ERROR.search(name)
        if match.end() >= at and not harmless and is_secret(name, bare[:LOOKED_AT]):
            parts += [text[at : match.end()], SECRET]
            at = match.end() + len(value)
    return "".join([*parts, text[at:]])


def _private(names: Mapping[str, str]) -> list[tuple[re.Pattern[str], str]]:
    ordered = sorted(names.items(), key=lambda one: -len(one[0]))
    return [
        (re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", re.IGNORECASE), place)
        for name, place in ordered
    ]


def _mail(match: re.Match[str]) -> str:
    return match[0] if match[0].endswith(_UNITS) else f"{USER}@{HOST}"


def _v4(match: re.Match[str], versions: Collection[str]) -> str:
    parts = [int(part) for part in match[0].split(".")]
    if match[0] in versions or max(parts) > 255 or parts[0] == 127 or not any(parts):
        return match[0]
    return match[0] if _VERSIONED.search(match.string[: match.start()][-60:]) else ADDRESS


def _v6(match: re.Match[str]) -> str:
    """An address, also one that a port follows."""
    text = match[0]
    while text:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            text = text.rpartition(":")[0]
            continue
        return match[0] if address.is_loopback or address.is_unspecified else ADDRESS
    return match[0]


def _url_host(match: re.Match[str]) -> str:
    name = match["host"]
    kept = _PUBLIC.search(name) or name.lower() in _LOCAL or name in (HOST, ADDRESS) or _V4.fullmatch(name)
    return name if kept else HOST


def _host(match: re.Match[str]) -> str:
    name, last = match[0], match["last"].lower()
    if _PUBLIC.search(name) or name.lower() in _LOCAL:
        return name
    country = len(last) == 2 and last not in _NO_COUNTRY and name.count(".") >= 2
    return HOST if last in _TOP or country else name
