"""The operator's ``NAME=VALUE`` words, checked against a playbook's parameters and the inventory. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.nearest import hint
from fleetctl.playbook.document import Kind, Parameter, Source


def read_values(source: Source, words: Sequence[str], fleet: Fleet) -> dict[str, str]:
    """Each parameter's value as text; FleetError (exit 2) for one that is missing, unknown or of another type."""
    parameters = source.playbook.parameters
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise FleetError(f"{word!r} is no NAME=VALUE", fix=_usage(source))
        if name not in parameters:
            raise FleetError(
                f"{source.playbook.playbook} has no parameter {name}",
                source.shown,
                hint(name, parameters, "parameters"),
            )
        given[name] = value
    for name, parameter in parameters.items():
        if name not in given and parameter.default is None:
            raise FleetError(
                f"the parameter {name} is missing",
                source.shown,
                f"{name}={parameter.type.upper()}; {_usage(source)}",
            )
        given.setdefault(name, str(parameter.default))
    for name, parameter in parameters.items():
        _check(name, parameter, given[name], fleet, source)
    return given


def _check(name: str, parameter: Parameter, value: str, fleet: Fleet, source: Source) -> None:
    known = _known(parameter.type, fleet)
    if known is not None and value not in known:
        fix = hint(value, known, f"{parameter.type}s")
        raise FleetError(f"{name}: no {parameter.type} {value}", str(fleet.inventory), fix)
    if parameter.type in ("integer", "number"):
        try:
            int(value) if parameter.type == "integer" else float(value)
        except ValueError:
            raise FleetError(
                f"{name} is {value!r}, not {'a whole number' if parameter.type == 'integer' else 'a number'}",
                source.shown,
            ) from None


def _known(kind: Kind, fleet: Fleet) -> Collection[str] | None:
    hosts = fleet.hosts.values()
    match kind:
        case "host":
            return list(fleet.hosts)
        case "service":
            return sorted({name for host in hosts for name in host.services})
        case "environment":
            specs = [path.stem for path in (fleet.root / "envs").glob("*.yaml")]
            return sorted({*(name for host in hosts for name in host.environments), *specs})
        case "suite":
            return sorted(path.stem for path in (fleet.root / "playbooks/bench").glob("*.yaml"))
    return None


def _usage(source: Source) -> str:
    pairs = [
        f"{name}={parameter.type.upper()}" if parameter.default is None else f"[{name}={parameter.default}]"
        for name, parameter in source.playbook.parameters.items()
    ]
    return f"fleetctl playbook run {source.playbook.playbook} {' '.join(pairs)}".rstrip()
