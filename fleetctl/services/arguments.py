"""A service's command line and environment variables, and its metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.errors import FleetError
from fleetctl.inventory.models import Argument, Engine, Host, Mode, Service
from fleetctl.inventory.nearest import hint
from fleetctl.services.engines import ENGINES, Arguments


def command(host: Host, service: Service, environment: str) -> list[str]:
    """The command line that runs ``service`` with the Python of the venv at ``environment``.

    Of an ``other`` engine: its ``args`` alone, since nothing else is known.
    """
    module = ENGINES[service.engine].module
    program = [f"{environment}/bin/python", "-m", module] if module else []
    return [*program, *words(arguments(host, service))]


def engine_args(engine: Engine, mode: Mode, settings: Mapping[str, Argument]) -> Arguments:
    """Settings that have one name for all engines as the engine's own arguments, for a service's ``args``.

    ``engine_args("sglang", "tree", {"budget": 15, "topk": 8})`` is ``{"speculative-ddtree-budget": 15,
    "speculative-ddtree-topk": 8}``. A ``_`` in a name counts as ``-``. Raises FleetError (exit 2) for a setting that
    the engine does not know, that the mode does not take, or that cannot have this value.
    """
    known = ENGINES[engine].settings
    found: Arguments = {}
    for given, value in settings.items():
        name = given.replace("_", "-")
        takes = setting_names(engine, mode)
        if name not in known:
            raise FleetError(f"the engine {engine} has no setting {given}", fix=hint(name, known, "settings"))
        if name not in takes:
            modes = " and ".join(each for each in known[name].modes)
            fix = f"leave it out, or choose a service whose mode takes it ({modes})"
            raise FleetError(f"the mode {mode} of {engine} takes no {given}", fix=fix)
        if wanted := known[name].refuses(value):
            raise FleetError(f"{given} is {value!r} for {engine}", fix=f"it must be {wanted}")
        found[known[name].argument] = value
    return found


def setting_names(engine: Engine, mode: Mode) -> tuple[str, ...]:
    """The settings of :func:`engine_args` that a mode of an engine takes."""
    return tuple(name for name, one in ENGINES[engine].settings.items() if mode in one.modes)


def words(given: Mapping[str, Argument]) -> list[str]:
    """Arguments as the words of a command line."""
    return [word for name, value in given.items() for word in _words(name, value)]


def arguments(host: Host, service: Service) -> Arguments:
    """The engine's arguments; the service's own ``args`` come last and win, ``false`` takes one out."""
    own = service.args
    standard = ENGINES[service.engine].arguments(host, service)
    return {**{name: value for name, value in standard.items() if name not in own}, **own}


def variables(host: Host, service: Service) -> dict[str, str]:
    """The environment variables: the slot's GPUs in nvidia-smi's order, then the service's own ``env``."""
    gpus = host.slots[service.slot].gpus
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in gpus),
        **service.env,
    }


def metrics(host: Host, service: Service) -> dict[str, str]:
    """``{"running", "queued"}``: the names of the service's metrics; empty where it serves none."""
    return ENGINES[service.engine].metrics(arguments(host, service))


def _words(name: str, value: Argument) -> Iterator[str]:
    flag = f"--{name}"
    if isinstance(value, bool):
        if value:
            yield flag
    elif isinstance(value, list):
        yield flag
        yield from (str(item) for item in value)
    elif str(value).startswith("-"):
        yield f"{flag}={value}"
    else:
        yield flag
        yield str(value)
