"""Which hosts a list of selectors means. Pure; every error is exit 2 and says what would be right.

``ct200``, ``ct*``, ``@blackwell`` (a group), ``@all``, ``gpus>=4``, ``arch=sm120``, ``service=dflash``; ``!`` before
any of these negates it. Within one word a comma narrows (``ct*,gpus>=4``); several words add up, and a word of
negations alone takes away from what the others mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from fleetctl.errors import FleetError
from fleetctl.inventory.models import Host
from fleetctl.inventory.nearest import hint

Hosts = Mapping[str, Host]
Groups = Mapping[str, Sequence[str]]
Matches = Callable[[Host], bool]

ALL = "all"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_COMPARISON = re.compile(r"([A-Za-z_]+)\s*(>=|<=|!=|==|=|>|<)\s*(.*)")
_NUMBERS: dict[str, Callable[[Host], int | None]] = {
    "gpus": lambda host: host.gpus.count,
    "memory_mib": lambda host: host.gpus.memory_mib,
}
_TEXTS: dict[str, Callable[[Host], Iterable[str]]] = {
    "name": lambda host: [host.name],
    "arch": lambda host: [host.gpus.arch],
    "gpu": lambda host: [host.gpus.name],
    "slot": lambda host: host.slots,
    "service": lambda host: host.services,
    "mode": lambda host: [service.mode for service in host.services.values()],
    "engine": lambda host: [service.engine for service in host.services.values()],
    "environment": lambda host: host.environments,
    "model": lambda host: host.models,
}
_ORDER: dict[str, Callable[[int, int], bool]] = {
    ">=": lambda there, wanted: there >= wanted,
    "<=": lambda there, wanted: there <= wanted,
    ">": lambda there, wanted: there > wanted,
    "<": lambda there, wanted: there < wanted,
    "=": lambda there, wanted: there == wanted,
    "!=": lambda there, wanted: there != wanted,
}


def select(words: Sequence[str], hosts: Hosts, groups: Groups) -> list[Host]:
    """The hosts that ``words`` mean, each once, in the order in which the words name them."""
    chosen = _meant(words, hosts, groups, ())
    if not chosen:
        raise _nobody(words, hosts)
    return list(chosen.values())


def _nobody(words: Sequence[str], hosts: Hosts) -> FleetError:
    """What to say of selectors that are right and mean no host: what the hosts have of what was asked for."""
    terms = [term.strip().lstrip("!") for word in words for term in word.split(",")]
    compared = [match for term in terms if (match := _COMPARISON.fullmatch(term))]
    there = [_there(key, hosts) for key in dict.fromkeys(match[1] for match in compared)]
    if len(compared) < len(terms):
        there.append(f"hosts: {', '.join(sorted(hosts))}")
    if any("," in word for word in words):
        there.append("a comma within a word narrows: `ct200 ct129` are two hosts, `ct200,ct129` none")
    verb = "has" if len(compared) == len(terms) else "is"
    return FleetError(f"no host {verb} {' '.join(words)}", fix="; ".join(there))


def _there(key: str, hosts: Hosts) -> str:
    """``the hosts' gpus: 4 (ct129), 8 (ct200, ct201)``"""
    if key not in _NUMBERS:
        texts = {text for host in hosts.values() for text in _TEXTS[key](host) if text}
        return f"the hosts' {key}: {', '.join(sorted(texts)) or 'none'}"
    named: dict[int, list[str]] = {}
    for name, host in sorted(hosts.items()):
        if (number := _NUMBERS[key](host)) is not None:
            named.setdefault(number, []).append(name)
    said = [f"{number} ({', '.join(names)})" for number, names in sorted(named.items())]
    return f"the hosts' {key}: {', '.join(said) or 'not in the inventory'}"


def is_selector(word: str) -> bool:
    """Whether a word is more than a host's name."""
    return not NAME.fullmatch(word)


def check_groups(groups: Groups, hosts: Hosts) -> list[tuple[str, FleetError]]:
    """What is wrong with each group, by its name; one that means no host now is right."""
    wrong = []
    for name, words in groups.items():
        try:
            _meant(words, hosts, groups, (name,))
        except FleetError as error:
            wrong.append((name, error))
    return wrong


def _meant(words: Sequence[str], hosts: Hosts, groups: Groups, within: tuple[str, ...]) -> dict[str, Host]:
    """``within``: the groups that are being read, the outermost first."""
    chosen: dict[str, Host] = {}
    split = [[term.strip() for term in word.split(",")] for word in words]
    taking = [terms for terms in split if all(term.startswith("!") for term in terms)]
    giving = [terms for terms in split if terms not in taking]
    for terms in giving:
        tests = [_term(term, hosts, groups, within) for term in terms]
        chosen |= {name: host for name, host in hosts.items() if all(test(host) for test in tests)}
    if not giving:
        chosen = dict(hosts)
    for terms in taking:
        for term in terms:
            keeps = _term(term, hosts, groups, within)
            chosen = {name: host for name, host in chosen.items() if keeps(host)}
    return chosen


def _term(term: str, hosts: Hosts, groups: Groups, within: tuple[str, ...]) -> Matches:
    if term.startswith("!"):
        inner = _term(term[1:], hosts, groups, within)
        return lambda host: not inner(host)
    if term.startswith("@"):
        members = _group(term[1:], hosts, groups, within)
        return lambda host: host.name in members
    if compared := _COMPARISON.fullmatch(term):
        return _comparison(term, *compared.groups())
    if any(sign in term for sign in "*?["):
        return lambda host: fnmatchcase(host.name, term)
    if term not in hosts:
        raise _unknown(term, hosts, groups)
    return lambda host: host.name == term


def _group(name: str, hosts: Hosts, groups: Groups, within: tuple[str, ...]) -> set[str]:
    if name in within:
        raise FleetError(
            f"the group {name} is within itself: {' > '.join([*within, name])}", fix="take it out of one"
        )
    if name in groups:
        return set(_meant(groups[name], hosts, groups, (*within, name)))
    if name == ALL:
        return set(hosts)
    raise FleetError(f"no group {name}", fix=hint(name, [*groups, ALL], "groups"))


def _comparison(term: str, key: str, sign: str, value: str) -> Matches:
    sign = "=" if sign == "==" else sign
    if key in _NUMBERS:
        try:
            wanted = int(value)
        except ValueError:
            raise FleetError(f"{term}: {value!r} is no whole number", fix=f"such as {key}>=4") from None
        number, compare = _NUMBERS[key], _ORDER[sign]
        return lambda host: (there := number(host)) is not None and compare(there, wanted)
    if key not in _TEXTS:
        raise FleetError(f"{term}: hosts have no {key}", fix=hint(key, [*_NUMBERS, *_TEXTS], "known"))
    if sign not in ("=", "!="):
        raise FleetError(f"{term}: {key} is a text", fix=f"{key}={value} or {key}!={value}, with * and ?")
    texts = _TEXTS[key]
    return lambda host: any(fnmatchcase(text, value) for text in texts(host)) == (sign == "=")


def _unknown(term: str, hosts: Hosts, groups: Groups) -> FleetError:
    if term in groups:
        return FleetError(f"no host {term}, but a group", fix=f"write @{term}")
    if term in _NUMBERS or term in _TEXTS:
        fix = f"a comparison stands in quotes, since < and > are the shell's own: '{term}>=4'"
        return FleetError(f"no host {term}", fix=fix)
    if not term:
        return FleetError("an empty selector", fix="take a comma out, or name a host")
    return FleetError(f"no host {term}", fix=hint(term, hosts, "hosts"))
