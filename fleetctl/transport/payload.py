"""The agent as one file, the same bytes for the same sources: a zipapp of what runs on hosts.

That is ``fleetctl/agent``, ``fleetctl/abi`` and of pyelftools what ``fleetctl/abi`` imports.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import elftools

import fleetctl

EPOCH = (1980, 1, 1, 0, 0, 0)
OWN = ("agent", "abi")
ELFTOOLS = ("*.py", "common/*.py", "construct/*.py", "construct/lib/*.py")
ELFTOOLS_ELF = ("__init__.py", "enums.py", "structs.py")


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
    return pack(sources())


def sources() -> dict[str, bytes]:
    """Each file of the agent by its name in the archive."""
    fleetctl_folder, elftools_folder = Path(fleetctl.__file__).parent, Path(elftools.__file__).parent
    found = [path for part in OWN for path in sorted((fleetctl_folder / part).glob("*.py"))]
    theirs = [path for pattern in ELFTOOLS for path in sorted(elftools_folder.glob(pattern))]
    theirs += [elftools_folder / "elf" / name for name in ELFTOOLS_ELF]
    return {
        "__main__.py": (fleetctl_folder / "agent" / "__main__.py").read_bytes(),
        "fleetctl/__init__.py": b"",
        **{path.relative_to(fleetctl_folder.parent).as_posix(): path.read_bytes() for path in found},
        **{path.relative_to(elftools_folder.parent).as_posix(): path.read_bytes() for path in theirs},
    }


def pack(files: Mapping[str, bytes]) -> Payload:
    """Pack files, uncompressed: that is quickest for both ends, and they are sent only once."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), content)
    data = buffer.getvalue()
    return Payload(data, hashlib.sha256(data).hexdigest())
