"""Code for GPUs inside a library: CUDA's fat binaries, walked by the sizes in their headers.

Nothing is decompressed: kind, architecture, its suffix (``a``: of this architecture alone, ``f``: of its family)
and the compression are all in an entry's header. The layout is nowhere documented; it was found by comparing what
nvcc 13.0 writes, and what wheels built by 12.x and 13.x hold, with ``cuobjdump --list-elf --list-ptx``.
"""

from __future__ import annotations

import struct
from typing import Iterator, NamedTuple, Optional, Sequence, Tuple

from fleetctl.abi.layout import Section
from fleetctl.abi.source import Source

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
MAGIC = struct.pack("<I", 0xBA55ED50)
CONTAINER = struct.Struct("<IHHQ")
HEADER = struct.Struct("<HHIQ12xI8xQ16x")
MAX_HEADER = 65536
MAX_ENTRIES = 1 << 18

_KINDS = {1: "ptx", 2: "sass"}
_SUFFIXES = ((1 << 20, "a"), (1 << 21, "f"))
_COMPRESSED = (1 << 13) | (1 << 15)  # LZ4, zstd


class GpuCode(NamedTuple):
    """``kind`` is ``sass`` (machine code) or ``ptx``; ``arch`` like ``90a``, ``120`` or ``103f``.

    Machine code with ``f`` runs on its family (cuobjdump lists it as ``sm_103``).
    """

    kind: str
    arch: str
    compressed: bool

    def __str__(self) -> str:
        """``sass:90a``"""
        return f"{self.kind}:{self.arch}"


class Entry(NamedTuple):
    """One piece of code; ``code`` is None for a kind that is neither SASS nor PTX. ``offset``, ``size``: of all."""

    code: Optional[GpuCode]
    offset: int
    size: int


def gpu_codes(source: Source, sections: Sequence[Section]) -> Tuple[GpuCode, ...]:
    """Each kind of code in a file once, sorted; the whole file is searched where it has no section headers."""
    places = [(s.offset, s.offset + s.size) for s in sections if s.name in SECTIONS]
    if not sections:
        places = [(0, source.size)]
    found = set()
    done = count = 0
    for begin, end in sorted(places):
        for entry in entries(source, max(begin, done), end):
            count += 1
            if count > MAX_ENTRIES:
                raise source.error("too many pieces of GPU code")
            if entry.code:
                found.add(entry.code)
        done = max(done, end)
    return tuple(sorted(found, key=lambda code: (code.kind, int(code.arch.rstrip("af")), code)))


def entries(source: Source, begin: int, end: int) -> Iterator[Entry]:
    """The entries of all containers between two offsets, in order; :class:`AbiError` where one is cut."""
    if end > source.size:
        raise source.error("the section of GPU code is outside the file (truncated?)")
    at = _next(source, begin, end)
    while at >= 0:
        stop = container_end(source.read(at, CONTAINER.size, "a fat binary"), at)
        if stop is None:
            at = source.find(MAGIC, at + 1, end)
            continue
        if stop > end:
            raise source.error("a fat binary is longer than its section (truncated?)")
        at += CONTAINER.size
        while at < stop:
            entry = parse(source.read(at, min(HEADER.size, stop - at), "a fat binary"), at)
            if entry is None or entry.offset + entry.size > stop:
                raise source.error("a fat binary's entry is longer than its container")
            yield entry
            at += entry.size
        at = _next(source, stop, end)


def _next(source: Source, at: int, end: int) -> int:
    """Where the next container begins: here, after the padding to 8 bytes, or wherever its magic is; or -1."""
    at += -at % 8
    if at + CONTAINER.size > end:
        return -1
    if source.read(at, len(MAGIC), "a fat binary") == MAGIC:
        return at
    found = source.find(MAGIC, at, end)
    return found if found + CONTAINER.size <= end else -1


def container_end(head: bytes, offset: int) -> Optional[int]:
    """Where the container ends whose first 16 bytes are ``head``; None if none begins here."""
    magic, version, header, size = CONTAINER.unpack(head)
    if magic != 0xBA55ED50 or version != 1 or header != CONTAINER.size:
        return None
    return int(offset + header + size)


def parse(head: bytes, offset: int) -> Optional[Entry]:
    """The entry whose first bytes are ``head``, at ``offset``; None for what cannot be one."""
    if len(head) < HEADER.size:
        return None
    kind, _, header, payload, arch, flags = HEADER.unpack_from(head)
    if not HEADER.size <= header <= MAX_HEADER:
        return None
    name = _KINDS.get(kind)
    suffix = next((letter for bit, letter in _SUFFIXES if flags & bit), "")
    code = GpuCode(name, f"{arch}{suffix}", bool(flags & _COMPRESSED)) if name else None
    return Entry(code, offset, header + payload)
