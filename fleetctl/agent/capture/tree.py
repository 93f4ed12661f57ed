"""Walk an environment: every file with one stat, links never followed, and what is odd about the tree said."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Set

PROBLEMS = 200
SKIPPED_FOLDERS = frozenset({"__pycache__"})
KINDS = {
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class File(NamedTuple):
    """A regular file, or what a link leads to (``link``): bytes, and its time in ns as it was when walked."""

    size: int
    mtime_ns: int
    link: bool
    executable: bool


class Problems:
    """What was odd, each with its place; the first ``PROBLEMS`` are kept, all are counted."""

    def __init__(self) -> None:
        self.found: List[Dict[str, Any]] = []
        self.count = 0

    def add(self, where: str, what: str, moves: bool = True) -> None:
        """``where`` is a path; it is shown with escapes where it needs them. Not ``moves``: it forbids a clone."""
        self.count += 1
        problem: Dict[str, Any] = {"where": shown(where), "what": what, **({} if moves else {"moves": False})}
        if len(self.found) < PROBLEMS:
            self.found.append(problem)
        elif not moves:
            self._displace(problem)

    def _displace(self, problem: Dict[str, Any]) -> None:
        """What forbids a clone is kept before what is only odd."""
        for index in range(len(self.found) - 1, -1, -1):
            if "moves" not in self.found[index]:
                self.found[index] = problem
                return

    def to_list(self) -> List[Dict[str, Any]]:
        """The problems, and a last one that says how many more there were."""
        more = self.count - len(self.found)
        return [*self.found, {"where": "", "what": f"{more} more problems"}] if more else self.found


class Tree:
    """The files under ``root``, by their path relative to it; links that lead to folders are in ``links``."""

    def __init__(self, root: str, problems: Problems) -> None:
        self.root = root
        self.files: Dict[str, File] = {}
        self.folders: Dict[str, List[str]] = {}
        self.links: Dict[str, str] = {}
        self.refused: Set[str] = set()
        self._real = os.path.realpath(root)
        self._problems = problems

    def walk(
        self, below: str, skipped: FrozenSet[str] = frozenset(), step: Optional[Callable[[], None]] = None
    ) -> None:
        """Add what is under the folder ``below`` (relative to the root, "" for all of it).

        ``skipped`` are relative folders that are not entered; ``step`` is called after each folder.
        """
        waiting = [below]
        while waiting:
            folder = waiting.pop()
            if folder in self.folders or folder in skipped:
                continue
            waiting += self._folder(folder)
            if step is not None:
                step()

    def absolute(self, path: str) -> str:
        """The path on this host of a relative one."""
        return f"{self.root}/{path}" if path else self.root

    def look(self, path: str) -> Optional[File]:
        """The regular file at a relative path, by a stat of its own where the walk did not see it.

        A path that this user may not look at is in ``refused`` then.
        """
        found = self.files.get(path)
        if found is not None:
            return found
        try:
            status = os.stat(self.absolute(path))
        except PermissionError:
            self.refused.add(path)
            return None
        except (OSError, ValueError):
            return None
        return _file(status, link=True) if stat.S_ISREG(status.st_mode) else None

    def _folder(self, folder: str) -> List[str]:
        """Take in one folder; its subfolders come back."""
        names: List[str] = []
        deeper: List[str] = []
        self.folders[folder] = names
        lead = f"{folder}/" if folder else ""
        try:
            with os.scandir(self.absolute(folder)) as entries:
                for entry in entries:
                    path = lead + entry.name
                    if not entry.name.isprintable() or (not entry.name.isascii() and _odd(entry.name)):
                        self._problems.add(path, "an odd name")
                    try:
                        is_folder = self._entry(entry, path)
                    except OSError as error:
                        self._problems.add(path, f"cannot be looked at: {error.strerror}")
                        continue
                    names.append(entry.name)
                    if is_folder and entry.name not in SKIPPED_FOLDERS:
                        deeper.append(path)
        except OSError as error:
            self._problems.add(folder, f"the folder cannot be read: {error.strerror}")
        return deeper

    def _entry(self, entry: "os.DirEntry[str]", path: str) -> bool:
        """Take in one entry; whether it is a folder."""
        if entry.is_dir(follow_symlinks=False):
            return True
        if entry.is_symlink():
            self._link(path)
            return False
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            self.files[path] = _file(status, link=False)
        else:
            self._problems.add(path, f"is {KINDS.get(stat.S_IFMT(status.st_mode), 'no file')}", moves=False)
        return False

    def _link(self, path: str) -> None:
        place = self.absolute(path)
        target = os.readlink(place)
        self.links[path] = target
        try:
            status = os.stat(place)
        except OSError as error:
            loop = (
                "a loop of links" if "loop" in str(error.strerror).lower() or "levels" in str(error) else ""
            )
            what = loop or f"a link to {shown(target)}: {str(error.strerror).lower()}"
            self._say_link(
                path, what, moves=isinstance(error, FileNotFoundError) and self._is_own(path, target)
            )
            return
        real = os.path.realpath(place)
        if real != self._real and not real.startswith(self._real + "/"):
            what = f"a link out of the environment, to {shown(real)}"
            self._say_link(path, what, moves=self._is_own(path, target))
        elif stat.S_ISDIR(status.st_mode) and place.startswith(real + "/"):
            self._say_link(path, "a link to a folder that it is in")
        if stat.S_ISREG(status.st_mode):
            self.files[path] = _file(status, link=True)

    def _is_own(self, path: str, target: str) -> bool:
        """Whether a link's own words stay in the environment, wherever other links may lead then."""
        place = os.path.normpath(os.path.join(os.path.dirname(self.absolute(path)), target))
        return inside(place, self.root) or inside(place, self._real)

    def _say_link(self, path: str, what: str, moves: bool = True) -> None:
        """Links to the interpreter are how a venv is made."""
        name = path.rpartition("/")[2]
        if not (path.startswith("bin/") and name.startswith("python")):
            self._problems.add(path, what, moves)


def shown(path: str) -> str:
    """``path`` as text that can be printed: bytes that are not UTF-8 and control characters as escapes."""
    if path.isascii() and path.isprintable():
        return path
    try:
        text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        text = path.encode("utf-8", "backslashreplace").decode("utf-8")
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def shown_json(value: Any) -> Any:
    """A JSON value all of whose texts can be printed."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, list):
        return [shown_json(one) for one in value]
    if isinstance(value, dict):
        return {shown(key): shown_json(one) for key, one in value.items()}
    return value


def inside(path: str, folder: str) -> bool:
    """Whether an absolute path is ``folder`` or under it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def exists(path: str) -> bool:
    """Whether something is there, behind links too."""
    return os.path.exists(path)


def names(folder: Path) -> List[str]:
    """The sorted names in a folder; none where it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _file(status: os.stat_result, link: bool) -> File:
    return File(status.st_size, status.st_mtime_ns, link, bool(status.st_mode & 0o111))


def _odd(name: str) -> bool:
    return any("\udc80" <= character <= "\udcff" for character in name)
