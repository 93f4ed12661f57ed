"""Which of libstdc++'s two string ABIs a library was compiled for, told from its mangled names.

In the new one ``std::string`` is ``std::__cxx11::basic_string<…>`` and functions that return it carry the tag
``[abi:cxx11]``; in the old one its mangled name is ``Ss``.
"""

from __future__ import annotations

import re
from typing import Iterable, List, NamedTuple, Optional, Tuple

from fleetctl.abi.elf import Library

SHOWN = 5

_NEW = re.compile(r"7__cxx11|B5cxx11")
# what a digit or an S may belong to in a mangled name, besides an identifier's length and std::string
_OTHER = re.compile(r"L[a-z]n?\d+E|S[0-9A-Z]*_|T[0-9]*_|f[pL][0-9]*p?[0-9]*_|A\d+_|S[abiodt]|E\d*_")
_LENGTH = re.compile(r"\d+")


class Evidence(NamedTuple):
    """How many names speak for each ABI, and the first few of them."""

    new: int
    old: int
    new_names: Tuple[str, ...]
    old_names: Tuple[str, ...]


def cxx11(library: Library) -> Optional[bool]:
    """True for the new ABI, False for the old, None where no name tells; the majority where both are there."""
    found = evidence(library)
    return None if found.new == found.old else found.new > found.old


def evidence(library: Library) -> Evidence:
    """The names that tell: of what the library wants from others, else of what it gives."""
    for names in (library.undefined, library.weak | library.exported):
        found = _evidence(names)
        if found.new or found.old:
            return found
    return Evidence(0, 0, (), ())


def _evidence(names: Iterable[str]) -> Evidence:
    new: List[str] = []
    old: List[str] = []
    for name in names:
        if name.startswith("_Z"):
            if _NEW.search(name):
                new.append(name)
            elif "Ss" in name and _has_old_string(name):
                old.append(name)
    return Evidence(len(new), len(old), tuple(sorted(new)[:SHOWN]), tuple(sorted(old)[:SHOWN]))


def _has_old_string(name: str) -> bool:
    """Whether ``Ss`` is there outside of identifiers, which are written as their length and themselves."""
    at = 2
    while at < len(name):
        if name.startswith("Ss", at):
            return True
        other = _OTHER.match(name, at)
        length = _LENGTH.match(name, at)
        if other:
            at = other.end()
        elif length and len(length[0]) < 6:
            at = length.end() + int(length[0])
        else:
            at += 1
    return False
