"""Telling an HAProxy in front of slots which of its servers get requests, over its admin socket."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import socket
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

from fleetctl.agent import files
from fleetctl.agent.errors import PREFLIGHT, AgentError

Json = Dict[str, Any]

READY, DRAIN, CLOSED = "ready", "drain", "maint"
ANSWER_S = 5.0
ANSWER_BYTES = 4 << 20
KEPT_MODE = 0o644
"""Root writes it, and the router reads it as its own user; nobody else comes into its folder."""


class Server(NamedTuple):
    """A server as its router sees it: ``up`` is for new requests; ``sessions`` are in flight or queued."""

    up: bool
    status: str
    sessions: int


class Router:
    """One router, as a plan's ``router`` describes it; ``alone``: nothing but the slot stands behind it."""

    def __init__(self, spec: Json) -> None:
        self.unit: str = spec["unit"]
        self.service: str = spec["service"]
        self.port = int(spec["port"])
        self.alone: bool = bool(spec.get("alone"))
        self.new: str = spec["new"]
        self.old: str = spec["old"]
        self._backend: str = spec["backend"]
        self._socket: str = spec["socket"]
        self._kept = Path(spec["kept"])

    def runs(self) -> bool:
        """Whether its admin socket answers."""
        try:
            self._ask("show version")
        except AgentError:
            return False
        return True

    def tell(self, server: str, state: str) -> None:
        """Give a server the state; kept for the router's own restart. :class:`AgentError` where it is not taken."""
        said = self._ask(f"set server {self._backend}/{server} state {state}")
        if said:
            fix = (
                f"it may be older than the inventory: `fleetctl deploy --service {self.service}` of this host"
            )
            raise AgentError(
                f"the router {self.service} did not take {server}: {said}", self.unit, fix, exit=PREFLIGHT
            )
        with contextlib.suppress(OSError):
            files.write(self._kept, self._ask("show servers state") + "\n", KEPT_MODE)

    def forget(self) -> None:
        """Of a router that does not run: what it was told last, so that its health checks decide when it starts."""
        with contextlib.suppress(OSError):
            self._kept.unlink()

    def server(self, name: str) -> Optional[Server]:
        """One server's state; None where the router does not know it or does not answer."""
        try:
            text = self._ask("show stat").lstrip("# ")
        except AgentError:
            return None
        for row in csv.DictReader(io.StringIO(text)):
            if (row.get("pxname"), row.get("svname")) == (self._backend, name):
                flying = int(row.get("scur") or 0) + int(row.get("qcur") or 0)
                return Server(str(row["status"]).startswith("UP"), str(row["status"]), flying)
        return None

    def others_up(self) -> bool:
        """Whether any server but this rollout's takes requests; True where the router does not say."""
        try:
            rows = csv.DictReader(io.StringIO(self._ask("show stat").lstrip("# ")))
        except AgentError:
            return True
        others = [
            row
            for row in rows
            if row.get("pxname") == self._backend and row.get("svname") not in (self.new, self.old, "BACKEND")
        ]
        return any(str(row["status"]).startswith("UP") for row in others)

    def _ask(self, command: str) -> str:
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(ANSWER_S)
                link.connect(self._socket)
                link.sendall(command.encode() + b"\n")
                return _all(link).decode(errors="replace").strip()
        except OSError as error:
            raise AgentError(
                f"the router {self.service} does not answer: {os.strerror(error.errno) if error.errno else error}",
                where=self._socket,
                fix=f"start it: `fleetctl deploy --service {self.service}` of this host",
                exit=PREFLIGHT,
            ) from error


def _all(link: socket.socket) -> bytes:
    parts = []
    size = 0
    while size < ANSWER_BYTES:
        part = link.recv(65536)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)
