"""The record of a fleet rollout: ``.fleetctl/rollouts/<id>.jsonl`` in the fleet folder, a JSON object a line.

The first line is its head (``request``, ``hosts`` with each one's digest, ``pace``), then come events with ``time``
(seconds since 1970) and ``host``, last the ``end``. A record without an end is of a controller that was killed.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleetctl import __version__
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host

FOLDER = ".fleetctl/rollouts"
DONE = ("done", "unchanged", "skipped")
Json = dict[str, Any]


class FleetRecord:
    """One record being written; ``write`` may be called from any thread."""

    def __init__(self, root: Path, request: Json, hosts: Mapping[str, Json], pace: Json) -> None:
        """Begin one. ``FleetError`` (exit 2) where it cannot be written."""
        now = datetime.now(UTC)
        self.id = f"{now:%Y%m%dT%H%M%S}-{request['kind']}-{secrets.token_hex(2)}"
        self.path = root / FOLDER / f"{self.id}.jsonl"
        self._lock = threading.Lock()
        head = {
            "schema": 1,
            "id": self.id,
            "request": request,
            "created": now.isoformat(timespec="seconds"),
            "operator": getpass.getuser(),
            "from": socket.gethostname(),
            "fleetctl": __version__,
            "pace": pace,
            "hosts": dict(hosts),
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        except OSError as error:
            raise FleetError(
                f"the record of the rollout cannot be written: {error.strerror}; nothing was changed",
                where=str(self.path),
                fix="make the fleet folder writable, or name another: --fleet",
            ) from None
        self._file = os.fdopen(handle, "wb", buffering=0)
        self._line(head)

    def write(self, event: Json) -> None:
        """Add an event; its ``time`` is now unless it has one. A disk that is full loses it, and stops nothing."""
        self._line({"time": round(time.time(), 3), **event})

    def close(self) -> None:
        """Nothing is written afterwards."""
        self._file.close()

    def _line(self, data: Json) -> None:
        line = json.dumps(data, ensure_ascii=False, default=str).encode() + b"\n"
        with self._lock:
            try:
                self._file.write(line)
            except (OSError, ValueError):
                return


def host_digest(fleet: Fleet, host: Host, service: str, request: Json) -> str:
    """What a rollout of ``request`` would bring to a host, by its inventory, template and specification."""
    wanted = host.services[service]
    environment = host.environments[wanted.environment]
    files = [fleet.root / "templates/systemd" / wanted.template]
    files += [fleet.root / "envs" / f"{environment.spec}.yaml"] if environment.spec else []
    models = {name: host.models[name].model_dump() for name in (wanted.model, wanted.drafter) if name}
    said = {
        "request": request,
        "service": {"name": service, **wanted.model_dump(mode="json")},
        "slot": host.slots[wanted.slot].model_dump(),
        "environment": environment.model_dump(),
        "models": models,
        "files": {file.name: _digest(file) for file in files},
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def done_before(root: Path, request: Json, digests: Mapping[str, str]) -> tuple[str, set[str]]:
    """The last rollout of the same request, and the hosts that it left as their digests still want them.

    ``FleetError`` (exit 2) where there is none.
    """
    for path in sorted((root / FOLDER).glob("*.jsonl"), reverse=True):
        lines = _read(path)
        head = next(lines, {})
        if head.get("request") != request:
            continue
        hosts = head.get("hosts") or {}
        ends = {line["host"]: line["end"] for line in lines if "end" in line and "host" in line}
        fitting = {
            name for name, digest in digests.items() if (hosts.get(name) or {}).get("digest") == digest
        }
        return str(head["id"]), {name for name in fitting if ends.get(name) in DONE}
    raise FleetError(
        "there is no fleet rollout of this to resume",
        where=str(root / FOLDER),
        fix="run it without --resume",
    )


def _read(path: Path) -> Iterator[Json]:
    """Its lines; one that was cut short is passed over."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict):
            yield data


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""
