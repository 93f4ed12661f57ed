"""``groups.yaml`` in an inventory's folder: names for lists of selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetctl.inventory.document import Problem
from fleetctl.inventory.models import Host
from fleetctl.inventory.selectors import ALL, NAME, check_groups

FORM = "write NAME: [ct200, ct129], or NAME: 'gpus>=4'"


def read_groups(data: Any) -> tuple[dict[str, tuple[str, ...]], list[Problem]]:
    """The groups that a file's data describes, and what is wrong with its structure."""
    if data is None:
        return {}, []
    if not isinstance(data, dict):
        return {}, [Problem((), "the file describes no groups", FORM)]
    groups: dict[str, tuple[str, ...]] = {}
    problems = []
    for name, value in data.items():
        words = [value] if isinstance(value, str) else value
        if not NAME.fullmatch(name):
            problems.append(
                Problem((name,), f"{name!r} cannot be a group's name", "use letters, digits, . _ -")
            )
        elif name == ALL:
            problems.append(Problem((name,), f"the group {ALL} is every host already", "choose another name"))
        elif not isinstance(words, list) or not words or not all(isinstance(one, str) for one in words):
            problems.append(Problem((name,), f"the group {name} is no list of hosts and selectors", FORM))
        else:
            groups[name] = tuple(words)
    return groups, problems


def unmeant(groups: Mapping[str, tuple[str, ...]], hosts: Mapping[str, Host]) -> list[Problem]:
    """Names in groups that no host, group or attribute has."""
    return [
        Problem((name,), f"the group {name}: {error.what}", error.fix)
        for name, error in check_groups(groups, hosts)
    ]
