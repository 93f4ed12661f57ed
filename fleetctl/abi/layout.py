"""An ELF file's skeleton: header, segments, sections, the dynamic segment and the versions it wants.

The records are pyelftools'; the walks over them are here, bounded by the file's size and by limits far above
what linkers write.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from fleetctl.abi.source import Source

MAX_SEGMENTS = 4096
MAX_SECTIONS = 16384
MAX_TAGS = 4096
MAX_VERSIONS = 8192
MAX_NAME = 65536
MAX_TEXT = 4 << 20
MAX_NAMES = 256 << 20
MAX_SECTION_NAMES = 16 << 20

_WEAK = 0x2
_VERSION = re.compile(r"([A-Za-z]\w*?)_(\d+(?:\.\d+)*)")


class Section(NamedTuple):
    """A section that has bytes in the file."""

    name: str
    offset: int
    size: int


class Layout:
    """The skeleton of one ELF file; :class:`AbiError` where it is not one or is cut."""

    def __init__(self, source: Source) -> None:
        self.source = source
        ident = source.read(0, 16, "the ELF header") if source.size >= 16 else b""
        if ident[:4] != b"\x7fELF" or ident[4] not in (1, 2) or ident[5] not in (1, 2):
            raise source.error("not an ELF file")
        self.wide = ident[4] == 2
        self.order = "<" if ident[5] == 1 else ">"
        self._structs = _structs(self.order == "<", 64 if self.wide else 32)
        self.header = self._parse(self._structs.Elf_Ehdr, 0, "the ELF header")
        self._segments = self._table("e_phoff", "e_phentsize", self._count_segments(), self._structs.Elf_Phdr)
        self.dynamic: Dict[Any, List[int]] = self._dynamic()
        self._names = self._name_table()
        self._text_left = MAX_TEXT

    @property
    def machine(self) -> str:
        """``x86_64``, ``aarch64``, …: the kernel's word for it where there is one."""
        machine = self.header.e_machine
        name = machine[3:].lower() if isinstance(machine, str) else f"machine-{machine}"
        if name == "ppc64" and self.order == "<":
            return "ppc64le"
        return {"386": "i686", "s390": "s390x" if self.wide else "s390"}.get(name, name)

    def one(self, tag: str) -> Optional[int]:
        """The value of a dynamic tag, or None."""
        values = self.dynamic.get(tag)
        return values[0] if values else None

    def texts(self, tag: str) -> Tuple[str, ...]:
        """The strings that a dynamic tag names, in the file's order."""
        return tuple(self._string(offset) for offset in self.dynamic.get(tag, ()))

    def offset(self, address: int, what: str) -> int:
        """Where in the file the loaded address is."""
        for segment in self._segments:
            if segment.p_type == "PT_LOAD" and 0 <= address - segment.p_vaddr < segment.p_filesz:
                return int(segment.p_offset + address - segment.p_vaddr)
        raise self.source.error(f"{what} is in no segment of the file")

    def names(self) -> bytes:
        """The whole table of dynamic names."""
        return self.source.read(*self._names, "the table of names")

    def sections(self) -> List[Section]:
        """The sections with bytes in the file; empty where the section headers were stripped."""
        raw = self._raw_sections()
        index = self._index_of_names(raw)
        if index >= len(raw):
            return []
        table = raw[index]
        if table.sh_size > MAX_SECTION_NAMES:
            raise self.source.error("the sections' names are too long")
        names = self.source.read(table.sh_offset, table.sh_size, "the sections' names")
        return [
            Section(_text(names, section.sh_name), section.sh_offset, section.sh_size)
            for section in raw
            if section.sh_type not in ("SHT_NULL", "SHT_NOBITS")
        ]

    def wanted_versions(self) -> Dict[str, str]:
        """The highest version wanted of each prefix: ``{"GLIBC": "2.34"}``; weak wishes are left out."""
        return self._highest(self._wanted_names())

    @staticmethod
    def _highest(names: List[str]) -> Dict[str, str]:
        highest: Dict[str, Tuple[int, ...]] = {}
        for name in names:
            match = _VERSION.fullmatch(name)
            if match:
                version = tuple(int(part) for part in match[2].split("."))
                highest[match[1]] = max(version, highest.get(match[1], ()))
        return {prefix: ".".join(map(str, version)) for prefix, version in sorted(highest.items())}

    def given_versions(self) -> Dict[str, str]:
        """The highest version defined of each prefix: of libstdc++ ``{"GLIBCXX": "3.4.33", "CXXABI": "1.3.15"}``."""
        return self._highest(self._given_names())

    def _given_names(self) -> List[str]:
        address, count = self.one("DT_VERDEF"), self.one("DT_VERDEFNUM")
        found: List[str] = []
        if address is None or not count:
            return found
        at = self.offset(address, "the list of versions")
        for _ in range(min(count, MAX_VERSIONS)):
            version = self._parse(self._structs.Elf_Verdef, at, "the list of versions")
            name = self._parse(self._structs.Elf_Verdaux, at + version.vd_aux, "the list of versions")
            found.append(self._string(name.vda_name))
            if not version.vd_next:
                break
            at += version.vd_next
        return found

    def _wanted_names(self) -> List[str]:
        address, count = self.one("DT_VERNEED"), self.one("DT_VERNEEDNUM")
        found: List[str] = []
        if address is None or not count:
            return found
        at, left = self.offset(address, "the list of versions"), MAX_VERSIONS
        for _ in range(min(count, MAX_VERSIONS)):
            need = self._parse(self._structs.Elf_Verneed, at, "the list of versions")
            wanted = at + need.vn_aux
            for _ in range(need.vn_cnt):
                left -= 1
                if left < 0:
                    raise self.source.error("the list of versions does not end")
                version = self._parse(self._structs.Elf_Vernaux, wanted, "the list of versions")
                if not version.vna_flags & _WEAK:
                    found.append(self._string(version.vna_name))
                if not version.vna_next:
                    break
                wanted += version.vna_next
            if not need.vn_next:
                break
            at += need.vn_next
        return found

    def _dynamic(self) -> Dict[Any, List[int]]:
        """Tags to values of the dynamic segment; of the section where there are no segments."""
        size = self._structs.Elf_Dyn.sizeof()
        offset, room = self._place_of_dynamic()
        if room // size > MAX_TAGS:
            raise self.source.error("the dynamic segment is too large")
        found: Dict[Any, List[int]] = {}
        data = self.source.read(offset, room // size * size, "the dynamic segment")
        for at in range(0, len(data), size):
            entry = self._structs.Elf_Dyn.parse(data[at : at + size])
            if entry.d_tag == "DT_NULL":
                break
            found.setdefault(entry.d_tag, []).append(entry.d_val)
        return found

    def _place_of_dynamic(self) -> Tuple[int, int]:
        for segment in self._segments:
            if segment.p_type == "PT_DYNAMIC":
                return segment.p_offset, segment.p_filesz
        return 0, 0

    def _name_table(self) -> Tuple[int, int]:
        address, size = self.one("DT_STRTAB"), self.one("DT_STRSZ")
        if address is None or not size:
            return 0, 0
        offset = self.offset(address, "the table of names")
        if offset + size > self.source.size or size > MAX_NAMES:
            raise self.source.error("the table of names is outside the file (truncated?) or too large")
        return offset, size

    def _string(self, at: int) -> str:
        """One name out of the table, without reading the table whole."""
        begin, size = self._names
        if at >= size:
            raise self.source.error("a name is outside the table of names")
        for length in (256, MAX_NAME):
            data = self.source.read(begin + at, min(length, size - at), "the table of names")
            end = data.find(b"\0")
            if end >= 0:
                self._text_left -= end
                if self._text_left < 0:
                    raise self.source.error("the names are too long together")
                return data[:end].decode("utf-8", "surrogateescape")
        raise self.source.error("a name does not end")

    def _count_segments(self) -> int:
        count = int(self.header.e_phnum)
        if count > MAX_SEGMENTS:
            raise self.source.error(f"{count} segments are too many")
        return count

    def _raw_sections(self) -> List[Any]:
        if not self.header.e_shoff:
            return []
        count = int(self.header.e_shnum)
        if count == 0:  # more than 0xff00: the first section's header tells
            first = self._table("e_shoff", "e_shentsize", 1, self._structs.Elf_Shdr)
            count = int(first[0].sh_size)
        if count > MAX_SECTIONS:
            raise self.source.error(f"{count} sections are too many")
        return self._table("e_shoff", "e_shentsize", count, self._structs.Elf_Shdr)

    def _index_of_names(self, raw: List[Any]) -> int:
        index = int(self.header.e_shstrndx)
        return int(raw[0].sh_link) if index == 0xFFFF and raw else index

    def _table(self, where: str, stride: str, count: int, record: Any) -> List[Any]:
        """``count`` records, as the header's fields say."""
        step = int(self.header[stride])
        if count and step < record.sizeof():
            raise self.source.error(f"{stride} is {step}, too small")
        if not count:
            return []
        data = self.source.read(self.header[where], step * count, "a table of headers")
        return [record.parse(data[at : at + record.sizeof()]) for at in range(0, step * count, step)]

    def _parse(self, record: Any, offset: int, what: str) -> Any:
        return record.parse(self.source.read(offset, record.sizeof(), what))


def _text(names: bytes, at: int) -> str:
    end = names.find(b"\0", at, at + 256)
    return names[at : end if end >= 0 else at].decode("ascii", "replace")


@lru_cache(maxsize=None)
def _structs(little: bool, width: int) -> Any:
    """The records used here; ``create_advanced_structs`` makes them all, and some fail on Python 3.9."""
    from elftools.elf.structs import ELFStructs

    structs = ELFStructs(little_endian=little, elfclass=width)
    structs.create_basic_structs()
    structs._create_phdr()
    structs._create_shdr()
    structs._create_dyn()
    structs._create_gnu_verneed()
    structs._create_gnu_verdef()
    return structs
