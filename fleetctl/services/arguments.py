"""A service's command line and environment variables, and its metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.inventory.models import Argument, Host, Service
from fleetctl.services.engines import ENGINES, Arguments


def command(host: Host, service: Service, environment: str) -> list[str]:
    """The command line that runs ``service`` with the Python of the venv at ``environment``.

    Of an ``other`` engine: its ``args`` alone, since nothing else is known.
    """
    module = ENGINES[service.engine].module
    program = [f"{environment}/bin/python", "-m", module] if module else []
    return [*program, *words(arguments(host, service))]


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
