"""What another host has, brought here: a whole environment, or the files of some of its distributions.

Both land in ``incoming/`` and stay there only until an environment was derived from them. A transfer that broke
off goes on where it stopped.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from fleetctl.agent.environment.scaffold import is_scaffold
from fleetctl.agent.paths import INCOMING
from fleetctl.environment.bom import Bom
from fleetctl.environment.events import OnEvent
from fleetctl.environment.ship import sending
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import Host
from fleetctl.transport.agent import Agent, open_agent
from fleetctl.transport.relay import relay
from fleetctl.words import counted

REFERENCES = 5
RECORD_S = 60.0
DISCARD_S = 120.0


def bring_environment(
    agent: Agent,
    source: Host,
    destination: Host,
    bom: Bom,
    name: str,
    on_event: OnEvent,
    proof: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make ``<name>-<digest>`` on ``destination`` out of the environment of ``source`` that ``bom`` describes.

    ``agent`` is the destination's. The result is ``environment.derive`` 's. Files that environments of the
    destination have already, with their times, are not sent. FleetError as :func:`relay`, and exit 5 where the
    base cannot be moved, or where what came is not what ``bom`` says. ``proof``: what else
    ``environment.derive`` is to prove.
    """
    require_movable(bom, source.name)
    path, digest = str(bom["path"]), str(bom["digest"])
    folder = f"{INCOMING}/{source.name}-{digest}"
    with _discarded(agent, folder) as landed:
        references = _references(agent, source, path)
        with _told(on_event, f"{source.name}:{path}") as told:
            relay(
                source,
                destination,
                path,
                folder,
                references=references,
                hard_links=True,
                delete=True,
                **told,
            )
        landed()
        made: dict[str, Any] = agent.call(
            "environment.derive",
            on_event=on_event,
            timeout=None,
            name=name,
            digest=digest,
            base=folder,
            origin={"host": source.name, "path": path, "digest": digest},
            abi=bom["abi"].get("tag"),
            **(proof or {}),
        )
    return made


def require_movable(bom: Bom, host: str) -> None:
    """FleetError (exit 5) for an environment with links or files that cannot come along, before any is sent."""
    fixed = [one for one in bom["problems"] if one.get("moves") is False]
    if fixed:
        raise FleetError(
            f"{len(fixed)} entries cannot come along: {fixed[0]['where']} is {fixed[0]['what'].removeprefix('is ')}",
            where=f"{host}:{bom['path']}",
            fix="remove them, or replace each link by what it leads to",
            evidence=[f"{one['where']}: {one['what']}" for one in fixed[:20]],
            exit=Exit.PREFLIGHT,
        )


def require_rsync(*ends: tuple[Agent, Host]) -> None:
    """FleetError (exit 5) where one of the hosts has no rsync, without which nothing comes from one to the other."""
    for agent, host in ends:
        if agent.call("programs", timeout=RECORD_S, names=["rsync"])["rsync"] is None:
            raise FleetError(
                "the host has no rsync",
                where=host.name,
                fix="install it there: `apt-get install rsync`",
                exit=Exit.PREFLIGHT,
            )


@contextmanager
def brought_parts(
    agent: Agent, source: Host, destination: Host, bom: Bom, names: Sequence[str], on_event: OnEvent
) -> Iterator[Mapping[str, str]]:
    """Distribution → the folder on ``destination`` that holds its files, as an environment would; gone at the end.

    ``bom`` describes the environment of ``source`` that they are in. FleetError as :func:`relay`, and exit 5
    for a distribution whose RECORD does not say which files are its own.
    """
    path = str(bom["path"])
    infos = {one["name"]: str(one["info"]) for one in bom["distributions"] if one["name"] in names}
    key = hashlib.sha256("\n".join(sorted(infos.values())).encode()).hexdigest()[:12]
    folder = f"{INCOMING}/{source.name}-{bom['digest']}-{key}"
    with open_agent(source) as other:
        require_rsync((other, source), (agent, destination))
        files = [file for name, info in infos.items() for file in _files(other, path, name, info)]
    with _discarded(agent, folder) as landed:
        with _told(on_event, f"{counted(len(infos), 'distribution')} of {source.name}:{path}") as told:
            relay(source, destination, path, folder, files=sorted({*files}), **told)
        landed()
        yield dict.fromkeys(infos, folder)


def _files(agent: Agent, path: str, name: str, info: str) -> Iterator[str]:
    """The files of a distribution relative to its environment, by its RECORD; byte code left out."""
    lead, folder = posixpath.split(info)
    record = f"{folder}/RECORD"
    answer = agent.call("files.read", timeout=RECORD_S, path=path, files=[record], contents=True)
    found = answer["files"][record]
    rows = csv.reader(base64.b64decode(found["content"]).decode().splitlines()) if found else ()
    for row in rows:
        file = posixpath.normpath(posixpath.join(lead, row[0])) if row else ""
        if file.startswith(("/", "../")) or is_scaffold(file):
            is_what = "which makes the venv itself" if is_scaffold(file) else "which is outside"
            raise FleetError(
                f"the RECORD of {name} names {row[0]}, {is_what}",
                where=f"{path}/{info}",
                fix=f"install {name} again there",
                exit=Exit.PREFLIGHT,
            )
        if file and not file.endswith(".pyc"):
            yield file
    if found is None:
        raise FleetError(
            f"{name} has no RECORD", where=f"{path}/{info}", fix=f"install {name} again", exit=Exit.PREFLIGHT
        )


def _references(agent: Agent, source: Host, path: str) -> list[str]:
    """Environments of the destination to compare with: those that came from that very place first."""
    listed: list[dict[str, Any]] = agent.call("environment.list")

    def nearness(one: dict[str, Any]) -> tuple[bool, str]:
        origin = one.get("origin") or {}
        return (origin.get("host") == source.name and origin.get("path") == path, one["built_at"])

    return [one["path"] for one in sorted(listed, key=nearness, reverse=True)[:REFERENCES]]


@contextmanager
def _discarded(agent: Agent, folder: str) -> Iterator[Callable[[], None]]:
    """Take the folder away at the end, also where what is made of it is refused.

    Until all of it has landed (which the body tells) it stays, to go on from, unless nothing came at all.
    """
    landed: list[bool] = []
    try:
        yield lambda: landed.append(True)
    except FleetError as error:
        refused = bool(landed) and error.exit in (Exit.INPUT, Exit.PREFLIGHT)
        with suppress(FleetError):
            agent.call("environment.discard", timeout=DISCARD_S, path=folder, empty=not refused)
        raise
    agent.call("environment.discard", timeout=None, path=folder)


@contextmanager
def _told(on_event: OnEvent, what: str) -> Iterator[dict[str, Any]]:
    def waits(for_what: str, left_s: float) -> None:
        on_event({"step": "bring", "state": "wait", "text": f"waits for {for_what}", "left_s": round(left_s)})

    on_event({"step": "bring", "state": "begin", "text": what})
    yield {"on_progress": sending(on_event, "bring"), "on_wait": waits}
    on_event({"step": "bring", "state": "ok", "text": what})
