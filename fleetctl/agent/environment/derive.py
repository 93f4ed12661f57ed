"""Derive an environment from another one: clone, relocate, overlay and patch in one atomic call.

Made under ``.building`` and renamed when all is proved: no file names the old place, the interpreter runs, the
modules load. The base is never written to. Files are shared by hard link only with what nobody else changes
(:func:`linktree.choose`); the copy of a venv that pip may still change in place costs its bytes.
"""

from __future__ import annotations

import errno
import os
import re
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from fleetctl.agent.capture.foldertree import Tree, differences, walk
from fleetctl.agent.capture.installed import Site, canonical
from fleetctl.agent.capture.mentions import Paths
from fleetctl.agent.environment.base import Base, Trust, being_written, require_apart, settled_walk
from fleetctl.agent.environment.build import STEP_S, WAIT_S, made_by_another
from fleetctl.agent.environment.bytecode import compile_command, compile_listed, uncompiled
from fleetctl.agent.environment.checks import Checks
from fleetctl.agent.environment.child import Children, refusal
from fleetctl.agent.environment.environments import environment_path, marker
from fleetctl.agent.environment.linktree import HARDLINK, bring, choose
from fleetctl.agent.environment.marker import facts
from fleetctl.agent.environment.overlay import Overlay, Source
from fleetctl.agent.environment.patching import apply_patches, patch_digest
from fleetctl.agent.environment.promise import Promise, require_verified
from fleetctl.agent.environment.relocate import Relocation, editable_outside
from fleetctl.agent.environment.removal import remove
from fleetctl.agent.environment.staging import (
    REFUSALS,
    Staging,
    disk_errors,
    free_bytes,
    refused,
    remove_leftovers,
    staged,
)
from fleetctl.agent.errors import INPUT, AgentError
from fleetctl.agent.files import write_json
from fleetctl.agent.paths import MARKER, ROOT

Emit = Callable[[Dict[str, Any]], None]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
DIGEST = re.compile(r"[0-9a-f]{12}")
FULL = REFUSALS[errno.ENOSPC]
STEPS = {
    "clone": "bring the files",
    "prove": "compare what came with its digest",
    "relocate": "rewrite what names the old place",
    "remove": "take out distributions and stray copies",
    "overlay": "replace distributions",
    "patch": "write the patches",
    "compile": "compile to byte code",
    "check": "run the interpreter, load the modules, run the checks, verify",
    "commit": "prove that no old path is left, write through and name it",
}


def derive(args: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Make ``<root>/envs/<name>-<digest>`` out of ``base`` unless it is there.

    ``args``: see docs/architecture.md. Result: ``{"path", "built", "method", "seconds": {step: s},
    "kept": {file: why it still names an old path}, "editable": {distribution: path outside}, "checks": [..],
    "verified": bool}``.
    Raises :class:`AgentError`: exit 2 for a plan that cannot be meant, 4 when another derivation of it goes on
    too long, 5 when the base, the host or a check refuses; then nothing is left and the base is as it was.
    """
    root = Path(os.path.abspath(args.get("root", ROOT)))
    final = _final(root, args)
    if marker(final, args["digest"]) is not None:
        return {"path": str(final), "built": False, "method": None, "seconds": {}}
    base_path = str(args["base"]).rstrip("/")
    if not os.path.isabs(base_path) or os.path.normpath(base_path) != base_path:
        raise AgentError(
            f"{args['base']!r} is no absolute path of a venv", fix="write it from / on, without .."
        )
    require_apart(base_path, final)
    with disk_errors(final, 0):
        final.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(final.parent)
        with staged(final, float(args.get("wait_s", WAIT_S)), lambda left: _waiting(emit, left)) as staging:
            if staging is None:
                return {**made_by_another(final, args["digest"]), "method": None}
            return _Derivation(args, emit, root, staging, base_path).run()


class _Derivation:
    """One derivation under its lock: the steps in order, each announced and timed."""

    def __init__(self, args: Dict[str, Any], emit: Emit, root: Path, staging: Staging, base: str) -> None:
        self.args = args
        self.emit = emit
        self.root = root
        self.staging = staging
        self.home = str(staging.path)
        self.final = str(staging.final)
        self.seconds: Dict[str, float] = {}
        self.base_path = base
        self.origin: Dict[str, Any] = args.get("origin") or {}
        self.base: Base
        self.promise: Promise
        self.moving: Relocation
        self.site: Site
        self.children = Children(staging.fd, emit, _environment(), STEP_S)
        self.checks = Checks(self.children, self.home)
        self.method = HARDLINK
        self.changed: Set[str] = set()
        self.touched: Set[str] = set()
        self.removed: Set[str] = set()
        self.kept: Dict[str, str] = {}
        self.editable: Dict[str, str] = {}
        self.tree = Tree(self.home)
        self.old: Set[str] = set()
        self.sources: List[Tuple[Source, Dict[str, str]]] = []
        self.overlays: List[Dict[str, Any]] = []
        self.bom: Optional[Dict[str, Any]] = None

    def run(self) -> Dict[str, Any]:
        """All steps, at the end the name."""
        self._step("clone", self._clone)
        if not self.promise.is_kept:
            self._step("prove", self._prove)
        self._step("relocate", self._relocate)
        if self.args.get("removes"):
            self._step("remove", self._remove)
        if self.args.get("overlays"):
            self._step("overlay", self._overlay)
        if self.args.get("patches"):
            self._step("patch", self._patch)
        self._step("compile", self._compile)
        self._step("check", self._check)
        self._step("commit", self._commit)
        return {
            "path": self.final,
            "built": True,
            "method": self.method,
            "seconds": self.seconds,
            "kept": self.kept,
            "editable": self.editable,
            "checks": self.checks.results,
            "verified": self.bom is not None,
        }

    def _step(self, step: str, work: Callable[[], None]) -> None:
        start = time.monotonic()
        self.emit({"step": f"derive-{step}", "state": "begin", "text": STEPS[step]})
        work()
        self.seconds[step] = round(time.monotonic() - start, 3)
        text = f"{STEPS[step]}: {self.seconds[step]:.1f} s"
        self.emit({"step": f"derive-{step}", "state": "ok", "text": text})

    def _info(self, step: str, text: str) -> None:
        self.emit({"step": f"derive-{step}", "state": "info", "text": text})

    def _clone(self) -> None:
        """Bring the files; once more from the start where the base was changed meanwhile."""
        for attempt in (1, 2):
            changed = self._clone_once()
            if not changed:
                self.moving = Relocation(self.home, self.base.trust.old, self.final)
                self.moving.links(self.tree.links)
                return
            if attempt == 2:
                raise being_written(self.base_path, changed)
            self._info("clone", f"the base changed meanwhile ({changed[0]}), once more")
            self.staging.empty()

    def _clone_once(self) -> List[str]:
        base = self.base = Base(self.base_path, self.root, self.origin.get("path"))
        origin = self.origin
        self.promise = Promise(base, origin.get("digest"), self.root, origin.get("host") or "")
        self.promise.require_unedited()
        self.site, files = Site(self.home, base.site.lead), base.files()
        self.sources = [self._source(wanted) for wanted in self.args.get("overlays") or []]
        self.method = choose(f"{base.path}/pyvenv.cfg", self.home, base.trust.immutable)
        self._require_room(files)
        try:
            bring(base.tree, files, self.home, self.method)
        except FileNotFoundError as error:
            return [os.path.relpath(str(error.filename), base.path)]
        for path, target in base.tree.links.items():
            os.symlink(target, f"{self.home}/{path}")
        self.tree = base.tree.at(self.home, files)
        if base.trust.immutable and base.proof.holds:
            return []
        return differences(base.tree, settled_walk(base.path))

    def _source(self, wanted: Dict[str, Any]) -> Tuple[Source, Dict[str, str]]:
        source = Source(str(wanted["from"]).rstrip("/"), wanted["distribution"], self.site.lead)
        return source, source.files()

    def _require_room(self, files: List[str]) -> None:
        linked = self.method == HARDLINK
        needed = 0 if self.method != "copy" else sum(self.base.tree.files[path].st_size for path in files)
        inodes = len(self.base.tree.folders) + len(self.base.tree.links) + (0 if linked else len(files))
        state = os.statvfs(self.home)
        if free_bytes(self.staging.path) < needed or (state.f_files and state.f_favail < inodes):
            raise refused(
                self.staging.final, needed, FULL, f"{inodes:,} inodes needed, {state.f_favail:,} free"
            )

    def _prove(self) -> None:
        """Before anything in it is rewritten, but for links, which may lead nowhere before."""
        self.promise.require_content(self.home, lambda event: self.emit({**event, "step": "derive-prove"}))

    def _relocate(self) -> None:
        moving = self.moving
        files = list(self.tree.files)
        moving.files(self.base.trust.candidates(files))
        self._moved(moving)
        self.editable = editable_outside(self.site, self.tree.files)
        for name, place in self.editable.items():
            self._info("relocate", f"{name} is an editable install of {place}, outside: it stays shared")

    def _moved(self, moving: Relocation) -> None:
        self.old |= set(moving.old)
        self.changed |= set(moving.changed)
        self.kept.update(moving.kept)
        self.touched |= self.site.refresh(set(moving.changed))

    def _remove(self) -> None:
        wanted = self.args["removes"]
        gone = remove(self.site, wanted.get("distributions") or [], wanted.get("paths") or [])
        self.changed |= gone
        self.removed = {canonical(name) for name in wanted.get("distributions") or []}
        self._info("remove", f"{len(gone):,} files out")

    def _overlay(self) -> None:
        for wanted, (source, coming) in zip(self.args["overlays"], self.sources):
            trust = Trust(source.site.environment, self.root, wanted.get("path"))
            method = choose(source.site.file(source.record), self.home, trust.immutable)
            change = Overlay(self.site, source, method, trust.proof)
            change.apply(coming)
            source.require_record(self.site.digest(source.info), wanted.get("record"))
            self.changed |= change.added | change.removed
            moving = Relocation(self.home, trust.old, self.final)
            moving.files(trust.candidates(sorted(change.added)))
            self._moved(moving)
            self.touched.add(source.info)
            self.overlays.append({**wanted, "info": source.info, "record": self.site.digest(source.info)})
            self._info(
                "overlay", f"{source.info[:-10]}: {len(change.added):,} files in, {len(change.removed):,} out"
            )

    def _patch(self) -> None:
        patched = apply_patches(self.site, self.args["patches"])
        names = {canonical(patch["distribution"]) for patch in self.args["patches"]}
        self.touched |= {info for name, infos in self.site.infos().items() if name in names for info in infos}
        self.changed |= patched

    def _compile(self) -> None:
        """Byte code for what has none: of all where the base's was left behind, else of what changed."""
        packages, python, cache = (
            Path(self.site.packages),
            f"{self.home}/bin/python",
            self.base.python["cache"],
        )
        if not self.base.proof.holds:
            self._compiled(compile_command(python, packages, cache))
            return
        sources = uncompiled(Path(self.home), self.changed, cache)
        if sources:
            listing = self.staging.path / "sources.txt"
            listing.write_text("\n".join(sources) + "\n", encoding="utf-8", errors="surrogateescape")
            self._compiled(compile_listed(python, packages, listing, len(sources)))
            listing.unlink()

    def _compiled(self, argv: List[str]) -> None:
        _, lines = self.children.run("derive-compile", argv, lambda: STEPS["compile"])
        reason = refusal(lines)
        if reason:
            raise refused(self.staging.final, 0, reason, "\n".join(lines))

    def _check(self) -> None:
        self.checks.run(list(self.args.get("imports") or []), self.args.get("patches") or [])
        if self.args.get("verify"):
            places = [*self.old, self.base.path]
            origin, abi = self.origin or {"path": self.base.path}, self.args.get("wants_abi") or ""
            self.bom = require_verified(self.home, self.final, origin, abi, places, self._verifying)

    def _verifying(self, event: Dict[str, Any]) -> None:
        self.emit({**event, "step": "derive-check"})

    def _content(self) -> Optional[str]:
        """The digest of its bill of materials, where that is known without reading it all."""
        if self.bom is not None:
            return str(self.bom["digest"])
        changed = any(self.args.get(key) for key in ("overlays", "patches", "removes"))
        known = self.base.marker.get("content")
        return None if changed or known is None else str(known)

    def _commit(self) -> None:
        unproved = self.changed if self.base.proof.holds else None
        if self.changed or unproved is None:
            self.tree = walk(self.home)
        files = (
            list(self.tree.files)
            if unproved is None
            else [path for path in unproved if path in self.tree.files]
        )
        own = Paths([self.final]).search(self.home, sorted(self.changed & self.tree.files.keys()))
        Relocation(self.home, [*self.old, self.home], self.final).require_gone(files, self.kept)
        known = self.base.marker.get("records", {})
        records = {} if not self.base.proof.holds else known
        stale = {canonical(info.split("-")[0]) for info in self.touched} | self.removed
        content = {
            "schema": 1,
            "name": self.args["name"],
            "digest": self.args["digest"],
            "python": {"tag": self.base.python["tag"], "version": self.base.python["version"]},
            "content": self._content(),
            "abi": self.bom["abi"]["tag"] if self.bom is not None else self.args.get("abi"),
            "wheels": [],
            "origin": self.args.get("origin") or {"path": self.base.path},
            "overlays": self.overlays,
            "removes": self.args.get("removes") or {},
            "patches": [
                {"name": patch["name"], "sha256": patch.get("sha256") or patch_digest(patch)}
                for patch in self.args.get("patches") or []
            ],
            "kept": self.kept,
            "built_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **facts(
                self.tree, self.site, own, {name: one for name, one in records.items() if name not in stale}
            ),
        }
        write_json(self.staging.path / MARKER, content, 0o644)
        self.staging.commit()


def _final(root: Path, args: Dict[str, Any]) -> Path:
    for key, pattern in (("name", NAME), ("digest", DIGEST)):
        if not isinstance(args.get(key), str) or not pattern.fullmatch(args[key]):
            raise AgentError(f"{args.get(key)!r} is no environment's {key}", exit=INPUT)
    return environment_path(root, args["name"], args["digest"])


def _environment() -> Dict[str, str]:
    """The children's whole environment: nothing of the host's Python settings has a say."""
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": "/", "LANG": "C.UTF-8", "NO_COLOR": "1"}


def _waiting(emit: Emit, left: float) -> None:
    text = "another derivation of this environment"
    emit({"step": "derive-lock", "state": "wait", "text": text, "left_s": round(left)})
