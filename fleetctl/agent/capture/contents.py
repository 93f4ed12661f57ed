"""Digests and contents of an environment's files, and what its distributions are. Nothing outside it is read."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import stat
from pathlib import Path, PurePosixPath
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from fleetctl.agent.errors import INPUT, PREFLIGHT, AgentError
from fleetctl.agent.files import read_json
from fleetctl.agent.paths import MARKER

Emit = Callable[[Dict[str, Any]], None]
CONTENT_MAX = 8 << 20
ANSWER_MAX = 32 << 20
DIGEST_MAX = 64 << 20
FILES_MAX = 50_000
CHUNK = 1 << 20


def read(args: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Some files of an environment.

    ``args``: ``path`` (a venv or a folder of packages), ``files`` (relative to site-packages), ``contents``?
    (false: digests only), ``distributions``? (names). Result: ``{"site_packages", "marker": {…} | None,
    "distributions": {name: {"version", "packages": [top-level names]} | None}, "files": {file: {"sha256",
    "bytes", "mode", "content"? (base64)} | None where there is none}}``. Raises :class:`AgentError` for a path
    that leads out of the environment, for what is no regular file, and beyond 8 MiB a file, 32 MiB in all.
    """
    root, packages = _places(args["path"])
    contents, total = bool(args.get("contents")), 0
    found: Dict[str, Optional[Dict[str, Any]]] = {}
    for name in args["files"][:FILES_MAX]:
        entry = _file(root, packages, name, contents)
        total += entry["bytes"] if entry and contents else 0
        if total > ANSWER_MAX:
            raise _refused(f"more than {ANSWER_MAX >> 20} MiB asked for at once", str(packages))
        found[name] = entry
    return {
        "site_packages": str(packages),
        "marker": read_json(root / MARKER),
        "distributions": {name: _distribution(packages, name) for name in args.get("distributions", [])},
        "files": found,
    }


def list_files(args: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Every file of some top-level packages, byte code left out.

    ``args``: ``path``, ``packages`` (names of folders or files in site-packages). Result: ``{"files": {file:
    sha256}, "left_out": [{"path", "why"}]}``: links out of the environment, what is no regular file or cannot
    be read, files over 64 MiB, names that are no plain text.
    """
    root, packages = _places(args["path"])
    files: Dict[str, str] = {}
    left_out: List[Dict[str, str]] = []
    for name in _walk(packages, args["packages"]):
        if len(files) >= FILES_MAX:
            raise _refused(f"more than {FILES_MAX:,} files", str(packages))
        try:
            entry = _file(root, packages, name, False)
        except AgentError as error:
            left_out.append({"path": _printable(name), "why": error.what})
            continue
        if entry is not None:
            files[name] = entry["sha256"]
    return {"files": files, "left_out": left_out}


def site_packages(path: Path) -> Path:
    """Where the packages of the environment at ``path`` are; ``path`` itself where it is a plain folder."""
    if not path.is_dir():
        raise AgentError("no environment there", where=str(path), fix="name a venv's folder", exit=INPUT)
    found = sorted(path.glob("lib/python3*/site-packages"))
    if len(found) > 1:
        raise _refused(
            f"packages of {len(found)} Pythons: {', '.join(entry.parent.name for entry in found)}", str(path)
        )
    return found[0] if found else path


def is_inside(name: str) -> bool:
    """Whether ``name`` is a plain relative path that names something below where it starts."""
    return (
        bool(name)
        and "\\" not in name
        and name.isprintable()
        and str(PurePosixPath(name)) == name
        and not name.startswith("/")
        and not set(PurePosixPath(name).parts) & {"..", "."}
        and name != "."
    )


def _places(path: str) -> Tuple[Path, Path]:
    """The environment's real folder, which nothing read may be outside of, and its packages'."""
    packages = site_packages(Path(path))
    root = Path(path).resolve()
    if root not in (packages.resolve(), *packages.resolve().parents):
        raise _refused("its site-packages is a link to somewhere else", str(packages))
    return root, packages


def _file(root: Path, packages: Path, name: str, contents: bool) -> Optional[Dict[str, Any]]:
    if not is_inside(name):
        raise AgentError(
            f"not a path within site-packages: {_printable(name)}", where=str(packages), exit=INPUT
        )
    path = packages / name
    fd = _open(root, path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        state = os.fstat(fd)
        limit = CONTENT_MAX if contents else DIGEST_MAX
        if state.st_size > limit:
            raise _refused(f"larger than {limit >> 20} MiB ({state.st_size:,} bytes)", str(path))
        digest, held, left = hashlib.sha256(), bytearray(), limit
        while left > 0:
            chunk = file.read(min(CHUNK, left))
            if not chunk:
                break
            left -= len(chunk)
            digest.update(chunk)
            if contents:
                held += chunk
    entry = {"sha256": digest.hexdigest(), "bytes": limit - left, "mode": stat.S_IMODE(state.st_mode)}
    return {**entry, "content": base64.b64encode(held).decode()} if contents else entry


def _open(root: Path, path: Path) -> Optional[int]:
    """A descriptor of a regular file within ``root``; what it really is, is asked of the open descriptor."""
    if not _within(root, os.path.realpath(path)):
        raise _refused("a link that leads out of the environment", str(path))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _refused(f"cannot be read: {error.strerror}", str(path)) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _refused("not a regular file", str(path))
        if not _within(root, str(Path(f"/proc/self/fd/{fd}").readlink())):
            raise _refused("changed while it was being read", str(path))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _within(root: Path, real: str) -> bool:
    return os.path.commonpath([str(root), real]) == str(root)


def _walk(packages: Path, names: List[str]) -> Iterator[str]:
    for name in sorted(names):
        if not is_inside(name) or "/" in name:
            raise AgentError(f"not a package's name: {_printable(name)}", where=str(packages), exit=INPUT)
        if not (packages / name).is_dir():
            yield name
        for folder, folders, files in os.walk(packages / name):
            folders[:] = sorted(entry for entry in folders if entry != "__pycache__")
            for file in sorted(files):
                if not file.endswith(".pyc"):
                    yield os.path.relpath(folder + os.sep + file, packages)


def _distribution(packages: Path, name: str) -> Optional[Dict[str, Any]]:
    wanted = canonical(name)
    infos = [path for path in packages.glob("*.dist-info") if canonical(path.name.split("-", 1)[0]) == wanted]
    if len(infos) > 1:
        raise AgentError(
            f"{name} is installed twice: {', '.join(sorted(path.name for path in infos))}",
            where=str(packages),
            fix="such an environment cannot be patched; build or clone another",
            exit=PREFLIGHT,
        )
    return {"version": _version(infos[0]), "packages": _tops(infos[0])} if infos else None


def canonical(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _version(info: Path) -> str:
    try:
        with (info / "METADATA").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.lower().startswith("version:"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return info.name[: -len(".dist-info")].partition("-")[2]


def _tops(info: Path) -> List[str]:
    """The top-level folders and modules that the distribution's RECORD names; none where it has no RECORD."""
    try:
        with (info / "RECORD").open(encoding="utf-8", errors="replace", newline="") as lines:
            paths = [row[0] for row in csv.reader(lines) if row]
    except (OSError, csv.Error):
        return []
    tops = {path.split("/", 1)[0] for path in paths}
    odd = (".dist-info", ".data", ".pth")
    return sorted(top for top in tops if top not in ("..", "", "__pycache__") and not top.endswith(odd))


def _refused(what: str, where: str) -> AgentError:
    return AgentError(what, where=where, fix="see what it is; no such file can be patched", exit=PREFLIGHT)


def _printable(name: str) -> str:
    return name.encode("unicode_escape").decode()
