"""Bring an environment, or single distributions of one, from one host to another; what is there is not sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from fleetctl.environment.events import OnEvent, throttled
from fleetctl.errors import FleetError
from fleetctl.transport.agent import Agent
from fleetctl.transport.bulk import Progress
from fleetctl.transport.relay import relay
from fleetctl.transport.settings import Host

ROOT = "/var/lib/fleetctl"
PARTIAL = ".partial"
DISK_S = 600.0
Bom = Mapping[str, Any]


def incoming_folder(name: str, digest: str, root: str = ROOT) -> str:
    """Where an environment of another host lies as it came."""
    return f"{root}/incoming/{name}-{digest[:12]}"


def part_folder(name: str, version: str, record: str, root: str = ROOT) -> str:
    """Where one distribution's files lie when they came from another host; ``record`` is its sha256."""
    return f"{root}/parts/{name}-{version}-{record[:12]}"


def bring_environment(
    agent: Agent, source: Host, host: Host, bom: Bom, name: str, on_event: OnEvent, root: str = ROOT
) -> str:
    """The environment of a BOM of ``source`` as a folder of ``host``, and that folder's path.

    It is as it was there (scripts name its old path): a base for ``environment.derive``. ``agent`` is
    ``host``'s. Files equal to those of an environment of that ``name`` that came before are not sent. Errors as
    of :func:`relay`; run again, it goes on where it stopped.
    """
    path = incoming_folder(name, bom["digest"], root)
    found = agent.call("incoming.status", timeout=DISK_S, paths=[path], name=name)
    if found["missing"]:
        copied = _telling(f"{source.name}:{bom['path']}", on_event)
        copied(
            lambda **tell: relay(
                source,
                host,
                bom["path"],
                path + PARTIAL,
                references=found["references"],
                hard_links=True,
                delete=True,
                **tell,
            )
        )
        agent.call("incoming.commit", timeout=DISK_S, path=path)
    return path


def bring_parts(
    agent: Agent,
    source: Host,
    host: Host,
    bom: Bom,
    names: Sequence[str],
    on_event: OnEvent,
    root: str = ROOT,
) -> dict[str, str]:
    """The named distributions of a BOM of ``source`` as *parts* on ``host``: distribution → its part's path.

    ``agent`` is ``host``'s. FleetError: exit 2 where the BOM has not just one such distribution with a RECORD,
    5 where a file that its RECORD names is not there, and those of :func:`relay`.
    """
    wanted = {name: _distribution(bom, name) for name in names}
    parts = {
        name: part_folder(name, one["version"], one["record"]["sha256"], root) for name, one in wanted.items()
    }
    if not parts:
        return {}
    missing = agent.call("incoming.status", timeout=DISK_S, paths=list(parts.values()))["missing"]
    infos = {
        path: PurePosixPath(wanted[name]["info"]).name for name, path in parts.items() if path in missing
    }
    if infos:
        _send(agent, source, host, bom, infos, on_event, root)
    return parts


def _send(
    agent: Agent, source: Host, host: Host, bom: Bom, infos: Mapping[str, str], on_event: OnEvent, root: str
) -> None:
    """Their RECORDs, then what those name, into one folder, of which the agent makes the parts."""
    lead = bom["site_packages"][0]
    packages = str(PurePosixPath(bom["path"], lead))
    sent = f"{root}/parts/of-{bom['digest'][:12]}{PARTIAL}"
    copied = _telling(f"{len(infos)} distributions of {source.name}:{bom['path']}", on_event)

    def bring(folder: str, files: Sequence[str]) -> None:
        copied(lambda **tell: relay(source, host, folder, sent, files=files, **tell))

    bring(packages, [f"{info}/RECORD" for info in infos.values()])
    named = agent.call("incoming.names", timeout=DISK_S, path=sent, lead=lead, infos=list(infos.values()))
    bring(packages, named["inside"])
    if named["beside"]:
        bring(bom["path"], named["beside"])
    agent.call("incoming.split", timeout=DISK_S, path=sent, lead=lead, parts=dict(infos))


def _distribution(bom: Bom, name: str) -> Mapping[str, Any]:
    found: list[Mapping[str, Any]] = [one for one in bom["distributions"] if one["name"] == name]
    if len(found) != 1 or found[0]["record"]["state"] != "ok":
        why = (
            "it is not there" if not found else "it is there twice" if len(found) > 1 else "it has no RECORD"
        )
        raise FleetError(
            f"{name} cannot be taken from there: {why}",
            where=f"{bom['hostname']}:{bom['path']}",
            fix="see what is there with `fleetctl env capture`, and name another source",
        )
    return found[0]


def _telling(what: str, on_event: OnEvent) -> Callable[[Callable[..., int]], None]:
    """Run a copy with its progress told as events of the step ``bring``."""
    quietly = throttled(on_event)

    def progress(now: Progress) -> None:
        text = f"{what}: {now.bytes / 1e6:,.0f} MB, {now.percent} %"
        quietly({"step": "bring", "state": "wait", "text": text, "left_s": now.left_s})

    def wait(for_what: str, left_s: float) -> None:
        quietly({"step": "bring", "state": "wait", "text": f"waits for {for_what}", "left_s": round(left_s)})

    def run(copy: Callable[..., int]) -> None:
        quietly({"step": "bring", "state": "begin", "text": what})
        received = copy(on_progress=progress, on_wait=wait)
        quietly({"step": "bring", "state": "ok", "text": f"{what}: {received / 1e6:,.1f} MB came"})

    return run
