"""A bill of materials, asked by name: what compare and overlay want to know of it. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from fleetctl.environment import gpucode
from fleetctl.environment.closure import Distribution, Unmet, unmet_requirements
from fleetctl.environment.platform import HostPlatform
from fleetctl.environment.stacks import cuda_major, cuda_tag, is_torch_library

Entry = Mapping[str, Any]
SPECIFICATION = "specification"
COPIED = "unowned "
_OF_THE_FILE = ("soname", "needed", "tag", "machine", "glibc", "glibcxx", "cxx11", "cuda", "gpu")


class View:
    """One BOM. ``distributions`` by canonical name; of a name that is there twice, the newest entry."""

    def __init__(self, bom: Entry) -> None:
        self.bom = bom
        self.kind: str = bom["kind"]
        self.path: str = bom["path"]
        self.hostname: str = bom.get("hostname", "")
        self.extensions: list[Entry] = list(bom.get("extensions", []))

    @property
    def is_specification(self) -> bool:
        """Whether it is what somebody wants, not what somebody found."""
        return self.kind == SPECIFICATION

    @property
    def label(self) -> str:
        """``ct129:/root/ml-env``"""
        return f"{self.hostname}:{self.path}" if self.hostname else self.path

    @cached_property
    def distributions(self) -> dict[str, Entry]:
        """Each distribution's entry of the BOM."""
        return {entry["name"]: entry for entry in self.bom["distributions"]}

    @cached_property
    def versions(self) -> dict[str, str]:
        """Each distribution's version."""
        return {name: entry["version"] for name, entry in self.distributions.items()}

    @cached_property
    def by_owner(self) -> dict[str, list[Entry]]:
        """Extensions by the distribution that owns them; ``"unowned NAME"`` where none does."""
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.extensions:
            found[self.owner(entry)].append(entry)
        return dict(found)

    def owner(self, extension: Entry) -> str:
        """The distribution that RECORD says, or by its package's name, or ``"unowned PACKAGE"``."""
        if extension["distribution"]:
            return str(extension["distribution"])
        package = self.inside(extension["path"]).split("/")[0].split(".")[0]
        named = (name for name, entry in self.distributions.items() if package in entry.get("imports", ()))
        return next(named, COPIED + package)

    def inside(self, path: str) -> str:
        """``path`` relative to site-packages, where it is in there."""
        for folder in self.bom.get("site_packages", []):
            if path.startswith(f"{folder}/"):
                return path.removeprefix(f"{folder}/")
        return path

    @cached_property
    def sonames(self) -> dict[str, str]:
        """Which distribution gives a shared library, by the library's soname and by its file's name."""
        given: dict[str, str] = {}
        for entry in self.extensions:
            for name in (entry.get("soname"), PurePosixPath(entry["path"]).name):
                if name:
                    given.setdefault(name, self.owner(entry))
        return given

    @property
    def patch_sets(self) -> list[str]:
        """The patch sets that fleetctl put into it, in their order; of a BOM that does not say, none."""
        patches = (self.bom.get("made") or {}).get("patches") or ()
        return [str(one.get("name")) for one in patches if isinstance(one, Mapping)]

    @property
    def torch(self) -> str | None:
        """torch's version, local part included."""
        return self.versions.get("torch") or self.bom.get("abi", {}).get("torch")

    @property
    def cuda_tag(self) -> str | None:
        """``cu130``, where torch's version says so."""
        return cuda_tag(self.torch)

    @cached_property
    def cuda(self) -> int | None:
        """The CUDA major of torch: by its version, else by what its libraries want."""
        said = cuda_major("torch", self.torch or "")
        majors = self.majors("torch")
        return said if said or len(majors) != 1 else majors.pop()

    def majors(self, owner: str) -> set[int]:
        """The CUDA majors that a distribution's libraries want."""
        return {entry["cuda"] for entry in self.by_owner.get(owner, []) if entry.get("cuda")}

    def wrong_majors(self, major: int | None) -> dict[str, set[int]]:
        """Owners whose libraries want a CUDA major other than ``major``."""
        if major is None:
            return {}
        wanted = {owner: self.majors(owner) - {major} for owner in self.by_owner}
        return {owner: majors for owner, majors in wanted.items() if majors}

    def needs_torch(self, owner: str) -> bool:
        """Whether a library of ``owner`` is linked against libtorch or libc10."""
        return any(
            is_torch_library(name) for entry in self.by_owner.get(owner, []) for name in entry["needed"]
        )

    def libraries(self, owner: str) -> dict[str, tuple[Any, ...]]:
        """A distribution's libraries by path, with what is of the files themselves and not of what is around them."""
        return {
            self.inside(entry["path"]): tuple(str(entry.get(key)) for key in _OF_THE_FILE)
            for entry in self.by_owner.get(owner, [])
        }

    def floor(self, owner: str, library: str) -> tuple[int, ...]:
        """The newest ``glibc`` or ``glibcxx`` that a distribution's libraries want; ``()`` for none."""
        return max((numbers(entry.get(library)) for entry in self.by_owner.get(owner, [])), default=())

    def platform(self, library: str) -> tuple[int, ...]:
        """The host's ``glibc`` or ``glibcxx``; ``()`` where it is not known."""
        return numbers(self.bom.get("platform", {}).get(library))

    @property
    def arch(self) -> str:
        """``x86_64``"""
        return str(self.bom.get("platform", {}).get("arch", ""))

    @property
    def tag(self) -> str:
        """The Python tag: ``cp312``."""
        return str(self.bom["python"].get("tag") or "")

    def gpu(self, owner: str) -> set[str]:
        """The GPU code of a distribution's libraries: ``sass:90a``, ``ptx:120``."""
        return {code for entry in self.by_owner.get(owner, []) for code in entry.get("gpu", ())}

    @cached_property
    def unmet(self) -> list[Unmet]:
        """The requirements that do not hold within the environment."""
        return [] if self.is_specification else unmet_requirements(self.closure, self.markers)

    @cached_property
    def closure(self) -> dict[str, Distribution]:
        """The distributions with what they require, and those that are seen of the Python behind the venv."""
        behind = {
            one["name"]: Distribution(one["name"], one["version"], "", "")
            for one in self.bom.get("inherited", ())
        }
        own = {
            name: Distribution(name, entry["version"], "", "", tuple(entry.get("requires", ())))
            for name, entry in self.distributions.items()
        }
        return {**behind, **own}

    @property
    def markers(self) -> dict[str, str]:
        """The host's values for environment markers."""
        python = self.bom["python"].get("version") or "3.12"
        return HostPlatform(python, self.arch, str(self.bom.get("platform", {}).get("glibc"))).markers

    @property
    def nested(self) -> tuple[str, ...]:
        """Copies of a package inside itself that no RECORD names: ``sglang/sglang``."""
        return tuple(
            path for path in self.bom.get("unowned", {}).get("packages", ()) if _repeats(self.inside(path))
        )


def runs_on(code: set[str], wanted: str) -> bool:
    """Whether a card that takes the GPU code ``wanted`` runs one of ``code``: SASS of its major, or older PTX."""
    want = gpucode.parse(wanted)
    return want is None or bool(gpucode.runs_by(code, want.capability))


def numbers(version: str | None) -> tuple[int, ...]:
    """``(2, 39)`` of ``2.39``; ``()`` for none."""
    return tuple(int(part) for part in re.findall(r"\d+", version or ""))


def dotted(version: tuple[int, ...]) -> str:
    """``2.39`` of ``(2, 39)``."""
    return ".".join(map(str, version))


def _repeats(path: str) -> bool:
    parts = path.split("/")
    return any(one == other for one, other in pairwise(parts))
