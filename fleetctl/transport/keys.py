"""The keys that may open a host, in the order in which they are offered."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.agent import AgentSSH
from paramiko.pkey import UnknownKeyType

from fleetctl.transport.known_hosts import fingerprint
from fleetctl.transport.settings import DEFAULT_IDENTITIES, Settings

AGENT_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Candidate:
    """A key that can sign, and where it is from."""

    key: paramiko.PKey
    source: str

    def __str__(self) -> str:
        return f"{self.source} ({self.key.get_name()} {fingerprint(self.key.asbytes())})"


@dataclass
class Candidates:
    """Keys to offer, each looked for only when those before it were refused; ``unusable``: the others."""

    settings: Settings
    unusable: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Candidate]:
        """Named identity files, then ssh-agent's keys, then the default files of ``~/.ssh``."""
        default = [path for path in self.settings.identities if path.name in DEFAULT_IDENTITIES]
        seen: set[bytes] = set()
        sources = (
            self._files([path for path in self.settings.identities if path not in default], named=True),
            self._agent(),
            self._files(default, named=False),
        )
        for source in sources:
            for candidate in source:
                blob = candidate.key.asbytes()
                if blob not in seen:
                    seen.add(blob)
                    yield candidate

    def _files(self, paths: list[Path], named: bool) -> Iterator[Candidate]:
        for path in paths:
            if not named and not path.exists():
                continue
            try:
                key = paramiko.PKey.from_path(path)
            except (OSError, TypeError, ValueError, paramiko.SSHException, UnknownKeyType) as error:
                reason = "has a passphrase: `ssh-add` it" if isinstance(error, TypeError) else str(error)
                self.unusable.append(f"{path}: {reason}")
                continue
            yield Candidate(key, str(path))

    def _agent(self) -> Iterator[Candidate]:
        path = self.settings.identity_agent
        if not path:
            return
        try:
            agent = _Agent(path)
        except (OSError, paramiko.SSHException) as error:
            self.unusable.append(f"ssh-agent at {path}: {error}")
            return
        named = {_public_blob(identity) for identity in self.settings.identities}
        for key in agent.get_keys():
            if key.asbytes() in named or not self.settings.identities_only:
                yield Candidate(key, f"ssh-agent: {key.comment}")


class _Agent(AgentSSH):
    """An ssh-agent at a given socket that cannot hang its caller."""

    def __init__(self, path: str) -> None:
        super().__init__()
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(AGENT_TIMEOUT_S)
        connection.connect(path)
        self._connect(connection)  # type: ignore[attr-defined]


def _public_blob(identity: Path) -> bytes:
    """The public half beside an identity file, empty where there is none."""
    try:
        return base64.b64decode(Path(f"{identity}.pub").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return b""
