"""What lies in a folder: its files with size, time and inode, its links, and a digest that tells a change."""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Set

from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.paths import MARKER
from fleetctl.agent.sha import sha256_of

SHOWN = 5
CACHE = "__pycache__/"


class Tree:
    """Paths relative to ``root``, which is ``""`` itself; a folder comes before what it holds."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.folders: List[str] = []
        self.files: Dict[str, os.stat_result] = {}
        self.links: Dict[str, str] = {}
        self.special: List[str] = []
        self._stamp = ""

    def stamp(self) -> str:
        """A digest of names, sizes and times that any edit in place changes; as of the first time it is asked.

        Byte code and other caches in ``__pycache__`` have no part in it: a server that runs adds to them.
        """
        if not self._stamp:
            lines = [
                f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}"
                for path, stat in self.files.items()
                if CACHE not in path and path != MARKER
            ]
            lines += [f"{path}\0>{target}" for path, target in self.links.items()]
            lines.sort()
            self._stamp = sha256_of("\n".join(lines))
        return self._stamp

    def at(self, root: str, files: List[str]) -> Tree:
        """The same in another place, of the files only those; the stamp is that of all, which caches do not change."""
        copy = Tree(root)
        copy.folders, copy.links, copy._stamp = self.folders, self.links, self._stamp
        copy.files = {path: self.files[path] for path in files}
        return copy

    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(stat.st_size for stat in self.files.values())


def walk(root: str) -> Tree:
    """Every entry under ``root``. Raises :class:`AgentError` for a folder that cannot be read, and
    FileNotFoundError for an entry that went away meanwhile."""
    tree, pending = Tree(root), [""]
    files, links = tree.files, tree.links
    while pending:
        folder = pending.pop()
        tree.folders.append(folder)
        lead = folder + "/" if folder else ""
        try:
            with os.scandir(f"{root}/{folder}") as entries:
                for entry in entries:
                    path = lead + entry.name
                    if entry.is_symlink():
                        links[path] = os.readlink(entry.path)
                    elif entry.is_dir():
                        pending.append(path)
                    elif entry.is_file():
                        files[path] = entry.stat(follow_symlinks=False)
                    else:
                        tree.special.append(path)
        except PermissionError as error:
            raise AgentError(
                f"{shown(folder) or 'the folder'} cannot be read: {error.strerror}",
                where=f"{shown(root)}/{shown(folder)}",
                fix="run it as a user who may read all of it",
                exit=PREFLIGHT,
            ) from None
    return tree


def differences(before: Tree, after: Tree) -> List[str]:
    """What was written, added or removed between two walks; caches in ``__pycache__`` do not count."""
    return sorted(
        path
        for path in before.files.keys() | after.files.keys() | before.links.keys() | after.links.keys()
        if CACHE not in path
        and (
            _state(before.files.get(path)) != _state(after.files.get(path))
            or before.links.get(path) != after.links.get(path)
        )
    )


def shown(path: str) -> str:
    """``path`` for people: what is not printable or no UTF-8 as backslash escapes, on one line."""
    if path.isprintable():
        return path
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


def listed(paths: List[str]) -> str:
    """The first few paths, and how many more there are."""
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return ", ".join(shown(path) for path in paths[:SHOWN]) + more


def require_plain(tree: Tree, allowed: Set[str], moved_from: Optional[str] = None) -> None:
    """Refuse what no environment holds: sockets and the like, link loops, and links that lead out of it.

    ``allowed`` are links that may lead out: those to the interpreter. ``moved_from`` is the path that the
    folder had, where links may lead as well.
    """
    places = [place for place in (tree.root, os.path.realpath(tree.root), moved_from) if place]
    problems = [f"{path}: neither file, folder nor link" for path in tree.special]
    for path, target in tree.links.items():
        if path in allowed:
            continue
        try:
            os.stat(f"{tree.root}/{path}")
        except FileNotFoundError:
            pass
        except OSError as error:
            problems.append(f"{path} -> {target}: {error.strerror}")
            continue
        if not _inside(tree.root, path, target, places):
            problems.append(f"{path} -> {target}: leads out of the environment")
    if problems:
        raise AgentError(
            f"{len(problems)} entries cannot come along: {listed(problems)}",
            where=shown(tree.root),
            fix="remove them, or replace each link by what it leads to",
            evidence=[shown(problem) for problem in problems[:20]],
            exit=PREFLIGHT,
        )


def _inside(root: str, path: str, target: str, places: List[str]) -> bool:
    place = os.path.normpath(os.path.join(root, os.path.dirname(path), target))
    return any(place == one or place.startswith(one + "/") for one in places)


def _state(stat: Optional[os.stat_result]) -> object:
    return stat and (stat.st_size, stat.st_mtime_ns, stat.st_ino)
