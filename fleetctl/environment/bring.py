"""What another host has, brought here: a whole environment, or the files of some of its distributions.

Both land in ``incoming/`` and stay there only until an environment was derived from them. A transfer that broke
off goes on where it stopped.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fleetctl.agent.paths import INCOMING
from fleetctl.agent.scaffold import is_scaffold
from fleetctl.environment.bom import Bom
from fleetctl.environment.events import OnEvent
from fleetctl.environment.ship import sending
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import Host
from fleetctl.transport.agent import Agent, open_agent
from fleetctl.transport.relay import relay

REFERENCES = 5
RECORD_S = 60.0


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
    path, digest = str(bom["path"]), str(bom["digest"])
    folder = f"{INCOMING}/{source.name}-{digest}"
    with _discarded(agent, folder):
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
        files = [file for name, info in infos.items() for file in _files(other, path, name, info)]
    with _discarded(agent, folder):
        with _told(on_event, f"{len(infos)} distributions of {source.name}:{path}") as told:
            relay(source, destination, path, folder, files=sorted({*files}), **told)
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
def _discarded(agent: Agent, folder: str) -> Iterator[None]:
    """Take the folder away at the end; where the work failed it stays, to go on from."""
    yield
    agent.call("environment.discard", timeout=None, path=folder)


@contextmanager
def _told(on_event: OnEvent, what: str) -> Iterator[dict[str, Any]]:
    def waits(for_what: str, left_s: float) -> None:
        on_event({"step": "bring", "state": "wait", "text": f"waits for {for_what}", "left_s": round(left_s)})

    on_event({"step": "bring", "state": "begin", "text": what})
    yield {"on_progress": sending(on_event, "bring"), "on_wait": waits}
    on_event({"step": "bring", "state": "ok", "text": what})
