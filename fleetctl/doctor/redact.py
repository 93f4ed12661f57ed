"""Text without what must not stand in a public issue: users, homes, keys, tokens, addresses and host names. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any

from fleetctl.agent.secrets import HARMLESS, is_secret

USER, HOME, ADDRESS, HOST, SECRET, ID, MAC = "USER", "~", "ADDRESS", "HOST", "SECRET", "ID", "MAC"
_HOME = re.compile(r"(?<![\w.~-])/(?:home|Users)/(?P<user>[^/\s'\":,;)(\]\[}{<>|]+)")
_ROOT = re.compile(r"(?<![\w.~-])/root(?![\w.-])")
_KEY_BLOCK = re.compile(r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)", re.DOTALL)
_SSH_KEY = re.compile(
    r"\b(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-\S+|sk-\S+@openssh\.com)\s+AAAA\S+(?:[ \t]+\S+@\S+)?"
)
_TOKEN = re.compile(
    r"\b(?:hf_|sk-|gh[opsur]_|github_pat_|glpat-|nvapi-|xox[abprs]-|AKIA|ASIA|AIza|dckr_pat_|npm_|pypi-)[A-Za-z0-9_-]{8,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"
    r"|(?i:\b(?:bearer|basic)\s+)(?=\S*[\d=])\S{8,}"
)
_URL_USER = re.compile(r"(?<=://)[^/\s@]+@")
_SETTING = re.compile(
    r"(?P<name>(?:--)?[A-Za-z][\w.-]*)(?P<quote>[\"']?)(?P<sign>\s*[=:]\s*|\s+)"
    r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',;}\])]+)"
)
_LONG = re.compile(r"(?<![\w/+.$-])(?!_Z)(?=[\w+-]*[a-z])(?=[\w+-]*[A-Z])(?=[\w+-]*\d)[\w+-]{40,}={0,2}")
_UUID = re.compile(r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_MAC = re.compile(r"(?<![\w:])[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}(?![\w:])")
_V4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\w)")
_VERSIONED = re.compile(r"nvidia[-_][a-z0-9_-]+?\s?(?:[=<>~!]=|[-_<> ])\s?$")
_V6 = re.compile(
    r"(?<![\w:.])(?=[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:)[0-9A-Fa-f:]{2,}(?:\d{1,3}(?:\.\d{1,3}){3})?(?:%\w+)?(?![\w:])"
)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_UNITS = (".service", ".socket", ".slice", ".scope", ".timer", ".target", ".mount", ".device")
_JOURNAL = re.compile(
    r"(?m)^(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?) "
    r"(?P<host>[\w.-]+) (?=[^\s:]+(?:\[\d+\])?: )"
)
_NAME = re.compile(
    r"(?<![\w./@-])(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+(?P<last>[A-Za-z]{2,24})(?![\w-]|\.\w)"
)
_TOP = {"com", "net", "org", "edu", "gov", "io", "ai", "dev", "app", "cloud", "tech", "info", "biz", "xyz"}
_TOP |= {
    "local",
    "localdomain",
    "lan",
    "internal",
    "intranet",
    "intra",
    "corp",
    "home",
    "private",
    "cluster",
    "test",
    "example",
}
_FILES = {
    "so",
    "py",
    "md",
    "cu",
    "cc",
    "rs",
    "sh",
    "js",
    "ts",
    "gz",
    "xz",
    "nn",
    "fx",
    "op",
    "hh",
    "pt",
    "db",
    "bz",
    "hs",
    "go",
}
_PUBLIC = re.compile(
    r"(?:^|\.)(?:github\.com|nvidia\.com|pytorch\.org|huggingface\.co|pypi\.org|python\.org|ubuntu\.com|debian\.org"
    r"|sglang\.ai|vllm\.ai|kernel\.org|freedesktop\.org)$",
    re.IGNORECASE,
)
_WORD_USERS = {"root", "nobody", "user", "users", "ubuntu", "debian", "admin", "systemd", "www-data"}
_LOCAL = {"localhost", "localhost.localdomain"}


def names_in(value: Any, found: dict[str, str] | None = None) -> dict[str, str]:
    """Users whose homes are named anywhere in facts (any JSON), each with what stands for it."""
    found = {} if found is None else found
    if isinstance(value, str):
        for match in _HOME.finditer(value):
            if match["user"].lower() not in _WORD_USERS:
                found[match["user"]] = USER
    elif isinstance(value, Mapping):
        for key, one in value.items():
            names_in(key, found)
            names_in(one, found)
    elif isinstance(value, list | tuple):
        for one in value:
            names_in(one, found)
    return found


def known_names(texts: Any, users: Iterable[str] = ()) -> dict[str, str]:
    """Private users: those named by ``users``, and those that any text of a JSON value tells of."""
    return names_in(texts) | {name: USER for name in users if name and name.lower() not in _WORD_USERS}


def host_names(hosts: Iterable[str]) -> dict[str, str]:
    """Hosts by name, long and short, each with what stands for it; addresses go by their own look."""
    found: dict[str, str] = {}
    for name in hosts:
        for each in (name, name.partition(".")[0]):
            if each and not each.isdigit() and each.lower() not in _LOCAL:
                found[each] = HOST
    return found


def redact(text: str, names: Mapping[str, str] | None = None) -> str:
    """``text`` with each secret replaced by what it was: ``USER``, ``~``, ``ADDRESS``, ``HOST``, ``SECRET``, ``ID``.

    ``names``: private words and what stands for each (:func:`known_names`). Rather too much goes than too little;
    versions of NVIDIA's packages, which look like addresses, stay behind their names.
    """
    text = _KEY_BLOCK.sub(SECRET, text)
    text = _SSH_KEY.sub(SECRET, text)
    text = _URL_USER.sub(f"{USER}@", text)
    text = _TOKEN.sub(SECRET, text)
    text = _SETTING.sub(_setting, text)
    text = _JOURNAL.sub(rf"\g<time> {HOST} ", text)
    names = {**(names or {}), **names_in(text)}
    text = _HOME.sub(HOME, text)
    text = _ROOT.sub(HOME, text)
    text = _MAIL.sub(_mail, text)
    for pattern, place in _private(names):
        text = pattern.sub(place, text)
    text = _UUID.sub(ID, text)
    text = _MAC.sub(MAC, text)
    text = _V6.sub(_v6, text)
    text = _V4.sub(_v4, text)
    text = _NAME.sub(_host, text)
    return _LONG.sub(SECRET, text)


def _private(names: Mapping[str, str]) -> list[tuple[re.Pattern[str], str]]:
    ordered = sorted(names.items(), key=lambda one: -len(one[0]))
    return [
        (re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", re.IGNORECASE), place)
        for name, place in ordered
    ]


def _setting(match: re.Match[str]) -> str:
    name, sign, value = match["name"], match["sign"], match["value"]
    bare = value.strip("\"'")
    if not sign.strip() and not name.startswith("--"):
        return match[0]
    if bare.startswith("--") or HARMLESS.fullmatch(bare) or not is_secret(name, bare):
        return match[0]
    return f"{name}{match['quote']}{sign}{SECRET}"


def _mail(match: re.Match[str]) -> str:
    return match[0] if match[0].endswith(_UNITS) else f"{USER}@{HOST}"


def _v4(match: re.Match[str]) -> str:
    if any(int(part) > 255 for part in match[0].split(".")):
        return match[0]
    address = ipaddress.ip_address(".".join(str(int(part)) for part in match[0].split(".")))
    if (
        address.is_loopback
        or address.is_unspecified
        or _VERSIONED.search(match.string[: match.start()][-60:])
    ):
        return match[0]
    return ADDRESS


def _v6(match: re.Match[str]) -> str:
    try:
        address = ipaddress.ip_address(match[0])
    except ValueError:
        return match[0]
    return match[0] if address.is_loopback or address.is_unspecified else ADDRESS


def _host(match: re.Match[str]) -> str:
    name, last = match[0], match["last"].lower()
    if _PUBLIC.search(name) or name.lower() in _LOCAL:
        return name
    country = len(last) == 2 and last not in _FILES and name.count(".") >= 2
    return HOST if last in _TOP or country else name
