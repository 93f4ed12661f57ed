"""The exact wheels of an environment for one host's platform, kept on the controller."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from fleetctl.environment.cachelock import alone_in
from fleetctl.environment.closure import NOT_PINNED, Distribution, unmet
from fleetctl.environment.events import OnEvent, throttled
from fleetctl.environment.localwheel import write_local_wheel
from fleetctl.environment.pip import Pip
from fleetctl.environment.platform import HostPlatform
from fleetctl.environment.spec import EnvironmentSpec, python_range
from fleetctl.errors import FleetError

BUILDER = "uv==0.13.9"
CACHE = ".fleetctl/wheelhouse"
DRAFTS = ".download-"
SCHEMA = 1
_BLOCK = 4096
_BYTE_CODE = 1.3


@dataclass(frozen=True)
class Wheel:
    """One wheel: its ``size`` and what it takes on a disk once installed (``unpacked``), in bytes."""

    name: str
    version: str
    filename: str
    sha256: str
    size: int
    unpacked: int


@dataclass(frozen=True)
class Wheelhouse:
    """What an environment holds (``wheels``), what builds it (``builder``), the ``folder`` of both."""

    name: str
    platform: HostPlatform
    wheels: tuple[Wheel, ...]
    builder: Wheel
    imports: tuple[str, ...]
    folder: Path

    @cached_property
    def digest(self) -> str:
        """12 hex digits of what is in the environment: the python tag, each wheel's name and sha256."""
        lines = [self.platform.tag, *sorted(f"{wheel.filename} {wheel.sha256}" for wheel in self.wheels)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]

    @property
    def abi(self) -> str:
        """The ABI tag as far as the wheels tell it: ``cp311-torch2.13-cpu-glibc2.36``."""
        parts = [self.platform.tag]
        for wheel in self.wheels:
            if wheel.name == "torch":
                version = Version(wheel.version)
                parts += [
                    f"torch{version.major}.{version.minor}",
                    *([version.local] if version.local else []),
                ]
        return "-".join([*parts, f"glibc{self.platform.glibc}"])

    @property
    def unpacked(self) -> int:
        """Bytes the environment takes on the host's disk."""
        return sum(wheel.unpacked for wheel in self.wheels)


def resolve(spec: EnvironmentSpec, platform: HostPlatform, root: Path, on_event: OnEvent) -> Wheelhouse:
    """The wheels of ``spec`` for a host, downloaded to the fleet folder ``root`` where they are missing.

    The second time for the same pins and platform no index is asked. :class:`FleetError`: exit 2 for pins
    that do not exist, do not fit or are not complete; exit 5 when no index is reached or the host's Python is
    not the one asked for.
    """
    where = spec.source
    platform.require_python(python_range(spec.python), where)
    cache = root / CACHE
    cache.mkdir(parents=True, exist_ok=True)
    pinned = _pinning("uv", spec.requirements)
    source = _Source(Pip(platform, tuple(spec.indexes.values()), where), cache, on_event)
    found = source.wheels([*spec.requirements, *([] if pinned else [BUILDER])], spec.resolution_key())
    builder = next(wheel for wheel in found if wheel.name == "uv")
    wheels = [wheel for wheel in found if pinned or wheel is not builder]
    local = [describe(write_local_wheel(part, cache)) for part in spec.local]
    house = Wheelhouse(spec.name, platform, (*wheels, *local), builder, tuple(spec.imports), cache)
    absent = set((spec.abi or "").split("-")) - {"", *house.abi.split("-")}
    if absent:
        raise FleetError(
            f"the environment must have the ABI tag {spec.abi}, its pins make {house.abi}",
            where=where,
            fix=f"pin what brings {', '.join(sorted(absent))}, or correct `abi:`",
        )
    return house


class _Source:
    """Finds the wheels of pinned requirements: by the manifest of an earlier time, else by pip."""

    def __init__(self, pip: Pip, cache: Path, on_event: OnEvent) -> None:
        self._pip = pip
        self._cache = cache
        self._say = throttled(on_event)

    def wheels(self, requirements: Sequence[str], key: str) -> tuple[Wheel, ...]:
        platform = self._pip.platform
        parts = (BUILDER, key, platform.tag, platform.arch, platform.glibc)
        mark = hashlib.sha256(" ".join(parts).encode())
        manifest = self._cache / "manifests" / f"{mark.hexdigest()[:16]}.json"
        known = _read(manifest, self._cache)
        if known is not None:
            return known
        with alone_in(self._cache, lambda: self._event("wait", "another fleetctl resolves an environment")):
            for left in self._cache.glob(DRAFTS + "*"):
                shutil.rmtree(left)
            known = _read(manifest, self._cache)
            if known is None:
                known = self._ask(requirements)
                _write(manifest, self._cache, requirements, platform, known)
        return known

    def _ask(self, requirements: Sequence[str]) -> tuple[Wheel, ...]:
        pip, silent = self._pip.reachable()
        for index in silent:
            self._event("info", f"index does not answer, left out: {index}")
        self._event("begin", f"resolve {len(requirements)} pins for {pip.platform}")
        found = pip.report(requirements, lambda text: self._event("wait", f"reading {text}"))
        self._require_complete(requirements, found, pip, silent)
        wanted = [one for one in found if not _is_there(self._cache / _filename(one), one.sha256)]
        if wanted:
            with tempfile.TemporaryDirectory(prefix=DRAFTS, dir=self._cache) as folder:
                text = f"download {len(wanted)} of {len(found)} wheels"
                self._event("begin", text)
                pip.download(wanted, Path(folder), lambda text: self._event("wait", f"downloading {text}"))
                for path in Path(folder).iterdir():
                    path.replace(self._cache / path.name)
                self._event("ok", text)
        return tuple(
            describe(self._cache / _filename(one)) for one in sorted(found, key=lambda one: one.name)
        )

    def _require_complete(
        self, requirements: Sequence[str], found: Sequence[Distribution], pip: Pip, silent: list[str]
    ) -> None:
        """Refuse pins that lack what they need, before anything large is downloaded."""
        lacking = unmet({one.name: one for one in found}, pip.platform.markers)
        if not lacking:
            return
        pinned = {one.name for one in found}
        agree = all(line.endswith(NOT_PINNED) for line in lacking)
        whole = pip.report(requirements, lambda text: None, dependencies=True) if agree else []
        add = [f"{one.name}=={one.version}" for one in whole if one.name not in pinned]
        unreached = f" (not reached: {', '.join(silent)})" if silent else ""
        raise FleetError(
            f"the pins are not all that they need: {lacking[0]}{unreached}",
            where=pip.where,
            fix=f"add to requirements: {', '.join(sorted(add))}" if add else "make the pins agree",
            evidence=lacking,
        )

    def _event(self, state: str, text: str) -> None:
        self._say({"step": "resolve", "state": state, "text": text})


def _pinning(name: str, requirements: Sequence[str]) -> bool:
    return any(canonicalize_name(Requirement(pin).name) == name for pin in requirements)


def describe(path: Path) -> Wheel:
    """What a wheel file is: its name and version, its digest and its sizes."""
    name, version, _, _ = parse_wheel_filename(path.name)
    with zipfile.ZipFile(path) as archive:
        sizes = [(entry.filename, entry.file_size) for entry in archive.infolist()]
    unpacked = sum(
        _blocks(size) + (_blocks(int(size * _BYTE_CODE)) if file.endswith(".py") else 0)
        for file, size in sizes
    )
    return Wheel(name, str(version), path.name, sha256(path), path.stat().st_size, unpacked)


def _blocks(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _filename(one: Distribution) -> str:
    return unquote(urlsplit(one.url).path.rsplit("/", 1)[-1])


def _is_there(path: Path, digest: str) -> bool:
    return path.is_file() and sha256(path) == digest


def sha256(path: Path) -> str:
    """The file's digest, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(manifest: Path, cache: Path) -> tuple[Wheel, ...] | None:
    """The manifest's wheels while each file is as it was then; None otherwise."""
    try:
        content = json.loads(manifest.read_text())
        if content["schema"] != SCHEMA:
            return None
        wheels = tuple(Wheel(**entry) for entry in content["wheels"])
        then = [tuple(stamp) for stamp in content["stamps"]]
        return wheels if then == [_stamp(cache / wheel.filename) for wheel in wheels] else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _write(
    manifest: Path, cache: Path, requirements: Sequence[str], platform: HostPlatform, wheels: Sequence[Wheel]
) -> None:
    content = {
        "schema": SCHEMA,
        "requirements": list(requirements),
        "platform": str(platform),
        "wheels": [asdict(wheel) for wheel in wheels],
        "stamps": [_stamp(cache / wheel.filename) for wheel in wheels],
    }
    manifest.parent.mkdir(exist_ok=True)
    draft = manifest.with_suffix(".new")
    draft.write_text(json.dumps(content, indent=1))
    draft.replace(manifest)


def _stamp(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns
