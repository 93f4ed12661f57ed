"""A compiled library's search path (RPATH, RUNPATH) that names an environment: made relative to the library.

Only the bytes of the search path itself are changed, in a fresh copy of the file: the file keeps its layout.
"""

from __future__ import annotations

import io
import os
from typing import List, Optional, Tuple

from fleetctl.agent.mentions import Paths

MAGIC = b"\x7fELF"
SEARCH = ("DT_RPATH", "DT_RUNPATH")


class NoRoom(Exception):
    """Why a library cannot be relocated."""


def relocated(content: bytes, paths: Paths, old: List[str], inside: str) -> Optional[bytes]:
    """The library with each search path below one of ``old`` as ``$ORIGIN/…``; None where none names it.

    ``inside`` is the library's own path relative to the environment. Raises :class:`NoRoom` when the new
    search path does not fit into the bytes of the old one, or the library is needed by its whole path.
    """
    try:
        found = _dynamic(content)
    except Exception as error:  # a library that is no valid ELF has no search path that a loader would follow
        raise NoRoom(f"its dynamic section cannot be read: {error}") from error
    changed = bytearray(content)
    any_changed = False
    for tag, offset, text in found:
        if not paths.named_in(text):
            continue
        if tag not in SEARCH:
            raise NoRoom(f"{tag[3:]} names the old path: {text.decode(errors='replace')}")
        new = b":".join(_relative(part, old, inside) for part in text.split(b":"))
        if len(new) > len(text):
            raise NoRoom(f"{tag[3:]} {new.decode()} is longer than {text.decode()}, whose place it must take")
        changed[offset : offset + len(text)] = new.ljust(len(text), b"\0")
        any_changed = True
    if not any_changed:
        return None
    return _checked(bytes(changed), content)


def _dynamic(content: bytes) -> List[Tuple[str, int, bytes]]:
    """Tag, place in the file and text of each string of the dynamic section."""
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

    found = []
    elf = ELFFile(io.BytesIO(content))
    for segment in elf.iter_segments("PT_DYNAMIC"):
        assert isinstance(segment, DynamicSegment)
        tables = [tag["d_ptr"] for tag in segment.iter_tags("DT_STRTAB")]
        start = next(iter(elf.address_offsets(tables[0]))) if tables else 0
        for tag in segment.iter_tags():
            if tag.entry.d_tag in (*SEARCH, "DT_NEEDED", "DT_SONAME"):
                offset = start + tag.entry.d_val
                found.append((tag.entry.d_tag, offset, content[offset : content.index(b"\0", offset)]))
    return found


def _relative(part: bytes, old: List[str], inside: str) -> bytes:
    for path in map(os.fsencode, old):
        if part == path or part.startswith(path + b"/"):
            target = part[len(path) :].strip(b"/") or b"."
            way = os.path.relpath(target, os.fsencode(os.path.dirname(inside) or "."))
            return b"$ORIGIN" if way == b"." else b"$ORIGIN/" + way
    return part


def _checked(changed: bytes, content: bytes) -> bytes:
    """``changed``, where nothing else shares the bytes (linkers let a name be the end of a longer text)."""
    before = [text for tag, _, text in _dynamic(content) if tag not in SEARCH]
    after = [text for tag, _, text in _dynamic(changed) if tag not in SEARCH]
    if before != after or _symbols(content) != _symbols(changed):
        raise NoRoom("a name that the loader needs shares the bytes of the search path")
    return changed


def _symbols(content: bytes) -> List[str]:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    section = ELFFile(io.BytesIO(content)).get_section_by_name(".dynsym")
    return [one.name for one in section.iter_symbols()] if isinstance(section, SymbolTableSection) else []
