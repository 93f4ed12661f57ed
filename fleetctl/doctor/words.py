"""Words that the screen and the Markdown form share: a host in a line, a remedy's data as one would type it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fleetctl.doctor.diagnosis import Diagnosis
from fleetctl.doctor.finding import SEVERITIES, Remedy
from fleetctl.inventory.models import Argument


def headline(facts: Mapping[str, Any]) -> list[str]:
    """What matters of a host's facts: its cards, driver, toolkit and system; parts that are not known left out."""
    driver = _mapping(facts.get("driver"))
    toolkits = [_mapping(one) for one in _list(facts.get("toolkits"))]
    system = _mapping(facts.get("os"))
    version, cuda = driver.get("version"), driver.get("cuda")
    kits = list(dict.fromkeys(str(one["version"]) for one in toolkits if one.get("version")))
    return [
        *_cards(facts),
        *([f"driver {version}" + (f" (CUDA {cuda})" if cuda else "")] if version else []),
        *([f"toolkit {', '.join(kits)}"] if kits else []),
        *([str(system["name"])] if system.get("name") else []),
    ]


def _cards(facts: Mapping[str, Any]) -> list[str]:
    gpus = [_mapping(one) for one in _list(_mapping(facts.get("gpus")).get("gpus"))]
    named = Counter(
        f"{str(one.get('name') or 'GPU').removeprefix('NVIDIA ')}"
        + (f" (SM {one['compute_cap']})" if one.get("compute_cap") else "")
        for one in gpus
    )
    return [f"{count} × {name}" for name, count in named.items()]


def summary(diagnosis: Diagnosis) -> str:
    """``2 errors, 1 warning; 40 of 43 checks passed``."""
    counted = [
        f"{count} {_plural(severity, count)}"
        for severity in SEVERITIES
        if (count := diagnosis.count(severity))
    ]
    passed = len(diagnosis.passed)
    made = passed + len({one.finding.rule for one in diagnosis.said})
    checks = f"{passed} of {made} checks passed" if diagnosis.facts else ""
    nothing = "nothing found" if diagnosis.facts else "no line of it says why anything failed"
    return "; ".join(part for part in (", ".join(counted) or nothing, checks) if part)


def _plural(severity: str, count: int) -> str:
    word = "note" if severity == "info" else severity
    return word if count == 1 else f"{word}s"


def remedy_words(remedy: Remedy) -> list[str]:
    """A remedy's data, a line a kind: arguments, variables, packages, commands."""
    given = [_argument(name, value) for name, value in remedy.arguments.items()]
    variables = [f"{name}={value}" for name, value in remedy.variables.items()]
    lines = [("arguments", " ".join(given)), ("variables", " ".join(variables))]
    lines.append(("packages", " ".join(remedy.packages)))
    return [f"{kind}: {text}" for kind, text in lines if text] + [f"$ {line}" for line in remedy.commands]


def _argument(name: str, value: Argument) -> str:
    if value is False:
        return f"(without --{name})"
    if value is True:
        return f"--{name}"
    return f"--{name} " + (" ".join(map(str, value)) if isinstance(value, list) else str(value))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
