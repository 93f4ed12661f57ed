"""The host's key against the known ones: an unknown or changed key is refused, with the way on."""

from __future__ import annotations

import shlex
from pathlib import Path

from fleetctl.errors import Exit, FleetError
from fleetctl.transport.known_hosts import KnownKey, fingerprint, known_keys
from fleetctl.transport.quick import paramiko
from fleetctl.transport.settings import Settings, place

UNREADABLE = "cannot be read"


def known_kinds(settings: Settings) -> set[str]:
    """Algorithms of the host's known keys, to ask for first: of several it might show an unknown one."""
    kinds = {key.kind for key in known_keys(settings.known_hosts, settings.host_key_name) if not key.revoked}
    return kinds | ({"rsa-sha2-512", "rsa-sha2-256"} if "ssh-rsa" in kinds else set())


def check_host_key(transport: paramiko.Transport, settings: Settings) -> None:
    """Return where the key is known; :class:`FleetError` (exit 3) where it is unknown, changed or revoked."""
    key = transport.get_remote_server_key()
    known = known_keys(settings.known_hosts, settings.host_key_name)
    same = [entry for entry in known if entry.blob == key.asbytes()]
    if any(entry.revoked for entry in same):
        where = next(entry.where for entry in same if entry.revoked)
        raise FleetError(
            f"HOST KEY REVOKED: {where} says not to trust {fingerprint(key.asbytes())}",
            where=place(settings),
            fix="give the host a new key",
            exit=Exit.UNREACHABLE,
        )
    if same:
        return
    if known := [entry for entry in known if not entry.revoked]:
        raise _changed_key(settings, key, known)
    states = {path: _why_not(path) for path in settings.known_hosts}
    show = f"`ssh-keygen -lf /etc/ssh/ssh_host_{_short(key.get_name())}_key.pub`"
    raise FleetError(
        f"unknown host key: {key.get_name()} {fingerprint(key.asbytes())}",
        where=place(settings),
        fix=_way_on(
            [path for path, state in states.items() if state.startswith(UNREADABLE)],
            settings,
            f"compare it with what {show} says on the host's console, then accept it: {_accept(settings, key)}",
        ),
        evidence=[f"{state} {path}" for path, state in states.items()],
        exit=Exit.UNREACHABLE,
    )


def _why_not(path: Path) -> str:
    """Why a known_hosts file holds no key of the host: it is not in it, or the file cannot be read."""
    try:
        path.open("rb").close()
    except FileNotFoundError:
        return "there is no"
    except OSError as error:
        return f"{UNREADABLE} ({error.strerror}):"
    return "not in"


def _way_on(unreadable: list[Path], settings: Settings, accept: str) -> str:
    """``accept``, or where a file that may hold the key cannot be read: that one first."""
    if not unreadable:
        return accept
    first = f"make {' and '.join(map(str, unreadable))} readable to this user, or run fleetctl as its owner"
    return first if settings.known_hosts[0] in unreadable else f"{first}; if the key is not there, {accept}"


def _changed_key(settings: Settings, key: paramiko.PKey, known: list[KnownKey]) -> FleetError:
    forget = {f"ssh-keygen -f {entry.file} -R {shlex.quote(settings.host_key_name)}": None for entry in known}
    return FleetError(
        "HOST KEY CHANGED: someone may be in between, or the host was set up anew. "
        f"It shows {key.get_name()} {fingerprint(key.asbytes())}",
        where=place(settings),
        fix="if the host was set up anew: " + "; ".join([*forget, _accept(settings, key)]),
        evidence=[f"{entry.where} says {entry.kind} {fingerprint(entry.blob)}" for entry in known],
        exit=Exit.UNREACHABLE,
    )


def _accept(settings: Settings, key: paramiko.PKey) -> str:
    """The command line that adds this host's key to the operator's file."""
    if settings.proxy_command or settings.host_key_alias:
        return shlex.join(["ssh", *settings.overrides, settings.name, "true"])
    kind, file = _short(key.get_name()), shlex.quote(str(settings.known_hosts[0]))
    return f"ssh-keyscan -p {settings.port} -t {kind} {settings.hostname} >> {file}"


def _short(kind: str) -> str:
    """``ssh-keyscan``'s word for a kind of key."""
    return "ecdsa" if kind.startswith("ecdsa") else kind.removeprefix("ssh-")
