"""The dynamic symbol table, read raw: hundreds of thousands of symbols in a fraction of a second."""

from __future__ import annotations

import struct
from typing import FrozenSet, List, NamedTuple, Optional

from fleetctl.abi.layout import MAX_NAME, Layout

_ENTRY = {True: ("IBBH16x", 24), False: ("I8xBBH", 16)}
MAX_SYMBOLS = 1 << 23
MAX_CHAIN = 1 << 16

_GLOBAL, _WEAK, _UNIQUE = 1, 2, 10
_HIDDEN = (1, 2)
_CUT = "the symbol table"


class Symbols(NamedTuple):
    """Names, without versions: strong wishes, weak wishes, and what others may use."""

    undefined: FrozenSet[str]
    weak: FrozenSet[str]
    exported: FrozenSet[str]


NONE = Symbols(frozenset(), frozenset(), frozenset())


def read_symbols(layout: Layout) -> Symbols:
    """All dynamic symbols of a file; :class:`AbiError` where the tables are cut or point outside."""
    address = layout.one("DT_SYMTAB")
    if address is None:
        return NONE
    offset = layout.offset(address, _CUT)
    form, size = _ENTRY[layout.wide]
    table = layout.source.read(offset, size * _count(layout, offset, size), _CUT)
    names = layout.names()
    budget = 4 * len(names) + MAX_NAME
    undefined: List[bytes] = []
    weak: List[bytes] = []
    exported: List[bytes] = []
    for at, info, other, section in struct.iter_unpack(layout.order + form, table):
        bind = info >> 4
        if not at or bind not in (_GLOBAL, _WEAK, _UNIQUE):
            continue
        end = names.find(b"\0", at, at + MAX_NAME)
        if end < 0:
            raise layout.source.error("a symbol's name is outside the table of names or does not end")
        budget -= end - at
        if budget < 0:
            raise layout.source.error("the symbols' names overlap without end")
        if section:
            if other & 3 not in _HIDDEN:
                exported.append(names[at:end])
        elif bind == _WEAK:
            weak.append(names[at:end])
        else:
            undefined.append(names[at:end])
    return Symbols(_texts(undefined), _texts(weak), _texts(exported))


def _texts(names: List[bytes]) -> FrozenSet[str]:
    return frozenset([name.decode("utf-8", "surrogateescape") for name in names])


def _count(layout: Layout, offset: int, size: int) -> int:
    """How many symbols there are: no field says it, so the best witness of four."""
    room = (layout.source.size - offset) // size
    for witness in (_by_section, _by_hash, _by_gnu_hash, _by_names):
        count = witness(layout, offset, size)
        if count is not None:
            if count > min(room, MAX_SYMBOLS):
                raise layout.source.error(f"{_CUT} is outside the file (truncated?) or too large")
            return count
    raise layout.source.error(f"{_CUT} has no end")


def _by_section(layout: Layout, offset: int, size: int) -> Optional[int]:
    for section in layout.sections():
        if section.offset == offset and section.name == ".dynsym":
            return section.size // size
    return None


def _by_hash(layout: Layout, offset: int, size: int) -> Optional[int]:
    address = layout.one("DT_HASH")
    if address is None or layout.machine in ("s390x", "alpha"):  # 64-bit words there
        return None
    data = layout.source.read(layout.offset(address, "the hash table"), 8, "the hash table")
    return int(struct.unpack(layout.order + "II", data)[1])


def _by_gnu_hash(layout: Layout, offset: int, size: int) -> Optional[int]:
    """The last symbol of the last chain; None where the table is empty, since it leaves out what is undefined."""
    address = layout.one("DT_GNU_HASH")
    if address is None:
        return None
    source, what = layout.source, "the hash table"
    at = layout.offset(address, what)
    buckets, first, bloom = struct.unpack(layout.order + "III", source.read(at, 12, what))
    if buckets > MAX_SYMBOLS:
        raise source.error(f"{what} is too large")
    at += 16 + bloom * (8 if layout.wide else 4)
    chains = at + 4 * buckets
    words = struct.iter_unpack(layout.order + "I", source.read(at, 4 * buckets, what))
    last = max((word for (word,) in words), default=0)
    if last < first or last == 0:
        return None
    for _ in range(MAX_CHAIN):
        (word,) = struct.unpack(layout.order + "I", source.read(chains + 4 * (last - first), 4, what))
        last += 1
        if word & 1:
            return int(last)
    return None


def _by_names(layout: Layout, offset: int, size: int) -> Optional[int]:
    """Linkers put the names right behind the symbols."""
    address, begin = layout.one("DT_STRTAB"), layout.one("DT_SYMTAB")
    if address is None or begin is None or address <= begin:
        return None
    return (address - begin) // size
