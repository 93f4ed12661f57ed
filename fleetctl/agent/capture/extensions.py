"""The compiled libraries of an environment: what each wants, who gives it, and the ABI that all of them make."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from fleetctl.abi import cuda
from fleetctl.abi.cxx import cxx11
from fleetctl.abi.elf import Library, is_elf, read_library
from fleetctl.abi.errors import AbiError
from fleetctl.abi.loader import System
from fleetctl.abi.resolve import Providers, Unresolved, unresolved
from fleetctl.abi.tag import abi_tag
from fleetctl.agent.capture.tree import Tree, shown
from fleetctl.agent.files import read_start

Json = Dict[str, Any]

SYMBOLS = 20
LIBRARY_NAME = re.compile(r"\.so(?:\.\d+)*$")
EXTENSION_TAG = re.compile(
    r"\.(?:(?P<stable>abi3)|(?P<kind>cpython|pypy)-?(?P<version>\d{2,3}t?))(?:-[^.]*)?\.so$"
)
SHORT = {"cpython": "cp", "pypy": "pp"}
TORCH_VERSION = re.compile(r"^__version__\s*(?::\s*\w+\s*)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)
TORCH_CUDA = re.compile(r"^cuda\s*(?::[^=\n]*)?=\s*['\"](\d+\.\d+)['\"]", re.MULTILINE)


class Judged(NamedTuple):
    """One library: its entry of the BOM, and the CUDA majors that it wants or is."""

    entry: Json
    cuda: FrozenSet[int]


class _WithGpu(Providers):
    """Reads each library once, its GPU code too."""

    def read(self, path: str) -> Optional[Library]:
        if path not in self._read:
            try:
                self._read[path] = read_library(path) if is_elf(path) else None
            except AbiError:
                self._read[path] = None
        return self._read[path]


class Extensions:
    """Reads every library under an environment's root, once.

    ``sites`` are site-packages folders on this host, also those that are inherited; ``interpreter`` is the Python
    that loads the extensions, None where it is not there.
    """

    def __init__(self, tree: Tree, sites: Sequence[str], interpreter: Optional[str]) -> None:
        self.tree = tree
        self.paths = [
            path for path, file in tree.files.items() if LIBRARY_NAME.search(path) and not file.link
        ]
        self._sites = sites
        self._interpreter = interpreter

    @cached_property
    def _providers(self) -> Providers:
        """Reads the interpreter and all that it loads, so only where there is a library to judge."""
        return _WithGpu(self._sites, interpreter=self._interpreter, system=System())

    def read(self, owners: Mapping[str, str], step: Callable[[int], None]) -> List[Judged]:
        """Each library, sorted by path; ``owners`` is the distribution by path; ``step`` is told how many are done."""
        found = []
        for number, path in enumerate(sorted(self.paths)):
            if is_elf(self.tree.absolute(path)):
                found.append(self._one(path, owners.get(path)))
            step(number)
        return found

    def abi(
        self, judged: Sequence[Judged], tag: Optional[str], glibc: Optional[str], torch: Optional[str]
    ) -> Json:
        """The BOM's ``abi``; ``torch`` is the version of its distribution."""
        said, toolkit = self._torch_version()
        torch = said if torch is not None and said is not None else torch
        by_major: Dict[str, List[str]] = {}
        for one in judged:
            for major in sorted(one.cuda):
                by_major.setdefault(str(major), []).append(one.entry["path"])
        ours = [one.entry for one in judged if one.entry["distribution"] == "torch"]
        string_abi = _majority(ours) if ours else _majority([one.entry for one in judged])
        gpus = {code[len("sass:") :] for entry in ours for code in entry["gpu"] if code.startswith("sass:")}
        made = abi_tag(tag, torch, toolkit, string_abi, glibc, gpus)
        return {"tag": str(made) or None, "torch": torch, "cuda": by_major, "cxx11": string_abi}

    def _one(self, path: str, owner: Optional[str]) -> Judged:
        entry = _entry(path, owner)
        place = self.tree.absolute(path)
        try:
            library = self._providers.read(place) or read_library(place)
            lacking = unresolved(library, self._providers)
        except AbiError as error:
            entry["error"] = error.what
            return Judged(entry, frozenset())
        majors = cuda.wanted(library) or cuda.majors([library.soname or path.rpartition("/")[2]])
        entry.update(_said(library, lacking))
        entry["gpu"] = sorted({str(code) for code in library.gpu})
        entry["cuda"] = max(majors, default=None)
        return Judged(entry, majors)

    def _torch_version(self) -> "tuple[Optional[str], Optional[str]]":
        """torch's own version and its CUDA's, as the text of ``torch/version.py`` says: wheels of an index have
        no local part in their names.
        """
        for site in self._sites:
            try:
                text = read_start(f"{site}/torch/version.py", 1 << 16).decode("utf-8", "replace")
            except OSError:
                continue
            version, toolkit = TORCH_VERSION.search(text), TORCH_CUDA.search(text)
            return version.group(1) if version else None, toolkit.group(1) if toolkit else None
        return None, None


def extension_tag(path: str) -> Optional[str]:
    """``cp312`` or ``abi3`` of an extension module's file name; None of any other library."""
    match = EXTENSION_TAG.search(path)
    if match is None:
        return None
    return "abi3" if match.group("stable") else SHORT[match.group("kind")] + match.group("version")


def _entry(path: str, owner: Optional[str]) -> Json:
    return {
        "path": shown(path),
        "distribution": owner,
        "soname": None,
        "needed": [],
        "rpath": [],
        "tag": extension_tag(path),
        "machine": None,
        "glibc": None,
        "glibcxx": None,
        "cxx11": None,
        "cuda": None,
        "gpu": [],
        "missing": [],
        "undefined": [],
        "undefined_count": 0,
        "versions": [],
        "error": "",
    }


def _said(library: Library, lacking: Unresolved) -> Json:
    """What a library says of itself. Symbols that nothing gives because a library is missing count too."""
    return {
        "soname": shown(library.soname) if library.soname else None,
        "needed": _shown(library.needed),
        "rpath": _shown(library.rpath + library.runpath),
        "machine": library.machine,
        "glibc": library.requires.get("GLIBC"),
        "glibcxx": library.requires.get("GLIBCXX"),
        "cxx11": cxx11(library),
        "missing": _shown(one.soname for one in lacking.libraries),
        "undefined": _shown(lacking.symbols[:SYMBOLS]),
        "undefined_count": len(lacking.symbols),
        "versions": [f"{one.prefix} {one.wanted}, there is {one.given}" for one in lacking.versions],
    }


def _shown(names: Iterable[str]) -> List[str]:
    return [shown(name) for name in names]


def _majority(entries: Sequence[Json]) -> Optional[bool]:
    """The string ABI of most libraries that say one."""
    new = sum(entry["cxx11"] is True for entry in entries)
    old = sum(entry["cxx11"] is False for entry in entries)
    return None if new == old == 0 else new >= old


def owners_of(distributions: Iterable[Any]) -> Dict[str, str]:
    """The distribution's name by each library's path."""
    return {
        path: one.name for one in distributions for path in one.owned if LIBRARY_NAME.search(path) is not None
    }
