"""Trees of installed files that patch sets are made from and looked at in: on a host, in a folder, in a wheel."""

from __future__ import annotations

import base64
import hashlib
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from fleetctl.agent.capture.contents import CONTENT_MAX, is_inside, list_files, read
from fleetctl.agent.errors import AgentError
from fleetctl.errors import Exit, FleetError
from fleetctl.transport.agent import Agent

HASHING_S = 600.0
CHUNK = 1 << 20


@dataclass(frozen=True)
class Installed:
    """A distribution in a tree: its version and the top-level packages it owns."""

    version: str
    packages: tuple[str, ...]


class Tree(Protocol):
    """Files by their path relative to site-packages."""

    shown: str

    def distributions(self, names: Iterable[str]) -> dict[str, Installed | None]:
        """Each distribution by its canonical name; None where it is not there."""

    def digests(self, paths: Sequence[str]) -> dict[str, str | None]:
        """sha256 of each file; None where there is none."""

    def contents(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """Each file's bytes; None where there is none."""

    def files(self, packages: Sequence[str]) -> dict[str, str]:
        """Every file of some top-level packages, byte code left out, and its sha256."""


class Read:
    """A tree that the agent's calls read: on a host, or the very same functions on a folder here."""

    def __init__(self, shown: str, path: str, agent: Agent | None = None) -> None:
        self.shown = shown
        self.path = path
        self._agent = agent

    def marker(self) -> dict[str, Any] | None:
        """What the environment says it is; None for one that fleetctl did not build."""
        marker: dict[str, Any] | None = self._ask("files.read", files=[])["marker"]
        return marker

    def distributions(self, names: Iterable[str]) -> dict[str, Installed | None]:
        """As :class:`Tree` says."""
        found = self._ask("files.read", files=[], distributions=sorted(set(names)))["distributions"]
        return {
            name: Installed(entry["version"], tuple(entry["packages"])) if entry else None
            for name, entry in found.items()
        }

    def digests(self, paths: Sequence[str]) -> dict[str, str | None]:
        """As :class:`Tree` says."""
        files = self._ask("files.read", files=sorted(set(paths)))["files"]
        return {path: entry["sha256"] if entry else None for path, entry in files.items()}

    def contents(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """As :class:`Tree` says."""
        files = self._ask("files.read", files=sorted(set(paths)), contents=True)["files"]
        return {path: base64.b64decode(entry["content"]) if entry else None for path, entry in files.items()}

    def files(self, packages: Sequence[str]) -> dict[str, str]:
        """As :class:`Tree` says; :class:`FleetError` (exit 5) where some cannot be looked at."""
        answer = self._ask("files.list", packages=list(packages))
        if answer["left_out"]:
            raise FleetError(
                f"{len(answer['left_out'])} files cannot be looked at",
                where=self.shown,
                fix="take them out of the tree, or give another one",
                evidence=[f"{entry['path']}: {entry['why']}" for entry in answer["left_out"][:10]],
                exit=Exit.PREFLIGHT,
            )
        files: dict[str, str] = answer["files"]
        return files

    def _ask(self, call: str, **args: Any) -> dict[str, Any]:
        if self._agent is not None:
            answer: dict[str, Any] = self._agent.call(call, timeout=HASHING_S, path=self.path, **args)
            return answer
        function = {"files.read": read, "files.list": list_files}[call]
        try:
            return function({"path": self.path, **args}, lambda event: None)
        except AgentError as error:
            raise FleetError(error.what, error.where, error.fix, error.evidence, Exit(error.exit)) from None


class Wheel:
    """A wheel's files as they would be installed."""

    def __init__(self, path: Path) -> None:
        self.shown = path.name
        self._path = path
        try:
            name, version, _, _ = parse_wheel_filename(path.name)
        except InvalidWheelFilename as error:
            raise FleetError(
                f"not a wheel's name: {error}", where=str(path), fix="name a .whl file as it was published"
            ) from None
        self._name, self._version = name, str(version)
        with self._opened() as archive:
            self._members = dict(_members(archive))

    def distributions(self, names: Iterable[str]) -> dict[str, Installed | None]:
        """As :class:`Tree` says; a wheel has one."""
        tops = {path.split("/", 1)[0] for path in self._members}
        packages = tuple(sorted(top for top in tops if not top.endswith((".dist-info", ".data", ".pth"))))
        own = Installed(self._version, packages)
        return {name: own if canonicalize_name(name) == self._name else None for name in names}

    def digests(self, paths: Sequence[str]) -> dict[str, str | None]:
        """As :class:`Tree` says."""
        with self._opened() as archive:
            return {path: self._digest(archive, path) if path in self._members else None for path in paths}

    def contents(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """As :class:`Tree` says; files over 8 MiB are refused."""
        with self._opened() as archive:
            return {path: self._content(archive, path) if path in self._members else None for path in paths}

    def files(self, packages: Sequence[str]) -> dict[str, str]:
        """As :class:`Tree` says."""
        with self._opened() as archive:
            return {
                path: self._digest(archive, path)
                for path in sorted(self._members)
                if path.split("/", 1)[0] in packages
            }

    def _content(self, archive: zipfile.ZipFile, path: str) -> bytes:
        with archive.open(self._members[path]) as member:
            content = member.read(CONTENT_MAX + 1)
        if len(content) > CONTENT_MAX:
            raise self._refused(f"{path} is larger than {CONTENT_MAX >> 20} MiB")
        return content

    def _digest(self, archive: zipfile.ZipFile, path: str) -> str:
        digest = hashlib.sha256()
        with archive.open(self._members[path]) as member:
            while chunk := member.read(CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        try:
            with zipfile.ZipFile(self._path) as archive:
                yield archive
        except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
            raise self._refused(f"cannot be read: {error}") from None

    def _refused(self, what: str) -> FleetError:
        return FleetError(what, where=str(self._path), fix="give a whole wheel")


def _members(archive: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    """Installed path → member's name; ``x.data/purelib/…`` is installed beside the rest."""
    for name in archive.namelist():
        parts = name.split("/")
        if parts[0].endswith(".data"):
            if parts[1:2] not in (["purelib"], ["platlib"]):
                continue
            parts = parts[2:]
        path = "/".join(parts)
        if is_inside(path) and not path.endswith(".pyc"):
            yield path, name
