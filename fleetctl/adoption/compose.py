"""A draft as the files that an operator keeps: the host's inventory file and its units' templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetctl.adoption.draft import Draft, Found
from fleetctl.adoption.templates import as_template
from fleetctl.adoption.words import own_arguments
from fleetctl.adoption.yaml import Key, dump
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Deadlines, Host
from fleetctl.services.engines import ENGINES
from fleetctl.services.unit import TEMPLATES, render_unit

FLOW: Sequence[Key] = [
    ("gpus",),
    ("slots", "*"),
    ("environments", "*"),
    ("models", "*"),
    ("services", "*", "deadlines"),
]
APART: list[Key] = [("gpus",), ("slots",), ("environments",), ("models",), ("services",)]
APART += [("services", "*")]
ORDER = ["slot", "engine", "mode", "environment", "model", "drafter", "model_id", "unit", "template"]
ORDER += ["keep_unit", "args", "env", "deadlines"]
RESERVED_S = 2  # the standard templates' interval is 5 × (ready + 2)


@dataclass(frozen=True)
class Files:
    """The inventory's text, and the text of each template by its name in ``templates/systemd/``."""

    inventory: str
    templates: dict[str, str] = field(default_factory=dict)


def compose(draft: Draft, root: Path, units: dict[str, Found]) -> Files:
    """The files of a draft; ``root`` is the fleet folder with the standard templates.

    A unit that the standard template would write just so (one that fleetctl wrote) gets no template.
    """
    for name, service in draft.services.items():
        _arguments(draft, name, service)
    templates: dict[str, str] = {}
    for name, text in draft.units.items():
        service = draft.services[name]
        unit = service["unit"]
        deadlines = _deadlines(units[unit])
        if deadlines and text == _standard(draft, root, name, {**service, "deadlines": deadlines}):
            service["deadlines"] = deadlines
            continue
        file = f"{draft.host}-{name}.service.j2"
        service["template"] = file
        templates[file] = as_template(text, f"{unit} as it was found on {draft.host}, byte for byte")
        draft.note(
            ("services", name),
            f"{TEMPLATES}/{file} is its unit as it was found, and starts it; args and env only describe "
            "that. Without template: fleetctl writes the unit from them.",
        )
    _describe_kept(draft)
    draft.services = {
        name: {key: service[key] for key in ORDER if key in service}
        for name, service in draft.services.items()
    }
    return Files(_text(draft), templates)


def host_of(draft: Draft) -> Host:
    """The draft as the loader's type."""
    return Host.model_validate(draft.document())


def _arguments(draft: Draft, name: str, service: dict[str, Any]) -> None:
    given = draft.given[name]["arguments"]
    host = host_of(draft)
    standard = ENGINES[host.services[name].engine].arguments(host, host.services[name])
    args = own_arguments(standard, given)
    if args:
        service["args"] = args
    if args.get("enable-metrics") is False:
        note = "runs without: a rollout cannot count its requests in flight"
        draft.note(("services", name, "args", "enable-metrics"), note)


def _describe_kept(draft: Draft) -> None:
    for name, service in draft.services.items():
        if service["engine"] == "other":
            kind = draft.given[name]["engine"]
            said = "vLLM is" if kind == "vllm" else "it is"
            draft.note(
                ("services", name),
                f"{said} no engine of fleetctl: only its own unit can start it, and no rollout counts its requests",
            )


def _deadlines(unit: Found) -> dict[str, float | int]:
    """The deadlines that a unit of fleetctl's own templates says."""
    if not unit["fleetctl"]:
        return {}
    try:
        stop, limit = float(unit["stop_s"]), float(unit["start_limit_s"])
    except ValueError:
        return {}
    found = {"stop": stop, "ready": limit / 5 - RESERVED_S}
    if stop < Deadlines().drain:
        found["drain"] = stop  # the longer of the two is the unit's limit
    whole = {name: int(value) if value.is_integer() else value for name, value in found.items()}
    return whole if all(value > 0 for value in found.values()) else {}


def _standard(draft: Draft, root: Path, name: str, service: dict[str, Any]) -> str | None:
    """What the engine's own template makes of a service; None where it cannot."""
    if service["engine"] == "other" or not (root / TEMPLATES / f"{service['engine']}.service.j2").is_file():
        return None
    data = draft.document()
    host = Host.model_validate({**data, "services": {**data["services"], name: service}})
    path = draft.environments[service["environment"]]["path"]
    try:
        return render_unit(Fleet(root, root, {host.name: host}, {}), host, name, path).text
    except FleetError:
        return None


def _text(draft: Draft) -> str:
    notes: dict[Key, list[str]] = {
        **draft.notes,
        (): [
            f"What `fleetctl adopt {draft.host}` found there; it changed nothing. Comments say what it could not "
            "know: read them, correct the file, and take them out."
        ],
    }
    text = dump(draft.document(), notes, FLOW, APART)
    if draft.left:
        lines = "".join(dump({}, {(): [line]}, (), ()) for line in draft.left)
        text += "\n" + lines
    return text
