"""One compiled library: what it is called, wants, gives, and for which GPUs it holds code."""

from __future__ import annotations

import os
from typing import FrozenSet, Mapping, NamedTuple, Optional, Tuple, Union

from fleetctl.abi.errors import AbiError
from fleetctl.abi.fatbin import GpuCode, gpu_codes
from fleetctl.abi.layout import Layout
from fleetctl.abi.source import File, Source, opened
from fleetctl.abi.symbols import NONE, read_symbols


class Library(NamedTuple):
    """What the dynamic linker sees of a file. ``path`` as given; names of symbols without their versions.

    ``undefined`` are the strong wishes, ``weak`` those that may stay open; ``requires`` is the highest version
    wanted by prefix (``{"GLIBC": "2.34", "GLIBCXX": "3.4.29"}``), ``provides`` the highest version given (of libc and
    libstdc++ themselves); ``gpu`` holds each kind of code once.
    """

    path: str
    soname: Optional[str] = None
    needed: Tuple[str, ...] = ()
    rpath: Tuple[str, ...] = ()
    runpath: Tuple[str, ...] = ()
    machine: str = ""
    undefined: FrozenSet[str] = frozenset()
    weak: FrozenSet[str] = frozenset()
    exported: FrozenSet[str] = frozenset()
    requires: Mapping[str, str] = {}
    provides: Mapping[str, str] = {}
    gpu: Tuple[GpuCode, ...] = ()


def read_library(file: Union[File, Source], *, symbols: bool = True, gpu: bool = True) -> Library:
    """Read a library from a path, an open seekable file or a :class:`Source`.

    Without ``symbols`` the symbol tables are left alone (``undefined``, ``weak``, ``exported`` are empty), without
    ``gpu`` the fat binaries are. Raises :class:`AbiError` for what is not ELF, is cut, or contradicts itself.
    """
    if isinstance(file, Source):
        return _read(file, symbols, gpu)
    with opened(file) as source:
        return _read(source, symbols, gpu)


def is_elf(path: Union[str, "os.PathLike[str]"]) -> bool:
    """Whether a file begins as ELF files do; False for what cannot be read."""
    try:
        with opened(path) as source:
            return source.size >= 4 and source.read(0, 4, "the magic") == b"\x7fELF"
    except AbiError:
        return False


def _read(source: Source, symbols: bool, gpu: bool) -> Library:
    layout = Layout(source)
    table = read_symbols(layout) if symbols else NONE
    sonames = layout.texts("DT_SONAME")
    return Library(
        path=source.name,
        soname=sonames[0] if sonames else None,
        needed=layout.texts("DT_NEEDED"),
        rpath=_folders(layout.texts("DT_RPATH")),
        runpath=_folders(layout.texts("DT_RUNPATH")),
        machine=layout.machine,
        undefined=table.undefined,
        weak=table.weak,
        exported=table.exported,
        requires=layout.wanted_versions(),
        provides=layout.given_versions(),
        gpu=gpu_codes(source, layout.sections()) if gpu else (),
    )


def _folders(paths: Tuple[str, ...]) -> Tuple[str, ...]:
    return tuple(folder for path in paths for folder in path.split(":") if folder)
