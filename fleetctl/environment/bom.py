"""Bills of materials on the controller: captured through a host's agent, kept in files, read again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetctl.agent.capture.verify import bom_findings
from fleetctl.environment.bom_shape import wrong
from fleetctl.environment.events import OnEvent
from fleetctl.errors import Exit, FleetError
from fleetctl.files import save
from fleetctl.transport.agent import Agent

SCHEMA = 1
CAPTURE_S = 3600.0
TOLD = 8
KEYS = ("kind", "path", "digest", "python", "platform", "distributions", "extensions", "unowned", "abi")

Bom = dict[str, Any]
"""The JSON of ``bom.capture`` in docs/architecture.md."""


def capture(
    agent: Agent, path: str, on_event: OnEvent | None = None, *, hashes: bool = True, native: bool = True
) -> Bom:
    """The BOM of the environment at ``path`` on the agent's host.

    ``hashes`` compares each file with its RECORD, ``native`` reads the compiled extensions. FleetError: exit 2
    where there is no environment, 3 where the link fails.
    """
    bom: Bom = agent.call(
        "bom.capture", on_event=on_event, timeout=CAPTURE_S, path=path, hashes=hashes, native=native
    )
    return bom


def verify(agent: Agent, path: str, on_event: OnEvent | None = None) -> dict[str, Any]:
    """``environment.verify``: ``{"ok", "findings", "files", "bytes", "seconds"}``; errors as :func:`capture`."""
    result: dict[str, Any] = agent.call("environment.verify", on_event=on_event, timeout=CAPTURE_S, path=path)
    return result


def require_verified(agent: Agent, host: str, path: str, on_event: OnEvent) -> dict[str, Any]:
    """:func:`verify`; FleetError (exit 5) with the first error and all of them as evidence, where there is one."""
    found = verify(agent, path, on_event)
    wrong = [one for one in found["findings"] if one["severity"] == "error"]
    if wrong:
        raise FleetError(
            f"the environment is not what it should be: {wrong[0]['what']}",
            where=f"{host}:{path}",
            fix=wrong[0]["fix"] or f"fleetctl env verify {host}:{path}",
            evidence=[f"{one['what']} {one.get('where', '')}".strip() for one in wrong],
            exit=Exit.PREFLIGHT,
        )
    return found


def tell_wrong(bom: Bom, place: str, on_event: OnEvent) -> None:
    """Events (``info``) for what is wrong with an environment that is taken as it is; none where nothing is."""
    told = [
        one
        for one in bom_findings(bom)
        if one["severity"] == "error" or one["id"] in ("env-record", "env-odd", "env-outside")
    ]
    for one in told[:TOLD]:
        where = (
            f" ({one['evidence'][0]})" if one["evidence"] else f" ({one['where']})" if one["where"] else ""
        )
        _info(on_event, f"{one['severity']}: {one['what']}{where}")
    if told:
        count = f"{len(told)} thing{'s are' if len(told) > 1 else ' is'} wrong with it and will come along"
        _info(on_event, f"{count}: fleetctl env verify {place}")


def _info(on_event: OnEvent, text: str) -> None:
    on_event({"step": "capture", "state": "info", "text": text})


def load_bom(path: Path) -> Bom:
    """The BOM in a file; FleetError (exit 2) where it is none, or of another schema."""
    try:
        bom = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FleetError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise _no_bom(path, f"not JSON: {error}") from None
    if not isinstance(bom, dict) or "schema" not in bom:
        raise _no_bom(path, "not a bill of materials: it has no schema")
    if bom["schema"] != SCHEMA:
        raise FleetError(
            f"a bill of materials of schema {bom['schema']}; this fleetctl reads {SCHEMA}",
            where=str(path),
            fix="capture it again, or read it with the fleetctl that wrote it",
        )
    missing = [key for key in KEYS if key not in bom]
    if missing:
        raise _no_bom(path, f"not a whole bill of materials: it has no {', '.join(missing)}")
    found = wrong(bom)
    if found:
        raise _no_bom(path, f"not a bill of materials: {found[0]}", found[1:])
    return bom


def save_bom(bom: Bom, path: Path) -> None:
    """Write a BOM in one step; FleetError (exit 2) where the file cannot be written."""
    try:
        save(path, json.dumps(bom, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise FleetError(
            f"cannot be written: {error.strerror}", where=str(path), fix="name another file"
        ) from None


def _no_bom(path: Path, what: str, evidence: Sequence[str] = ()) -> FleetError:
    fix = "make one: fleetctl env capture HOST:PATH -o FILE"
    return FleetError(what, where=str(path), fix=fix, evidence=list(evidence))
