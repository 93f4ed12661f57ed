"""An inventory file in the making: its data, the comments in it, and names that do not clash."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fleetctl.adoption.yaml import Key

Found = dict[str, Any]

_WRONG = re.compile(r"[^A-Za-z0-9._-]+")
NAME_LENGTH = 60


@dataclass
class Row:
    """One line of what was found, as it is shown to the operator."""

    what: str
    engine: str
    mode: str = "-"
    port: str = "-"
    gpus: str = "-"
    environment: str = "-"
    model: str = "-"
    service: str = "-"

    def cells(self) -> list[str]:
        """The row's cells in the table's order."""
        return [
            self.what,
            self.engine,
            self.mode,
            self.port,
            self.gpus,
            self.environment,
            self.model,
            self.service,
        ]


@dataclass
class Draft:
    """``units``: the found text of each service's unit, ``given`` its command line's arguments; ``left``: what no
    service could say, for the file's end; ``pythons``: the path of each environment that is one of Python;
    ``reserved``: names whose standard units are on the host already.
    """

    host: str
    ssh: dict[str, Any] = field(default_factory=dict)
    description: str = ""
    gpus: dict[str, Any] = field(default_factory=lambda: {"count": 0})
    slots: dict[str, dict[str, Any]] = field(default_factory=dict)
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    services: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: dict[Key, list[str]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    given: dict[str, Found] = field(default_factory=dict)
    pythons: dict[str, str] = field(default_factory=dict)
    reserved: set[str] = field(default_factory=set)
    left: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def note(self, key: Key, text: str) -> None:
        """Add a comment above a key, once."""
        notes = self.notes.setdefault(key, [])
        if text not in notes:
            notes.append(text)

    def document(self) -> dict[str, Any]:
        """The file's data in the order of its keys."""
        parts: dict[str, Any] = {"host": self.host, "description": self.description, "ssh": self.ssh}
        whole = {
            **{name: value for name, value in parts.items() if value},
            "gpus": self.gpus,
            "slots": self.slots,
            "environments": self.environments,
            "models": self.models,
            "services": self.services,
        }
        return {
            name: value
            for name, value in whole.items()
            if value or name in ("host", "gpus", "slots", "services")
        }

    def place(self, kind: str, path: str, wanted: str) -> str:
        """The name of the environment or model at ``path``, added where it is not there yet."""
        entries = self.environments if kind == "environment" else self.models
        for name, entry in entries.items():
            if entry.get("path") == path:
                return name
        name = unique(wanted, entries)
        entries[name] = {"path": path}
        return name


def unique(wanted: str, taken: Iterable[str]) -> str:
    """A name that an inventory takes, like ``wanted`` and not one of ``taken``."""
    known = set(taken)
    base = _WRONG.sub("-", wanted).strip("._-")[:NAME_LENGTH].rstrip("._-") or "unnamed"
    name, number = base, 2
    while name in known:
        name, number = f"{base[: NAME_LENGTH - 4]}-{number}", number + 1
    return name


def short(path: str) -> str:
    """A name for a model's folder or its name in a hub: the last part, in small letters."""
    match = re.search(r"models--([^/]+)/snapshots/", path + "/")
    last = match[1].rpartition("--")[2] if match else path.rstrip("/").rpartition("/")[2]
    return last.lower()
