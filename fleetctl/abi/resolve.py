"""What an extension wants that nobody gives: libraries, symbols, and versions of the system's libraries.

The dynamic linker's search is followed without loading anything: libraries that are already there (torch is
imported first, so its libraries are), RPATH and RUNPATH with ``$ORIGIN``, ``LD_LIBRARY_PATH``, the environment's own
folders (what packages load by hand before they import their extension), the system.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

from fleetctl.abi.cuda import cuda_major, is_driver
from fleetctl.abi.elf import Library, read_library
from fleetctl.abi.errors import AbiError
from fleetctl.abi.loader import System, expand

SHOWN = 20
PRELOADED = ("libtorch_global_deps.so", "libtorch_python.so", "libtorch.so")

_SYSTEMS = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")
_PYTHON = re.compile(r"_?Py[A-Z_]\w*")
_VERSION = re.compile(r"\.so[.\d]*$")


class MissingLibrary(NamedTuple):
    """A soname that nobody has; ``cuda`` is the major its name says, ``nearest`` the same library by another name."""

    soname: str
    wanted_by: str
    cuda: Optional[int]
    nearest: Optional[str]
    driver: bool

    def __str__(self) -> str:
        near = f", there is {Path(self.nearest).name}" if self.nearest else ""
        return f"wants {self.soname}{near}"


class MissingVersion(NamedTuple):
    """``GLIBC 2.38`` is wanted of ``library``, which goes up to ``given``."""

    prefix: str
    wanted: str
    given: str
    library: str


class Unresolved(NamedTuple):
    """All that one extension wants and nobody gives; empty (and false) where it would load.

    ``elsewhere`` says, of at most ``SHOWN`` of the ``symbols``, which library would have given it: one that nobody
    loads, mostly the same library in another version.
    """

    libraries: Tuple[MissingLibrary, ...] = ()
    symbols: Tuple[str, ...] = ()
    versions: Tuple[MissingVersion, ...] = ()
    elsewhere: Mapping[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.libraries or self.symbols or self.versions)


class _Found(NamedTuple):
    library: Library
    ancestors: Tuple[Library, ...]


class Providers:
    """Who can give something to the extensions of one environment; each file is read once.

    ``site_packages`` are its folders. ``interpreter`` is the Python that loads the extensions: without one (a wheel
    is judged by itself) Python's own symbols count as given. ``preloaded`` are paths of libraries that are loaded
    before any extension, by default torch's.
    """

    def __init__(
        self,
        site_packages: Sequence[str] = (),
        *,
        interpreter: Optional[str] = None,
        preloaded: Optional[Sequence[str]] = None,
        library_path: Sequence[str] = (),
        system: Optional[System] = None,
    ) -> None:
        self.system = system or System()
        self._library_path = list(library_path)
        self._read: Dict[str, Optional[Library]] = {}
        self._own = _own_libraries(site_packages)
        self.has_interpreter = interpreter is not None
        self.loaded: Dict[str, Library] = {}
        first = [interpreter] if interpreter else []
        for path in [*first, *(_torch(site_packages) if preloaded is None else preloaded)]:
            self._load(str(Path(path).resolve()) if path == interpreter else path)

    def read(self, path: str) -> Optional[Library]:
        """A library by its path; None for what is not there or cannot be read."""
        if path not in self._read:
            try:
                self._read[path] = read_library(path, gpu=False) if Path(path).is_file() else None
            except AbiError:
                self._read[path] = None
        return self._read[path]

    def find(self, name: str, owner: Library, ancestors: Sequence[Library] = ()) -> Optional[Library]:
        """The library that a NEEDED ``name`` of ``owner`` means; ``ancestors`` are those that loaded ``owner``."""
        if name in self.loaded:
            return self.loaded[name]
        for path in self._candidates(name, owner, ancestors):
            library = self.read(path)
            if library is not None and library.machine == owner.machine:
                return library
        return None

    def closure(self, first: Library) -> Tuple[List[Library], List[MissingLibrary]]:
        """All that loading ``first`` loads, breadth first, and what is missing for it."""
        found: List[Library] = []
        missing: List[MissingLibrary] = []
        seen = {first.path}
        queue = [_Found(first, ())]
        while queue:
            owner, ancestors = queue.pop(0)
            found.append(owner)
            for name in owner.needed:
                library = self.find(name, owner, ancestors)
                if library is None:
                    missing.append(self._missing(name, owner))
                elif library.path not in seen:
                    seen.add(library.path)
                    queue.append(_Found(library, (*ancestors, owner)))
        return found, _once(missing)

    def nearest(self, soname: str) -> List[str]:
        """Paths of the same library under other names: ``libcudart.so.12`` for ``libcudart.so.13``, newest first."""
        stem = _VERSION.sub("", soname)
        own = [path for name, paths in self._own.items() if _VERSION.sub("", name) == stem for path in paths]
        names = [name for name in self.system.names() if _VERSION.sub("", name) == stem]
        return sorted(own, reverse=True) + [path for name in sorted(names) for path in self.system.find(name)]

    def _candidates(self, name: str, owner: Library, ancestors: Sequence[Library]) -> Iterator[str]:
        if "/" in name:
            yield name
            return
        folders: List[str] = []
        if not owner.runpath:
            for library in (owner, *reversed(ancestors)):
                if not library.runpath:
                    folders += expand(library.rpath, library.path, library.machine)
        folders += self._library_path
        folders += expand(owner.runpath, owner.path, owner.machine)
        yield from (f"{folder}/{name}" for folder in folders)
        yield from self._own.get(name, ())
        yield from self.system.find(name)

    def _load(self, path: str) -> None:
        library = self.read(path)
        if library is not None:
            for other in self.closure(library)[0]:
                self.loaded.setdefault(other.soname or Path(other.path).name, other)

    def _missing(self, name: str, owner: Library) -> MissingLibrary:
        near = self.nearest(name)
        return MissingLibrary(name, owner.path, cuda_major(name), near[0] if near else None, is_driver(name))


def unresolved(extension: Union[str, Library], providers: Providers) -> Unresolved:
    """What an extension wants and nobody gives; :class:`AbiError` where the extension cannot be read."""
    library = read_library(extension, gpu=False) if isinstance(extension, str) else extension
    found, missing = providers.closure(library)
    givers = [*found, *providers.loaded.values()]
    open_symbols: Set[str] = set(library.undefined)
    for giver in givers:
        open_symbols -= giver.exported
    if not providers.has_interpreter:
        open_symbols = {name for name in open_symbols if not _PYTHON.fullmatch(name)}
    symbols = tuple(sorted(open_symbols))
    return Unresolved(
        tuple(missing),
        symbols,
        tuple(_versions(library, givers)),
        _elsewhere(symbols[:SHOWN], missing, providers),
    )


def _versions(library: Library, givers: Sequence[Library]) -> Iterator[MissingVersion]:
    """Versions wanted of the system's libraries that are higher than the highest one given."""
    for prefix in _SYSTEMS:
        wanted = library.requires.get(prefix)
        given = [(giver.provides[prefix], giver.path) for giver in givers if prefix in giver.provides]
        if wanted and given:
            best, path = max(given, key=lambda pair: _numbers(pair[0]))
            if _numbers(best) < _numbers(wanted):
                yield MissingVersion(prefix, wanted, best, path)


def _elsewhere(
    symbols: Sequence[str], missing: Sequence[MissingLibrary], providers: Providers
) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for absent in missing:
        for path in providers.nearest(absent.soname):
            library = providers.read(path)
            if library is not None:
                found.update(
                    {name: path for name in symbols if name in library.exported and name not in found}
                )
    return found


def _own_libraries(site_packages: Sequence[str]) -> Dict[str, List[str]]:
    """The environment's libraries by file name: those of nvidia's packages, torch's, what wheels bundle, and what a
    package has loaded from its ``_C`` before its plugins (triton's 3.7 want libtriton.so, and name no folder of it)."""
    found: Dict[str, List[str]] = {}
    for site in site_packages:
        for folder in _own_folders(site):
            for name in _list(folder):
                if ".so" in name:
                    found.setdefault(name, []).append(f"{folder}/{name}")
    return found


def _own_folders(site: str) -> Iterator[str]:
    for name in _list(site):
        path = f"{site}/{name}"
        if name.endswith(".libs") or name == "lib":
            yield path
        elif name == "nvidia":
            yield from (f"{path}/{part}/lib" for part in _list(path))
        elif not name.endswith(("-info", ".py", ".pth")):
            yield from (f"{path}/{part}" for part in ("lib", "lib64", ".libs", "_C"))


def _list(folder: str) -> List[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return []


def _torch(site_packages: Sequence[str]) -> List[str]:
    return [f"{site}/torch/lib/{name}" for site in site_packages for name in PRELOADED]


def _once(missing: List[MissingLibrary]) -> List[MissingLibrary]:
    return list({library.soname: library for library in reversed(missing)}.values())[::-1]


def _numbers(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
