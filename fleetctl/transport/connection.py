"""One authenticated SSH connection: strict host keys, bounded waits, failures with reason and fix."""

from __future__ import annotations

import logging
import random
import shlex
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from fleetctl.errors import Exit, FleetError
from fleetctl.transport.host_keys import check_host_key, known_kinds
from fleetctl.transport.keys import Candidates
from fleetctl.transport.quick import paramiko
from fleetctl.transport.settings import Settings, place

ATTEMPTS = 5
HANDSHAKE_S = 20
CHANNEL_S = 10
DEAD_LINK_MS = 20_000
KEEPALIVE_S = 5
HANDSHAKES_OF_ONE = 8
"""Handshakes at a time with one sshd (a jump host's, where there is one): its ``MaxStartups`` is 10 by default."""
TCP_USER_TIMEOUT = 18

logging.getLogger("paramiko").addHandler(logging.NullHandler())


class _Reset(Exception):
    """The host closed the connection before the handshake was done; worth another try."""


@contextmanager
def connect(settings: Settings) -> Iterator[paramiko.Transport]:
    """An authenticated transport to one host, closed on leaving.

    :class:`FleetError` with exit 3 where the host is not reached, its key is unknown or changed, or it takes
    none of the operator's keys. Connected or failed at the latest ``connect_timeout`` + 20 s after the call,
    its turn among other handshakes not counted.
    """
    deadline = time.monotonic() + settings.connect_timeout + HANDSHAKE_S
    link = _connect_with_retries(settings, deadline)
    try:
        yield link.transport
    finally:
        link.close()


@dataclass
class _Link:
    transport: paramiko.Transport
    proxy: _Proxy | None

    def close(self) -> None:
        self.transport.close()
        if self.proxy:
            self.proxy.close()


def _connect_with_retries(settings: Settings, deadline: float) -> _Link:
    """An sshd over its ``MaxStartups`` resets handshakes: those alone are tried again, a few times."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _connect_once(settings, deadline)
        except _Reset as reset:
            pause = 0.2 * 2**attempt * random.uniform(0.5, 1.5)
            if attempt == ATTEMPTS or time.monotonic() + pause > deadline:
                raise FleetError(
                    f"the connection was closed during the SSH handshake, {attempt} times",
                    where=place(settings),
                    fix="see sshd's journal there: `journalctl -u ssh`; MaxStartups may be too low",
                    evidence=[str(reset)],
                    exit=Exit.UNREACHABLE,
                ) from None
            time.sleep(pause)
    raise AssertionError("unreachable")


def _connect_once(settings: Settings, deadline: float) -> _Link:
    sock = None if settings.proxy_command else _tcp(settings, deadline)
    waits = time.monotonic()
    with _turn(settings):
        deadline += time.monotonic() - waits
        proxy = None
        if sock is None:
            proxy = _Proxy(settings)
            sock = proxy.socket
        link = _Link(paramiko.Transport(sock), proxy)
        try:
            _handshake(link, settings, deadline)
            check_host_key(link.transport, settings)
            _authenticate(link.transport, settings, deadline)
        except BaseException:
            link.close()
            raise
    link.transport.set_keepalive(KEEPALIVE_S)
    link.transport.channel_timeout = CHANNEL_S
    return link


_turns: dict[str, threading.BoundedSemaphore] = {}
_turns_lock = threading.Lock()


def _turn(settings: Settings) -> threading.BoundedSemaphore:
    """The turns at the sshd that this connection meets first."""
    met = settings.address
    if settings.proxy_command:
        met = settings.proxy_command.replace(settings.hostname, "")
    with _turns_lock:
        return _turns.setdefault(met, threading.BoundedSemaphore(HANDSHAKES_OF_ONE))


def _tcp(settings: Settings, deadline: float) -> socket.socket:
    try:
        sock = _first(_resolve(settings), settings.connect_timeout, deadline)
    except TimeoutError:
        raise _unreachable(settings, f"no answer within {settings.connect_timeout} s") from None
    except ConnectionRefusedError:
        fix = "start sshd there, or correct the port"
        raise _unreachable(settings, "the host refuses connections on this port", fix) from None
    except OSError as error:
        raise _unreachable(settings, error.strerror or str(error)) from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, TCP_USER_TIMEOUT, DEAD_LINK_MS)
    return sock


def _first(addresses: list[tuple[str, int]], timeout: float, deadline: float) -> socket.socket:
    """A connection to the first address that takes one; the last address's error where none does."""
    for address in addresses:
        try:
            return socket.create_connection(address, max(0.1, min(timeout, deadline - time.monotonic())))
        except OSError as error:
            last = error
    raise last


def _resolve(settings: Settings) -> list[tuple[str, int]]:
    """The host's addresses, resolved in a thread of its own: ``getaddrinfo`` knows no timeout."""
    found: list[tuple[str, int]] = []
    failed: list[OSError] = []

    def ask() -> None:
        try:
            answer = socket.getaddrinfo(settings.hostname, settings.port, type=socket.SOCK_STREAM)
            found.extend((str(entry[4][0]), settings.port) for entry in answer)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(settings.connect_timeout)
    if found:
        return found
    reason = failed[0].strerror if failed else f"no answer from DNS within {settings.connect_timeout} s"
    fix = "correct the host's name, or give its address: ssh.hostname in the inventory, for adopt --ssh"
    raise _unreachable(settings, f"the name {settings.hostname} does not resolve: {reason}", fix)


class _Proxy:
    """``ProxyCommand`` or ``ProxyJump``, run by OpenSSH with one end of a socket pair as stdin and stdout."""

    def __init__(self, settings: Settings) -> None:
        self.socket, far = socket.socketpair()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        command = ["sh", "-c", f"exec {settings.proxy_command}"]
        self._process = subprocess.Popen(
            command, stdin=far.fileno(), stdout=far.fileno(), stderr=self._stderr, start_new_session=True
        )
        far.close()

    def words(self) -> list[str]:
        """What it said on stderr, its last lines, where it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace").splitlines()[-10:]

    def close(self) -> None:
        self.socket.close()
        self._process.kill()
        self._process.wait()
        self._stderr.close()


def _handshake(link: _Link, settings: Settings, deadline: float) -> None:
    """Key exchange, asking first for the kinds of host key that are known."""
    transport, proxy = link.transport, link.proxy
    kinds = known_kinds(settings)
    options = transport.get_security_options()
    options.key_types = sorted(options.key_types, key=lambda kind: kind not in kinds)
    left = max(0.1, min(settings.connect_timeout + 5, deadline - time.monotonic()))
    transport.banner_timeout = left + HANDSHAKE_S
    done = threading.Event()
    transport.start_client(done)
    if not done.wait(left):
        raise _unreachable(settings, f"connected, but no SSH handshake within {left:.0f} s")
    if transport.is_active():
        return
    error = transport.get_exception()
    if proxy and (words := proxy.words()):
        raise FleetError(
            "the way through the proxy failed",
            where=place(settings),
            fix=f"try it by hand: {settings.proxy_command}",
            evidence=words,
            exit=Exit.UNREACHABLE,
        )
    if error is None or isinstance(error, EOFError | ConnectionError) or "banner" in str(error):
        raise _Reset(str(error) or "connection closed")
    raise _unreachable(settings, f"SSH handshake failed: {error}")


def _authenticate(transport: paramiko.Transport, settings: Settings, deadline: float) -> None:
    candidates = Candidates(settings)
    tried: list[str] = []
    reason = ""
    for candidate in candidates:
        tried.append(f"refused: {candidate}")
        transport.auth_timeout = max(0.1, deadline - time.monotonic())
        try:
            more = transport.auth_publickey(settings.user, candidate.key)
        except paramiko.BadAuthenticationType as error:
            reason = f"; it takes only: {', '.join(error.allowed_types)}"
            break
        except (paramiko.SSHException, EOFError, OSError) as error:
            if not transport.is_active():
                reason = f"; then it closed the connection ({error})"
                break
            continue
        if not more:
            return
        reason = f"; it also asks for {', '.join(more)}, which fleetctl cannot give"
        break
    named = "ssh.identity_file in the inventory, IdentityFile in ~/.ssh/config"
    offer = f"add one of their public halves to ~{settings.user}/.ssh/authorized_keys there, or name the right key"
    what = f"the host takes none of the keys offered for user {settings.user}{reason}"
    if not tried:
        what = f"no key to offer to the host for user {settings.user}: no usable identity file, none in ssh-agent"
        offer = "name a key that is there and can be read, or `ssh-add` one"
    raise FleetError(
        what,
        where=place(settings),
        fix=f"{offer}: {named}",
        evidence=[*tried, *(f"not usable: {line}" for line in candidates.unusable)],
        exit=Exit.UNREACHABLE,
    )


def _unreachable(settings: Settings, what: str, fix: str = "") -> FleetError:
    by_hand = shlex.join(["ssh", "-v", *settings.overrides, settings.name])
    return FleetError(
        what,
        where=place(settings),
        fix=fix or f"is the host up? try `{by_hand}` and `ping {settings.hostname}`",
        exit=Exit.UNREACHABLE,
    )
