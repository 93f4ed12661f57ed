"""Bills of materials of places, several at once: one session a host, files and specifications read here."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fleetctl.environment.bom import Bom, capture, load_bom
from fleetctl.environment.compare import specification
from fleetctl.environment.diff_plan import Side
from fleetctl.environment.events import OnEvent
from fleetctl.environment.place import Place, locate
from fleetctl.environment.spec import EnvironmentSpec, load_spec
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host
from fleetctl.transport.agent import open_agent
from fleetctl.transport.fleet import on_hosts


@dataclass(frozen=True)
class Obtained:
    """A place's BOM, and where it is for commands."""

    place: Place
    bom: Bom
    side: Side


def obtain(fleet: Fleet, places: Sequence[Place], on_event: OnEvent) -> list[Obtained | FleetError]:
    """Each place's BOM, in the order of ``places``, or why it could not be had; two of one host share its session."""
    hosts = {place.host.name: place.host for place in places if place.host is not None}

    def of_host(host: Host) -> dict[str, Obtained | FleetError]:
        wanted = {place.text: place for place in places if place.host is host}
        return _captured(host, list(wanted.values()), on_event)

    answers = on_hosts(list(hosts.values()), of_host)
    return [_answer(fleet, place, answers) for place in places]


def _answer(
    fleet: Fleet, place: Place, answers: dict[str, dict[str, Obtained | FleetError] | FleetError]
) -> Obtained | FleetError:
    if place.host is not None:
        answer = answers[place.host.name]
        return answer if isinstance(answer, FleetError) else answer[place.text]
    if place.spec is not None:
        spec = _pinned(fleet, place.spec)
        return Obtained(place, dict(specification(spec)), Side(path=spec.source, spec=spec.name))
    assert place.file is not None
    bom = load_bom(place.file)
    return Obtained(place, bom, Side(str(bom.get("hostname") or "HOST"), bom["path"]))


def _captured(host: Host, places: Sequence[Place], on_event: OnEvent) -> dict[str, Obtained | FleetError]:
    def told(event: dict[str, object]) -> None:
        on_event({**event, "host": host.name})

    with open_agent(host) as agent:

        def one(place: Place) -> Obtained | FleetError:
            try:
                path = locate(place, agent)
                return Obtained(place, capture(agent, path, told), Side(host.name, path))
            except FleetError as error:
                return error

        with ThreadPoolExecutor(len(places)) as pool:
            found = list(pool.map(one, places))
    return {place.text: answer for place, answer in zip(places, found, strict=True)}


def _pinned(fleet: Fleet, name: str) -> EnvironmentSpec:
    """The specification, or the one that it is derived from, down to pins; FleetError (exit 2) without any."""
    spec = load_spec(fleet.root, name)
    seen = {name}
    while spec.base is not None and spec.base.spec is not None and spec.base.spec not in seen:
        seen.add(spec.base.spec)
        spec = load_spec(fleet.root, spec.base.spec)
    if spec.requirements:
        return spec
    at = f"{spec.base.host or 'HOST'}:{spec.base.path}" if spec.base and spec.base.path else "an environment"
    raise FleetError(
        f"{name} pins nothing: it is derived from {at}",
        where=spec.source,
        fix="compare with an environment that was made from it: HOST:NAME",
    )
