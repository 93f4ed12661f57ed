"""How a host is reached: OpenSSH's own answer (``ssh -G``), with the inventory's settings on top.

Asking ssh itself honours all of ``~/.ssh/config`` (Include, Match, tokens) as the operator's own ``ssh HOST``
does, and gives rsync and Paramiko the same settings.
"""

from __future__ import annotations

import getpass
import math
import os
import shlex
import subprocess
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol

from fleetctl.errors import FleetError

CONNECT_TIMEOUT_S = 10
DEFAULT_IDENTITIES = frozenset(
    f"id_{kind}" for kind in ("rsa", "dsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss")
)


class Ssh(Protocol):
    """The inventory's SSH settings; ``None`` leaves a setting to ``~/.ssh/config``."""

    @property
    def hostname(self) -> str | None: ...
    @property
    def user(self) -> str | None: ...
    @property
    def port(self) -> int | None: ...
    @property
    def identity_file(self) -> str | Path | None: ...
    @property
    def known_hosts(self) -> str | Path | None: ...
    @property
    def proxy_jump(self) -> str | None: ...
    @property
    def connect_timeout(self) -> float | None: ...
    @property
    def sudo(self) -> bool: ...


class Host(Protocol):
    """What the transport needs of an inventory's host."""

    @property
    def name(self) -> str: ...
    @property
    def ssh(self) -> Ssh: ...


@dataclass(frozen=True)
class Settings:
    """One host's SSH settings, resolved; times in seconds, paths absolute."""

    name: str
    hostname: str
    user: str
    port: int
    identities: tuple[Path, ...]
    identities_only: bool
    identity_agent: str | None
    known_hosts: tuple[Path, ...]
    host_key_alias: str | None
    proxy_command: str | None
    connect_timeout: int
    overrides: tuple[str, ...]
    ciphers: tuple[str, ...] = ()
    sudo: bool = False

    @property
    def address(self) -> str:
        """``hostname:port``, for messages."""
        return f"{self.hostname}:{self.port}"

    @property
    def host_key_name(self) -> str:
        """The host's name in ``known_hosts`` files."""
        if self.host_key_alias:
            return self.host_key_alias
        return self.hostname if self.port == 22 else f"[{self.hostname}]:{self.port}"

    @property
    def become(self) -> str:
        """What stands before a command that needs root: ``sudo -n``, which asks nothing, or nothing."""
        return "sudo -n " if self.sudo else ""

    def shell(self, script: str, *words: str) -> str:
        """The command line by which the user's login shell, whichever it is, becomes ``sh`` with ``script``."""
        return f"exec {self.become}sh -c {shlex.join([script, *words])}"

    def openssh(self, program: str = "ssh") -> list[str]:
        """The ``ssh`` command line, without the host, that never asks and always ends."""
        return [program, *strict_options(self.connect_timeout), *self.overrides]


def place(settings: Settings) -> str:
    """``name (user@hostname:port)``: where an error of the connection is."""
    return f"{settings.name} ({settings.user}@{settings.address})"


def strict_options(connect_timeout: int) -> list[str]:
    """OpenSSH options: ask nothing, refuse unknown host keys, give up on a dead link after 20 s."""
    return [
        *("-o", "BatchMode=yes"),
        *("-o", "StrictHostKeyChecking=yes"),
        *("-o", f"ConnectTimeout={connect_timeout}"),
        *("-o", "ServerAliveInterval=5"),
        *("-o", "ServerAliveCountMax=4"),
    ]


def quick_cipher(settings: Settings) -> list[str]:
    """Options for bulk that goes through two sessions: OpenSSH's own ciphers, AES-GCM before ChaCha20.

    It takes a quarter of the time where the processor has AES. Nothing where any configuration names ciphers.
    """
    quick = [cipher for cipher in settings.ciphers if "-gcm@" in cipher]
    if not quick or settings.ciphers != _default_ciphers():
        return []
    rest = [cipher for cipher in settings.ciphers if cipher not in quick]
    return ["-o", f"Ciphers={','.join([*quick, *rest])}"]


@cache
def _default_ciphers() -> tuple[str, ...]:
    """OpenSSH's ciphers in its own order, whatever is configured."""
    command = ["ssh", "-F", "none", "-G", "-T", "host"]
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    found = next((line for line in answer.stdout.splitlines() if line.startswith("ciphers ")), "")
    return tuple(found.removeprefix("ciphers ").split(","))


def resolve(host: Host, config: Path | None = None) -> Settings:
    """Ask ``ssh -G`` for a host's settings; ``config`` stands for ``~/.ssh/config`` and the system's.

    :class:`FleetError` (exit 2) with ssh's own words, which name file and line, where it refuses its files.
    """
    overrides = (*(("-F", str(config)) if config else ()), *_overrides(host.ssh))
    try:
        command = ["ssh", "-G", "-T", *overrides, host.name]
        answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        fix = "apt-get install openssh-client"
        raise FleetError("OpenSSH's client is not installed here", fix=fix) from None
    except subprocess.TimeoutExpired:
        fix = f"try `ssh -G {host.name}`: a `Match exec` in {config or '~/.ssh/config'} may hang"
        raise FleetError(f"no answer from ssh -G {host.name} within 20 s", fix=fix) from None
    if answer.returncode:
        raise FleetError(
            f"ssh refuses the settings of host {host.name}",
            where=str(config or "~/.ssh/config"),
            fix=f"correct what it names; `ssh -G {host.name}` shows it again",
            evidence=answer.stderr.strip().splitlines(),
        )
    found: dict[str, list[str]] = defaultdict(list)
    for line in answer.stdout.splitlines():
        key, _, value = line.partition(" ")
        found[key].append(value)
    return replace(_settings(host.name, found, overrides), sudo=host.ssh.sudo)


def _overrides(ssh: Ssh) -> list[str]:
    pairs = {
        "HostName": ssh.hostname,
        "User": ssh.user,
        "Port": ssh.port,
        "IdentityFile": ssh.identity_file,
        "IdentitiesOnly": "yes" if ssh.identity_file else None,
        "UserKnownHostsFile": ssh.known_hosts,
        "ProxyJump": ssh.proxy_jump,
        "ConnectTimeout": math.ceil(ssh.connect_timeout) if ssh.connect_timeout else None,
    }
    return [part for key, value in pairs.items() if value is not None for part in ("-o", f"{key}={value}")]


def _settings(name: str, found: dict[str, list[str]], overrides: tuple[str, ...]) -> Settings:
    def one(key: str) -> str | None:
        value = found[key][0] if found[key] else "none"
        return None if value == "none" else value

    hostname, port, user = one("hostname") or name, one("port") or "22", one("user") or getpass.getuser()
    timeout = one("connecttimeout")
    connect_timeout = int(timeout) if timeout else CONNECT_TIMEOUT_S
    here = {"%d": str(Path.home()), "%u": getpass.getuser()}
    tokens = {"%h": hostname, "%p": port, "%r": user, "%n": name, **here}
    proxy = _tokens(one("proxycommand") or "", tokens) or None
    if jump := one("proxyjump"):
        proxy = _jump_command(jump, hostname, port, overrides, connect_timeout)
    known = " ".join([*found["userknownhostsfile"], *found["globalknownhostsfile"]]).split()
    identities = [value for value in found["identityfile"] if value != "none"]
    return Settings(
        name=name,
        hostname=hostname,
        user=user,
        port=int(port),
        identities=tuple(Path(_tokens(value, tokens)).expanduser() for value in identities),
        identities_only=one("identitiesonly") == "yes",
        identity_agent=_agent_socket(found),
        known_hosts=tuple(Path(_tokens(value, tokens)).expanduser() for value in known),
        host_key_alias=one("hostkeyalias"),
        proxy_command=proxy,
        connect_timeout=connect_timeout,
        overrides=overrides,
        ciphers=tuple((one("ciphers") or "").split(",")),
    )


def _agent_socket(found: dict[str, list[str]]) -> str | None:
    value = found["identityagent"][0] if found["identityagent"] else "SSH_AUTH_SOCK"
    if value == "none":
        return None
    if value == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK")
    return os.environ.get(value[1:]) if value.startswith("$") else str(Path(value).expanduser())


def _jump_command(
    jump: str, hostname: str, port: str, overrides: tuple[str, ...], connect_timeout: int
) -> str:
    """What ssh itself runs for ``ProxyJump``: the last hop forwards, through the ones before it."""
    *before, last = jump.split(",")
    target = last.removeprefix("ssh://")
    config = overrides[:2] if overrides[:1] == ("-F",) else ()
    command = ["ssh", *config, *strict_options(connect_timeout)]
    if before:
        command += ["-J", ",".join(before)]
    user, at, address = target.rpartition("@")
    if not address.startswith("[") and ":" in address:
        address, _, hop_port = address.rpartition(":")
        command += ["-p", hop_port]
    return shlex.join([*command, "-W", f"[{hostname}]:{port}", f"{user}{at}{address}"])


def _tokens(value: str, tokens: dict[str, str]) -> str:
    for token, replacement in tokens.items():
        value = value.replace(token, replacement)
    return value.replace("%%", "%")
