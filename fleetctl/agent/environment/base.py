"""The environment that another one is derived from: looked at, and refused before anything is touched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional, Set

from fleetctl.agent.capture.beside import activated
from fleetctl.agent.capture.foldertree import CACHE, Tree, listed, require_plain, shown, walk
from fleetctl.agent.capture.installed import Site, find_site
from fleetctl.agent.environment.marker import Proof
from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.paths import MARKER

ASK_S = 30.0
ASK = "import sys; print('%d.%d.%d' % sys.version_info[:3], sys.implementation.cache_tag, sys.implementation.name)"


class Trust:
    """What is known of a folder whose files are to be taken over.

    ``immutable``: fleetctl made it and nothing in it was changed since, or it lies in one of fleetctl's own
    folders; its files may be shared. ``old``: the paths that its files may name as their own place.
    """

    def __init__(self, path: str, root: Path, moved_from: Optional[str] = None, tree: Optional[Tree] = None):
        real, home = os.path.realpath(path), os.path.realpath(root)
        marked = os.path.exists(f"{path}/{MARKER}")
        self.proof = Proof((tree or settled_walk(path)) if marked else Tree(path))
        ours = real.startswith(home + "/")
        self.immutable = ours and (self.proof.holds or not real.startswith(home + "/envs/"))
        self.old = sorted({path, real, *activated(path), *filter(None, [moved_from])})

    def candidates(self, files: List[str]) -> List[str]:
        """Those of the files that may name an old path: what the marker says, or else all."""
        known = set(self.proof.named_in)
        return [path for path in files if path in known] if self.proof.holds else files


class Base:
    """A venv as it was found, and not refused: its tree, interpreter (``python``: version, tag, cache) and site."""

    def __init__(self, path: str, root: Path, moved_from: Optional[str] = None) -> None:
        self.path = path
        require_python(path)
        asked = subprocess.Popen(
            [f"{path}/bin/python", "-I", "-S", "-c", ASK],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            self.tree = settled_walk(path)
        finally:
            self.python = _answer(asked, path)
        require_plain(self.tree, interpreter_links(self.tree), moved_from)
        self.site: Site = find_site(path)
        self._require_site()
        self.trust = Trust(path, root, moved_from, self.tree)
        self.proof = self.trust.proof
        self.marker: Dict[str, Any] = (self.proof.content if self.proof.holds else None) or {}

    def files(self) -> List[str]:
        """The files that a derived environment takes over: all but the marker, and byte code only where
        fleetctl compiled it."""
        return [
            path
            for path, stat in self.tree.files.items()
            if (CACHE not in path or self.proof.compiled_by_fleetctl(stat)) and path != MARKER
        ]

    def _require_site(self) -> None:
        version = self.python["version"].rpartition(".")[0]
        if self.site.lead != f"lib/python{version}/site-packages":
            raise AgentError(
                f"its interpreter is Python {version}, its packages are in {self.site.lead}",
                where=shown(self.path),
                fix="make that venv anew with the Python that its packages are for",
                exit=PREFLIGHT,
            )


def require_python(path: str) -> None:
    """Refuse what is no venv, or one whose interpreter is not there (a skeleton). Exit 5."""
    if not os.path.isfile(f"{path}/pyvenv.cfg"):
        there = "is no venv: it has no pyvenv.cfg" if os.path.isdir(path) else "is not there"
        raise AgentError(
            f"{shown(path)} {there}",
            where=shown(path),
            fix="name the folder of a venv, the one that holds pyvenv.cfg",
            exit=PREFLIGHT,
        )
    python = f"{path}/bin/python"
    if not os.access(python, os.X_OK):
        chain: List[str] = []
        place = python
        while os.path.islink(place) and len(chain) < 10:
            target = os.path.join(os.path.dirname(place), os.readlink(place))
            chain.append(f"{shown(place)} -> {shown(target)}")
            place = target
        raise AgentError(
            f"{shown(path)} is a skeleton: its interpreter {shown(place)} is not there or cannot be run",
            where=shown(python),
            fix="install that Python, or make the venv anew with one that is there",
            evidence=chain,
            exit=PREFLIGHT,
        )


def require_apart(path: str, final: Path) -> None:
    """Refuse an environment inside the one it is derived from. Exit 5."""
    base, target = os.path.realpath(path), os.path.realpath(final.parent) + "/"
    if target.startswith(base.rstrip("/") + "/"):
        raise AgentError(
            f"{shown(str(final))} would lie inside {shown(path)}, of which it is to be a clone",
            where=shown(path),
            fix="name the folder of a venv that does not hold fleetctl's own",
            exit=PREFLIGHT,
        )


def settled_walk(path: str) -> Tree:
    """A walk; once more where something went away meanwhile, and then a refusal."""
    for attempt in (1, 2):
        try:
            return walk(path)
        except FileNotFoundError as error:
            if attempt == 2:
                raise being_written(path, [str(error.filename)]) from None
    raise AssertionError


def being_written(path: str, changed: List[str]) -> AgentError:
    """The error for a base that changes while it is read."""
    return AgentError(
        f"{shown(path)} is being written to: {listed(changed)}",
        where=shown(path),
        fix="wait until who changes it (pip, a build, an editor) has ended, then run it again",
        evidence=[shown(name) for name in changed[:20]],
        exit=PREFLIGHT,
    )


def interpreter_links(tree: Tree) -> Set[str]:
    """The links to the interpreter: they stay as they are, and lead out of the venv."""
    return {path for path in tree.links if path.startswith("bin/python")}


def _answer(asked: "subprocess.Popen[bytes]", path: str) -> Dict[str, str]:
    try:
        said, _ = asked.communicate(timeout=ASK_S)
    except subprocess.TimeoutExpired:
        asked.kill()
        said, _ = asked.communicate()
    words = said.decode("utf-8", "replace").split()
    if asked.returncode or len(words) != 3:
        raise AgentError(
            "its interpreter does not run",
            where=f"{shown(path)}/bin/python",
            fix="make that venv anew with a Python that runs on this host",
            evidence=said.decode("utf-8", "replace").splitlines()[-10:],
            exit=PREFLIGHT,
        )
    short = {"cpython": "cp", "pypy": "pp"}.get(words[2], words[2])
    return {"version": words[0], "cache": words[1], "tag": short + "".join(words[0].split(".")[:2])}
