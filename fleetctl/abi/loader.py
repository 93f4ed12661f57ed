"""Where the system's dynamic linker looks: its cache, its default folders, and what ``$ORIGIN`` stands for."""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

_MAGIC = b"glibc-ld.so.cache1.1"
_OLD_MAGIC = b"ld.so-1.7.0"
_MAX_CACHE = 64 << 20
_DEFAULT = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


class System:
    """The libraries of the system under ``root`` (``/``) by name, several where there are several architectures."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._cache = read_cache(self._place("/etc/ld.so.cache"))

    def find(self, name: str) -> List[str]:
        """Paths of a library by its soname, in the linker's order; they exist."""
        found = list(self._cache.get(name, ()))
        if not found:
            found = [f"{folder}/{name}" for folder in _DEFAULT]
        return [path for path in map(self._place, found) if Path(path).is_file()]

    def names(self) -> List[str]:
        """All sonames that the linker's cache knows."""
        return list(self._cache)

    def _place(self, path: str) -> str:
        return path if self._root == "/" else self._root.rstrip("/") + path


@lru_cache(maxsize=4)
def read_cache(path: str) -> Dict[str, Tuple[str, ...]]:
    """``/etc/ld.so.cache``: paths by soname; empty where it is not there or not of a known kind."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_CACHE)
    except OSError:
        return {}
    start = data.find(_MAGIC, 0, 1 << 20 if data.startswith(_OLD_MAGIC) else len(_MAGIC))
    if start < 0 or start + 48 > len(data):
        return {}
    (count,) = struct.unpack_from("=I", data, start + 20)
    found: Dict[str, List[str]] = {}
    for index in range(min(count, (len(data) - start - 48) // 24)):
        _, name, value = struct.unpack_from("=iII", data, start + 48 + 24 * index)
        found.setdefault(_text(data, start + name), []).append(_text(data, start + value))
    return {name: tuple(paths) for name, paths in found.items()}


def expand(folders: Sequence[str], owner: str, machine: str) -> List[str]:
    """An RPATH or RUNPATH of the library at ``owner`` as folders; ``$PLATFORM`` cannot be known and is left out."""
    origin = str(Path(owner).absolute().parent)
    library = {"x86_64": "lib64", "aarch64": "lib64"}.get(machine, "lib")
    found = []
    for folder in folders:
        for word, value in (("ORIGIN", origin), ("LIB", library)):
            folder = folder.replace("${" + word + "}", value).replace("$" + word, value)
        if "$" not in folder:
            found.append(os.path.normpath(folder))
    return found


def _text(data: bytes, at: int) -> str:
    end = data.find(b"\0", at, at + 4096)
    return os.fsdecode(data[at:end]) if end >= 0 else ""
