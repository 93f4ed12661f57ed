"""A running supervisord, asked over its own socket: where it is, what it runs, and its few verbs."""

from __future__ import annotations

import base64
import configparser
import glob
import http.client
import os
import socket
import xmlrpc.client
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from fleetctl.agent.errors import PREFLIGHT, AgentError

CONFIGS = (
    "/etc/supervisor/supervisord.conf",
    "/etc/supervisord.conf",
    "/usr/local/etc/supervisord.conf",
    "/usr/local/etc/supervisor/supervisord.conf",
    "/opt/supervisor-scripts/supervisord.conf",
)
ANSWER_S = 10.0
SHUTTING_DOWN = 6
BAD_NAME, NOT_RUNNING, ALREADY_STARTED, ALREADY_ADDED, STILL_RUNNING = 10, 70, 60, 90, 91
INCLUDE = "/etc/supervisor/conf.d"


def config_path() -> Optional[Path]:
    """The configuration of the supervisord that runs: what its command line names, else the first usual place."""
    for command in glob.glob("/proc/[0-9]*/cmdline"):  # noqa: PTH207
        try:
            words = Path(command).read_bytes().split(b"\0")
        except OSError:
            continue
        if not any(word.rpartition(b"/")[2] == b"supervisord" for word in words[:2]):
            continue
        if not _is_ours(Path(command).parent / "ns/mnt"):
            continue
        started_in = _folder(Path(command).parent / "cwd")
        for word, following in zip(words, [*words[1:], b""]):
            if word in (b"-c", b"--configuration"):
                return started_in / following.decode()
            if word.startswith(b"--configuration="):
                return started_in / word.partition(b"=")[2].decode()
        usual = [started_in / name for name in ("supervisord.conf", "etc/supervisord.conf")]
        return next((path for path in [*usual, *map(Path, CONFIGS)] if path.is_file()), None)
    return None


def _folder(link: Path) -> Path:
    """Where a process works: its configuration may be named from there."""
    try:
        return Path(os.readlink(link))  # noqa: PTH115
    except OSError:
        return Path("/")


def _is_ours(mounts: Path) -> bool:
    """Whether a process sees the same files; one in a container of this host does not."""
    try:
        return os.readlink(mounts) == os.readlink("/proc/self/ns/mnt")  # noqa: PTH115
    except OSError:
        return False


class Supervisord:
    """One configuration's server. :class:`AgentError` where it cannot be asked, with what to change."""

    def __init__(self, config: Path) -> None:
        self.config = config
        parser = configparser.RawConfigParser(strict=False, inline_comment_prefixes=(";",))
        try:
            parser.read_string(config.read_text(encoding="utf-8"))
        except (OSError, configparser.Error, UnicodeDecodeError) as error:
            raise AgentError(
                f"supervisord's configuration cannot be read: {error}", where=str(config), exit=PREFLIGHT
            ) from error
        here = {"here": str(config.parent)}
        self._socket = parser.get("unix_http_server", "file", fallback="").replace("%(here)s", here["here"])
        name = parser.get("unix_http_server", "username", fallback="")
        self._login = f"{name}:{parser.get('unix_http_server', 'password', fallback='')}" if name else ""
        self._include = parser.get("include", "files", fallback="").replace("%(here)s", here["here"]).split()
        self._server = xmlrpc.client.ServerProxy(
            "http://supervisor", transport=_Transport(self._socket, self._login)
        )

    def ask(self, name: str, *arguments: Any) -> Any:
        """One call of supervisord's XML-RPC interface; its refusals are :class:`xmlrpc.client.Fault`."""
        if not self._socket:
            raise AgentError(
                "supervisord has no socket to be asked by",
                where=str(self.config),
                fix="add [unix_http_server] with file=/var/run/supervisor.sock, and [rpcinterface:supervisor]",
                exit=PREFLIGHT,
            )
        try:
            return getattr(self._server.supervisor, name)(*arguments)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode != SHUTTING_DOWN:
                raise
            raise AgentError(
                "supervisord is shutting down",
                where=str(self.config),
                fix="start it again; what fleetctl had begun is settled then",
                exit=PREFLIGHT,
            ) from fault
        except (OSError, http.client.HTTPException, xmlrpc.client.ProtocolError) as error:
            raise AgentError(
                f"supervisord does not answer: {error}",
                where=self._socket,
                fix="is it up? `supervisorctl pid` there",
                exit=PREFLIGHT,
            ) from error

    def process(self, name: str) -> Optional[Dict[str, Any]]:
        """What supervisord says of a program; None where it does not know it."""
        try:
            found: Dict[str, Any] = self.ask("getProcessInfo", name)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode == BAD_NAME:
                return None
            raise
        return found

    def folder(self) -> Tuple[Path, str]:
        """Where programs' files go, and how their names end: the first place that it includes files from."""
        for pattern in self._include:
            path = Path(pattern)
            if not path.is_absolute():
                path = self.config.parent / path
            if path.name.startswith("*.") and not glob.has_magic(str(path.parent)):
                return path.parent, path.name[1:]
        raise AgentError(
            "supervisord includes no folder of programs",
            where=str(self.config),
            fix=f"add [include] with files = {INCLUDE}/*.conf, and restart supervisord",
            exit=PREFLIGHT,
        )

    def tolerate(self, codes: List[int], name: str, *arguments: Any) -> None:
        """:meth:`ask`, where these refusals are as good as done."""
        try:
            self.ask(name, *arguments)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode not in codes:
                raise AgentError(
                    f"supervisord refuses {name}: {fault.faultString}", where=str(arguments)
                ) from fault


class _Transport(xmlrpc.client.Transport):
    """XML-RPC over a Unix socket."""

    def __init__(self, path: str, login: str) -> None:
        coded = base64.b64encode(login.encode()).decode()
        super().__init__(headers=[("Authorization", f"Basic {coded}")] if login else [])
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        return _Connection(self._path)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_S)
        self.sock.connect(self._path)
