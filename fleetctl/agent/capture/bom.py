"""``bom.capture``: an environment's bill of materials, read from its files and from nothing that it would run."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set

from fleetctl.agent.capture import beside, drift, unowned
from fleetctl.agent.capture.conda import CondaPackages
from fleetctl.agent.capture.distributions import Distribution, find_distributions
from fleetctl.agent.capture.inherited import added_by_pth, inherited, inherited_sites
from fleetctl.agent.capture.layout import Layout, Said, ask_python, find_layout, python_tag
from fleetctl.agent.capture.modules import modules
from fleetctl.agent.capture.tree import Problems, Tree, exists, shown
from fleetctl.agent.environment.marker import made
from fleetctl.agent.host import hardware
from fleetctl.agent.later import Later, NotYet
from fleetctl.agent.sha import sha256_of

Json = Dict[str, Any]
Emit = Callable[[Json], None]

SCHEMA = 1
PATHS = 50
EVERY_S = 0.5
NOT_ASKED = Said(None, "", None, "")
NOT_WALKED = {"conda": frozenset({"pkgs", "envs"})}


def capture(args: Json, emit: Emit) -> Json:
    """The ``bom.capture`` call. ``args``: ``path`` of a venv, a conda environment, an interpreter or a folder of
    packages; ``hashes`` (default true) compares every file with its RECORD; ``native`` (default true) reads the
    compiled extensions.

    :class:`AgentError` (exit 2) where ``path`` is no environment; all else that is odd is in the result.
    """
    return Capture(args["path"], emit, args.get("hashes", True), args.get("native", True)).run()


class Native(NamedTuple):
    """What was read of the compiled libraries, and of the system that they are loaded on."""

    inherited: List[Json]
    extensions: List[Json]
    abi: Json
    platform: Json
    unmet_imports: Optional[List[Json]] = None


class Capture:
    """One capture: its parts in order, each an event."""

    def __init__(self, path: str, emit: Emit, hashes: bool, native: bool, places: Sequence[str] = ()) -> None:
        """``places`` are other paths that the environment's files may take for its own."""
        self.places = {*places, path.rstrip("/")}
        self.hashes = hashes
        self.native = native
        self.emit = emit
        self.begin = time.monotonic()
        self.layout = find_layout(path)
        self.problems = Problems()
        self.tree = Tree(self.layout.root, self.problems)
        self.others: Set[str] = set()
        self.unowned: List[str] = []
        self.added: Json = {}
        self._told = 0.0
        self._libraries = 0

    def run(self) -> Json:
        """Capture it."""
        asking = Later(self._ask)
        self._step("walk", "look at every file", self._walk)
        distributions = self._step("read", "read what is installed", self._distributions)
        reading = Later(lambda: self._read_libraries(asking, distributions))
        checked = self._step("hash", "compare files with their RECORD", lambda: self._check(distributions))
        self._step("native", "read the compiled libraries", lambda: self._await(reading))
        return self._bom(asking.result(), distributions, checked, reading.result())

    def _step(self, step: str, text: str, work: Callable[[], Any]) -> Any:
        self.emit({"step": f"capture-{step}", "state": "begin", "text": text})
        begin = time.monotonic()
        result = work()
        text = f"{text}: {time.monotonic() - begin:.1f} s"
        self.emit({"step": f"capture-{step}", "state": "ok", "text": text})
        return result

    def _wait(self, step: str, text: str) -> None:
        now = time.monotonic()
        if now - self._told >= EVERY_S:
            self._told = now
            self.emit({"step": f"capture-{step}", "state": "wait", "text": text})

    def _await(self, reading: Later[Native]) -> None:
        while True:
            try:
                reading.result(EVERY_S)
                return
            except NotYet:
                self._wait("native", f"{self._libraries} libraries so far")

    def _ask(self) -> Optional[Said]:
        """What the interpreter says; None where it is not asked."""
        python = self.layout.python
        if python is None:
            return Said(None, "", None, "there is no interpreter")
        return ask_python(python) if self.hashes or not exists(python) else None

    def _read_libraries(self, asking: Later[Optional[Said]], distributions: Sequence[Distribution]) -> Native:
        said = asking.result() or NOT_ASKED
        version, tag = python_tag(self.layout, said)
        folders = inherited_sites(self.layout, version, self.added)
        system = platform_facts()
        behind = inherited(folders, {one.name for one in distributions})
        if not self.native:
            return Native(behind, [], {"tag": tag, "torch": None, "cuda": {}, "cxx11": None}, system)
        from fleetctl.agent.capture.extensions import Extensions, owners_of

        python = self.layout.python
        interpreter = os.path.realpath(python) if python and exists(python) else None
        sites = [self.tree.absolute(site) for site in self.layout.sites]
        extensions = Extensions(self.tree, [*sites, *folders], interpreter)
        judged = extensions.read(owners_of(distributions), self._count)
        versions = {one["name"]: one["version"] for one in behind}
        versions.update((one.name, one.version) for one in distributions)
        abi = extensions.abi(judged, tag, system["glibc"], versions.get("torch"))
        system["glibcxx"] = hardware.glibcxx()
        return Native(behind, [one.entry for one in judged], abi, system, self._imports())

    def _imports(self) -> List[Json]:
        """What the engines' sources import of other packages, which these do not have."""
        from fleetctl.agent.capture.imported import reader, unmet_imports

        found: List[Json] = []
        for site in self.layout.sites:
            inner = [
                path[len(site) + 1 :] if site else path for path in self.tree.files if inside_of(site, path)
            ]
            found += unmet_imports(inner, reader(self.tree.absolute, site))
        return found

    def _count(self, libraries: int) -> None:
        self._libraries = libraries

    def _walk(self) -> None:
        self._told = time.monotonic()
        whole = self.layout.kind != "system"
        for folder in [""] if whole else self.layout.sites:
            self.tree.walk(
                folder,
                NOT_WALKED.get(self.layout.kind, frozenset()),
                lambda: self._wait("walk", f"{len(self.tree.files)} files so far"),
            )

    def _distributions(self) -> List[Distribution]:
        sites, kind = self.layout.sites, self.layout.kind
        found = find_distributions(self.tree, sites, kind, self.problems)
        if kind == "conda":
            packages = CondaPackages(self.tree, found, self.problems)
            self.others = packages.owned
            found = sorted([*found, *packages.distributions], key=lambda one: (one.name, one.info))
        self.unowned = unowned.unowned_files(self.tree, found, self.others, sites, kind)
        self._added_paths()
        return found

    def _check(self, distributions: Sequence[Distribution]) -> drift.Checked:
        code = [path for path in self.unowned if unowned.is_code(path, self.layout.sites)]

        def on_bytes(done: int, total: int) -> None:
            self._wait("hash", f"{done / 1e6:.0f} of {total / 1e6:.0f} MB")

        return drift.check(self.tree, distributions, code, self.hashes, self.problems, on_bytes)

    def _added_paths(self) -> None:
        """Folders outside that ``.pth`` files put on ``sys.path``."""
        self.added = added_by_pth(self.tree, self.layout.sites)
        for folder, path in self.added.items():
            self.problems.add(path, f"puts {shown(folder)} on the module path")

    def _bom(
        self,
        said: Optional[Said],
        distributions: Sequence[Distribution],
        checked: drift.Checked,
        native: Native,
    ) -> Json:
        version, tag = python_tag(self.layout, said or NOT_ASKED)
        described = [_describe(one, checked.drift[one.info]) for one in distributions]
        bom: Json = {
            "schema": SCHEMA,
            "path": shown(self.layout.root),
            "hostname": socket.gethostname(),
            "captured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": 0.0,
            "kind": self.layout.kind,
            "digest": self._digest(tag, distributions, checked),
            "hashes": self.hashes,
            "python": _python(self.layout, said, version, tag),
            "platform": native.platform,
            "site_packages": [shown(site) for site in self.layout.sites],
            "distributions": described,
            "inherited": native.inherited,
            "extensions": native.extensions,
            "unmet_imports": native.unmet_imports,
            "made": made(self.layout.root),
            "unowned": unowned.describe_unowned(self.tree, self.unowned, self.layout.sites),
            "twice": unowned.twice(distributions),
            "files": len(self.tree.files),
            "bytes": sum(file.size for file in self.tree.files.values()),
            "checked_files": checked.files,
            "checked_bytes": checked.bytes,
            "abi": native.abi,
            "problems": self.problems.to_list(),
            "problems_count": self.problems.count,
        }
        bom["seconds"] = round(time.monotonic() - self.begin, 3)
        return bom

    def _digest(
        self, tag: Optional[str], distributions: Sequence[Distribution], checked: drift.Checked
    ) -> str:
        lines = [f"python {tag or ''}"]
        for one in distributions:
            lines += drift.content(one, checked.drift[one.info])
        sites = self.layout.sites
        lines += [f"file {unowned.from_site(path, sites)} {digest}" for path, digest in checked.code.items()]
        lines += [f"beside {path} {digest}" for path, digest in self._beside().items()]
        if self.layout.has_system_packages:
            lines.append("system-site-packages")
        text = "\0".join(sorted(lines))
        return sha256_of(text)[:12]

    def _beside(self) -> Dict[str, str]:
        root = self.layout.root
        files = beside.beside(self.unowned, self.layout.sites)
        return beside.digests(self.tree, files, {*self.places, root, os.path.realpath(root)}, self.problems)


def inside_of(site: str, path: str) -> bool:
    """Whether a file lies under a site-packages folder; both relative to the environment."""
    return not site or path.startswith(f"{site}/")


def _describe(one: Distribution, found: drift.Drift) -> Json:
    return {
        "name": one.name,
        "version": one.version,
        "installer": one.installer,
        "direct_url": one.direct_url,
        "editable": shown(one.editable) if one.editable else None,
        "info": shown(one.info),
        "files": found.files,
        "bytes": found.bytes,
        "requires": one.requires,
        "imports": one.imports,
        "modules": modules(entry.path for entry in one.record.entries),
        "record": {
            "state": one.record.state,
            "sha256": one.record_sha256 if one.record.entries else None,
            "why": one.record.why,
        },
        **_paths("changed", list(found.changed)),
        **_paths("missing", found.missing),
        **_paths("outside", one.outside),
    }


def _paths(key: str, paths: Sequence[str]) -> Json:
    return {key: [shown(path) for path in paths[:PATHS]], f"{key}_count": len(paths)}


def _python(layout: Layout, said: Optional[Said], version: Optional[str], tag: Optional[str]) -> Json:
    python = layout.python
    there = python is not None and exists(python)
    runs = bool(python and os.access(python, os.X_OK)) if said is None else said.version is not None
    return {
        "path": shown(python) if python else None,
        "version": version,
        "tag": tag,
        "home": layout.settings.get("home"),
        "real": shown(os.path.realpath(python)) if python and there else None,
        "runs": runs,
        "why": said.why if said is not None else "",
        "system_site_packages": layout.has_system_packages,
    }


def platform_facts() -> Json:
    """The host's architecture and C library."""
    try:
        glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(" ")[2] or None
    except (ValueError, OSError):
        glibc = None
    return {"arch": os.uname().machine, "glibc": glibc, "glibcxx": None}
