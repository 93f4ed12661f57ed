"""How requests get from here to a service's port: straight, or through ssh where it listens on loopback alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import Host
from fleetctl.transport.settings import resolve

LOOK_S = 5.0


@dataclass(frozen=True)
class Way:
    """``via`` is ``direct`` or ``ssh``; with ``socket`` requests go through that Unix socket, with ``key`` each.

    ``context``: the tokens that prompt and answer may have together, where the server tells (``max_model_len``).
    """

    via: str
    base_url: str
    socket: str | None = None
    key: str = field(default="", repr=False)
    context: int | None = None


@contextmanager
def reach(host: Host, port: int, model_id: str, key: str = "") -> Iterator[Way]:
    """A way to the server of ``model_id`` on the host's ``port``, while the context lasts.

    The host's address where that very model answers there, else an SSH forward. ``key``: what its server asks of
    clients. FleetError (exit 3) where neither
    leads to it.
    """
    settings = resolve(host)
    name = f"[{settings.hostname}]" if ":" in settings.hostname else settings.hostname
    straight = Way("direct", f"http://{name}:{port}", key=key)
    served = _models(straight)
    if model_id in served:
        yield replace(straight, context=served[model_id])
        return
    from fleetctl.transport.forward import forward

    with forward(settings, port) as socket:
        way = Way("ssh", f"http://127.0.0.1:{port}", str(socket), key)
        served = _models(way)
        if model_id not in served:
            answers = f"serves {', '.join(served)}" if served else "does not answer"
            raise FleetError(
                f"port {port} {answers}, where {model_id} was to be",
                f"{host.name}, through ssh",
                f"fleetctl status {host.name}",
                exit=Exit.UNREACHABLE,
            )
        yield replace(way, context=served[model_id])


def _models(way: Way) -> dict[str, int | None]:
    """The ids that ``/v1/models`` names, each with its context's length; none where nothing answers."""
    try:
        with httpx.Client(
            trust_env=False,
            transport=httpx.HTTPTransport(uds=way.socket),
            timeout=LOOK_S,
            headers=bearer(way.key),
        ) as http:
            answer: Any = http.get(f"{way.base_url}/v1/models").json()
        return {str(entry["id"]): _length(entry) for entry in answer["data"]}
    except (httpx.HTTPError, OSError, ValueError, LookupError, TypeError):
        return {}


def _length(entry: dict[str, Any]) -> int | None:
    told = entry.get("max_model_len")
    return told if isinstance(told, int) and told > 0 else None


def bearer(key: str) -> dict[str, str]:
    """The header by which an OpenAI-compatible server knows its clients; none without a ``key``."""
    return {"Authorization": f"Bearer {key}"} if key else {}
