"""The agent as one file, the same bytes for the same sources and Python: a zipapp of what runs on hosts.

That is ``fleetctl/agent``, ``fleetctl/abi`` and of pyelftools what ``fleetctl/abi`` imports; also this Python's
bytecode of all of it, which spares a host with the same Python half of the agent's start. Others use the sources.
Packing takes 0.2 s, so what was packed is kept in the operator's cache by the digest of its sources.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import elftools

import fleetctl

EPOCH = (1980, 1, 1, 0, 0, 0)
OWN = ("agent", "abi")
ELFTOOLS = ("*.py", "common/*.py", "construct/*.py", "construct/lib/*.py")
ELFTOOLS_ELF = ("__init__.py", "enums.py", "structs.py")
UNCHECKED_HASH = (1).to_bytes(4, "little")
MARSHAL = 2
"""Its later formats differ from run to run, in which objects they share."""
KEEP_S = 7 * 86400.0


@dataclass(frozen=True)
class Payload:
    """The agent's bytes and their sha256; its first 12 hex digits name the agent's file on the host."""

    data: bytes
    sha256: str

    @property
    def digest(self) -> str:
        """The name on the host."""
        return self.sha256[:12]


@cache
def payload() -> Payload:
    """The agent of this fleetctl."""
    files = sources()
    key = _key(files)
    if kept := _kept(key):
        return kept
    packed = pack(files)
    with suppress(OSError):
        _keep(key, packed)
    return packed


def sources() -> dict[str, bytes]:
    """Each file of the agent by its name in the archive."""
    fleetctl_folder, elftools_folder = Path(fleetctl.__file__).parent, Path(elftools.__file__).parent
    found = [path for part in OWN for path in sorted((fleetctl_folder / part).rglob("*.py"))]
    theirs = [path for pattern in ELFTOOLS for path in sorted(elftools_folder.glob(pattern))]
    theirs += [elftools_folder / "elf" / name for name in ELFTOOLS_ELF]
    return {
        "__main__.py": (fleetctl_folder / "agent" / "__main__.py").read_bytes(),
        "fleetctl/__init__.py": b"",
        **{path.relative_to(fleetctl_folder.parent).as_posix(): path.read_bytes() for path in found},
        **{path.relative_to(elftools_folder.parent).as_posix(): path.read_bytes() for path in theirs},
    }


def pack(files: Mapping[str, bytes]) -> Payload:
    """Pack files, compressed, each with its bytecode beside it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            _add(archive, name, content)
            _add(archive, f"{name}c", _bytecode(name, content))
    return _payload(buffer.getvalue())


def _payload(data: bytes) -> Payload:
    return Payload(data, hashlib.sha256(data).hexdigest())


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, content)


def _bytecode(name: str, source: bytes) -> bytes:
    """A ``.pyc`` that is taken without looking at its source again: both come in one archive."""
    import importlib.util
    import marshal

    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    head = importlib.util.MAGIC_NUMBER + UNCHECKED_HASH + importlib.util.source_hash(source)
    return head + marshal.dumps(code, MARSHAL)


def _cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "fleetctl"


def _key(files: Mapping[str, bytes]) -> str:
    """What decides the packed bytes: the files, this module, this Python."""
    import importlib.util

    digest = hashlib.sha256(importlib.util.MAGIC_NUMBER + Path(__file__).read_bytes())
    for name, content in files.items():
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:32]


def _kept(key: str) -> Payload | None:
    """What was packed before, where it is still whole."""
    with suppress(OSError):
        for place in _cache().glob(f"agent-{key}-*.pyz"):
            found = _payload(place.read_bytes())
            if place.stem.endswith(f"-{found.digest}"):
                return found
    return None


def _keep(key: str, packed: Payload) -> None:
    """Keep what was packed, in one step and for this user alone; what was packed long ago goes."""
    place = _cache() / f"agent-{key}-{packed.digest}.pyz"
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in place.parent.glob("agent-*.pyz"):
        if old.stat().st_mtime < time.time() - KEEP_S:
            old.unlink(missing_ok=True)
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(packed.data)
    draft.replace(place)
