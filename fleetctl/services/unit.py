"""A service's systemd unit, rendered from its template."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateNotFound, TemplateSyntaxError
from jinja2.exceptions import TemplateError, UndefinedError
from jinja2.utils import missing

from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host
from fleetctl.inventory.nearest import hint
from fleetctl.services.arguments import command, variables, words
from fleetctl.services.quoting import exec_line, value, word
from fleetctl.services.sides import router_context

TEMPLATES = "templates/systemd"
FILTERS = {"exec": exec_line, "word": word, "value": value}


@dataclass(frozen=True)
class RenderedUnit:
    """A unit's file: its name, its text, and the text's SHA-256."""

    name: str
    text: str
    sha256: str


def render_unit(
    fleet: Fleet,
    host: Host,
    service_name: str,
    environment_path: str,
    remedies: Sequence[Mapping[str, Any]] = (),
    secrets_file: str = "",
) -> RenderedUnit:
    """Render the unit of a service that runs in the venv at ``environment_path`` on the host.

    ``remedies`` are in the host's service already; here they are only named. ``secrets_file``: the host's file
    with the service's secrets.

    Raises FleetError (exit 2) where the template is missing, no template, names something unknown, or leaves the
    service's user or its secrets out.
    """
    service = host.services[service_name]
    folder = fleet.root / TEMPLATES
    names = context(host, service_name, environment_path, remedies, secrets_file)
    try:
        text = _jinja(folder).get_template(service.template).render(names)
    except TemplateNotFound as error:
        raise _missing(fleet, host, service_name, str(error.name)) from error
    except TemplateSyntaxError as error:
        where = f"{TEMPLATES}/{error.name or service.template}:{error.lineno}"
        raise FleetError(
            f"the template is wrong: {error.message}", where=where, fix=_filter_fix(error)
        ) from error
    except _UnknownName as error:
        where = _line(error.__traceback__, folder) or f"{TEMPLATES}/{service.template}"
        known = error.around if isinstance(error.around, Mapping) else names
        raise FleetError(
            f"the template names {error.name}, which there is not",
            where=where,
            fix=hint(str(error.name), [str(name) for name in known], "names"),
        ) from error
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        where = _line(error.__traceback__, folder)
        if not where:
            raise
        raise FleetError(f"the template fails: {error}", where=where, fix="correct the template") from error
    _require(fleet, host, service_name, text, secrets_file)
    return RenderedUnit(service.unit, text, hashlib.sha256(text.encode()).hexdigest())


def context(
    host: Host,
    service_name: str,
    environment_path: str,
    remedies: Sequence[Mapping[str, Any]] = (),
    secrets_file: str = "",
) -> dict[str, Any]:
    """Every name that a template can use."""
    service = host.services[service_name]
    slot = host.slots[service.slot]
    return {
        "router": router_context(host, service_name) if service.is_router else None,
        "host": host.name,
        "service": service.name,
        "unit": service.unit,
        "engine": service.engine,
        "mode": service.mode,
        "slot": service.slot,
        "port": slot.port,
        "gpus": list(slot.gpus),
        "model_id": service.model_id,
        "environment": environment_path,
        "command": command(host, service, environment_path),
        "variables": variables(host, service),
        "user": service.user or "",
        "secrets_file": secrets_file,
        "remedies": [_remedy(one) for one in remedies],
        "deadlines": {name: _whole(seconds) for name, seconds in service.deadlines.model_dump().items()},
    }


@cache
def _jinja(folder: Path) -> Environment:
    """Compiles each template once, and anew where its file has changed."""
    jinja = Environment(
        loader=FileSystemLoader(folder),
        undefined=_Unknown,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.filters.update(FILTERS)
    return jinja


def _require(fleet: Fleet, host: Host, service_name: str, text: str, secrets_file: str) -> None:
    """A template of the operator's own must not drop what the service asks for."""
    service, lines = host.services[service_name], text.splitlines()
    wanted = {
        "secrets": (
            f"EnvironmentFile={value(secrets_file)}" if secrets_file else "",
            "{{ secrets_file | value }}",
        ),
        "user": (f"User={service.user}" if service.user else "", "{{ user }}"),
    }
    for key, (line, name) in wanted.items():
        if line and line not in lines:
            raise FleetError(
                f"the template {service.template} leaves out the {key} of the service {service_name}",
                where=fleet.where(host.name, "services", service_name, key),
                fix=f"add a line {line.partition('=')[0]}={name} to {TEMPLATES}/{service.template}",
            )


def _remedy(one: Mapping[str, Any]) -> str:
    """``pkg-structural-tag: --grammar-backend none``"""
    given = [*words(one["arguments"]), *(f"{name}={text}" for name, text in one["variables"].items())]
    return f"{one['rule']}: {' '.join(given)}"


class _UnknownName(UndefinedError):
    """A name that the template uses and that ``around`` (a mapping, or the template's own names) lacks."""

    def __init__(self, name: str | None, around: Any, message: str | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.around = around


class _Unknown(StrictUndefined):
    def __init__(
        self, hint: str | None = None, obj: Any = missing, name: str | None = None, exc: Any = None
    ) -> None:
        super().__init__(hint, obj, name, partial(_UnknownName, name, obj))  # type: ignore[arg-type]


def _missing(fleet: Fleet, host: Host, service_name: str, template: str) -> FleetError:
    folder = fleet.root / TEMPLATES
    there = sorted(path.name for path in folder.glob("*.j2")) if folder.is_dir() else []
    return FleetError(
        f"no template {template} in {TEMPLATES}/",
        where=fleet.where(host.name, "services", service_name, "template"),
        fix=hint(template, there, "templates"),
    )


def _filter_fix(error: TemplateSyntaxError) -> str:
    named = re.match(r"No filter named '(\w+)'", error.message or "")
    return hint(named[1], FILTERS, "fleetctl's filters") if named else "correct the template"


def _line(traceback: TracebackType | None, folder: Path) -> str:
    """``templates/systemd/x.j2:12``: the innermost line of a template in a traceback."""
    found = ""
    while traceback:
        path = Path(traceback.tb_frame.f_code.co_filename)
        if path.is_relative_to(folder):
            found = f"{TEMPLATES}/{path.relative_to(folder)}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


def _whole(seconds: float) -> float | int:
    return int(seconds) if float(seconds).is_integer() else seconds
