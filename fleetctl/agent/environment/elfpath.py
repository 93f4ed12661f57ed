"""A compiled library's search path (RPATH, RUNPATH) that names an environment: made relative to the library.

Only the bytes of the search path itself are changed, in a fresh copy of the file: the file keeps its layout.
"""

from __future__ import annotations

import os
import struct
from typing import Iterator, List, NamedTuple, Optional, Tuple

from fleetctl.agent.capture.mentions import Paths

MAGIC = b"\x7fELF"
LOAD, DYNAMIC, DYNSYM = 1, 2, 11
STRTAB = 5
SEARCH = {15: "RPATH", 29: "RUNPATH"}
LOADED = {1: "NEEDED", 14: "SONAME"}


class NoRoom(Exception):
    """Why a library cannot be relocated."""


class Layout(NamedTuple):
    """Where an ELF file of one class keeps what is read here: formats, and indexes into what they unpack."""

    header: str
    segment: str
    segment_places: Tuple[int, int, int]
    section: str
    section_places: Tuple[int, int]
    entry: str
    symbol: int


LAYOUTS = {
    1: Layout("16x8xIIIIHHHHHH", "IIIIIIII", (1, 2, 4), "IIIIIIIIII", (4, 5), "iI", 16),
    2: Layout("16x8xQQQIHHHHHH", "IIQQQQQQ", (2, 3, 5), "IIQQQQIIQQ", (4, 5), "qQ", 24),
}


def relocated(content: bytes, paths: Paths, old: List[str], inside: str) -> Optional[bytes]:
    """The library with each search path below one of ``old`` as ``$ORIGIN/…``; None where none names it.

    ``inside`` is the library's own path relative to the environment. Raises :class:`NoRoom` when the new
    search path does not fit into the bytes of the old one, or the library is needed by its whole path.
    """
    try:
        return _relocated(content, _Elf(content), paths, old, inside)
    except (struct.error, LookupError, ValueError, OverflowError) as error:
        raise NoRoom(f"no ELF file that can be read: {error}") from None


def _relocated(content: bytes, elf: _Elf, paths: Paths, old: List[str], inside: str) -> Optional[bytes]:
    changed = bytearray(content)
    for tag, start in elf.strings:
        text = elf.text(start)
        if not paths.named_in(text):
            continue
        if tag in LOADED:
            raise NoRoom(f"{LOADED[tag]} names the old path: {text.decode(errors='replace')}")
        new = b":".join(_relative(part, old, inside) for part in text.split(b":"))
        if len(new) > len(text):
            says = (
                f"{SEARCH[tag]} {new.decode(errors='replace')} is longer than {text.decode(errors='replace')}"
            )
            raise NoRoom(f"{says}, whose place it must take")
        if elf.shares(start, len(text)):
            raise NoRoom(f"a name that the loader needs shares the bytes of {SEARCH[tag]}")
        changed[start : start + len(text)] = new.ljust(len(text), b"\0")
    return bytes(changed) if changed != content else None


class _Elf:
    """The strings of a library's dynamic section: ``strings`` are pairs of a tag and a place in the file."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._layout = LAYOUTS[content[4]]
        self._order = {1: "<", 2: ">"}[content[5]]
        header = self._unpack(self._layout.header, 0)
        _, segments, sections, _, _, segment_size, count, section_size, section_count, _ = header
        self._sections = [(sections + number * section_size) for number in range(section_count)]
        loads, dynamic = [], None
        for number in range(count):
            fields = self._unpack(self._layout.segment, segments + number * segment_size)
            offset, address, size = (fields[place] for place in self._layout.segment_places)
            if fields[0] == LOAD:
                loads.append((address, size, offset))
            elif fields[0] == DYNAMIC:
                dynamic = (offset, size)
        entries = list(self._entries(*dynamic)) if dynamic else []
        tables = [value for tag, value in entries if tag == STRTAB]
        places = [value - address + offset for value in tables for address, size, offset in loads
                  if address <= value < address + size]  # fmt: skip
        self._table = places[0] if places else 0
        self.strings: List[Tuple[int, int]] = [
            (tag, self._table + value)
            for tag, value in entries
            if places and (tag in SEARCH or tag in LOADED)
        ]

    def text(self, start: int) -> bytes:
        """The string at a place; ValueError where it has no end."""
        return self._content[start : self._content.index(b"\0", start)]

    def shares(self, start: int, length: int) -> bool:
        """Whether another name is the end of the string there (linkers let names share bytes)."""
        names = {place for tag, place in self.strings if tag in LOADED} | set(self._symbol_names())
        return any(start < place < start + length for place in names)

    def _symbol_names(self) -> Iterator[int]:
        for place in self._sections:
            fields = self._unpack(self._layout.section, place)
            offset, size = (fields[index] for index in self._layout.section_places)
            if fields[1] == DYNSYM:
                for symbol in range(offset, offset + size, self._layout.symbol):
                    yield self._table + int(self._unpack("I", symbol)[0])

    def _entries(self, offset: int, size: int) -> Iterator[Tuple[int, int]]:
        step = struct.calcsize(self._order + self._layout.entry)
        for place in range(offset, offset + size, step):
            tag, value = self._unpack(self._layout.entry, place)
            if tag == 0:
                return
            yield tag, value

    def _unpack(self, form: str, place: int) -> Tuple[int, ...]:
        return struct.unpack_from(self._order + form, self._content, place)


def _relative(part: bytes, old: List[str], inside: str) -> bytes:
    for path in map(os.fsencode, old):
        if part == path or part.startswith(path + b"/"):
            target = part[len(path) :].strip(b"/") or b"."
            way = os.path.relpath(target, os.fsencode(os.path.dirname(inside) or "."))
            return b"$ORIGIN" if way == b"." else b"$ORIGIN/" + way
    return part
