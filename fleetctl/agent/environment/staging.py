"""A folder that appears under its name whole or not at all, and what a disk that refuses says.

The folder is made as ``<name>.building`` and renamed at the end. The lock is an flock on the ``.building``
folder itself: it ends with the last process that holds it (children inherit it), and leaves no file behind.
A keeper, a shell in a session of its own, removes the folder where this process dies, however it dies.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import time
from pathlib import Path
from typing import Callable, Iterator, List, Optional

from fleetctl.agent.errors import LOCKED, PREFLIGHT, AgentError
from fleetctl.agent.files import sync_folder

SUFFIX = ".building"
KILLED = ".killed"
KEEPER = """
read -r line && exit
for attempt in 1 2 3 4 5; do
  [ "$1" -ef "/dev/fd/$2" ] || exit
  rm -rf -- "$1" && break
  sleep 0.2
done
: >"${1%/*}/.killed"
"""
REFUSALS = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "disk quota exceeded",
    errno.EROFS: "read-only file system",
    errno.EACCES: "permission denied",
    errno.EPERM: "not permitted",
}


class Staging:
    """The locked, empty folder in which ``final`` is made; :meth:`commit` gives it its name."""

    def __init__(self, final: Path, fd: int) -> None:
        self.final = final
        self.path = building(final)
        self.fd = fd

    def empty(self) -> None:
        """Remove what was made in it so far."""
        _empty(self.path)

    def commit(self) -> None:
        """Write everything through to the disk, then rename."""
        sync(self.path)
        self.path.rename(self.final)
        sync_folder(self.final.parent)


def building(final: Path) -> Path:
    """The name under which ``final`` is made."""
    return final.with_name(final.name + SUFFIX)


@contextlib.contextmanager
def staged(final: Path, wait_s: float, waiting: Callable[[float], None]) -> Iterator[Optional[Staging]]:
    """Lock and empty ``<final>.building``; it is removed at the end unless it was committed.

    Yields None when ``final`` is there, or appeared while another process held the lock. ``waiting`` is
    called each second with the seconds left. Raises :class:`AgentError` (exit 4) when it is still held after
    ``wait_s``.
    """
    fd = _lock(final, wait_s, waiting)
    if fd is None:
        yield None
        return
    staging = Staging(final, fd)
    try:
        with _kept(staging.path, fd):
            _empty(staging.path)
            yield staging
    finally:
        os.close(fd)


@contextlib.contextmanager
def _kept(path: Path, fd: int) -> Iterator[None]:
    """The folder goes at the end; by the keeper where this process does not come to it."""
    keeper = subprocess.Popen(
        ["sh", "-c", KEEPER, "fleetctl-keeper", str(path), str(fd)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(fd,),
        start_new_session=True,
    )
    try:
        yield
    finally:
        _remove(path)
        with contextlib.suppress(OSError):
            keeper.communicate(b"done\n")


def was_killed(folder: Path) -> bool:
    """Whether a keeper had to remove something in the folder since this was asked last."""
    try:
        (folder / KILLED).unlink()
    except FileNotFoundError:
        return False
    return True


def remove_leftovers(folder: Path, names: str = "*" + SUFFIX) -> int:
    """Remove each folder of such a name that no process holds; how many there were."""
    removed = 0
    for path in _unheld(folder, names):
        _remove(path)
        removed += 1
    return removed


def leftovers(folder: Path, names: str = "*" + SUFFIX) -> List[Path]:
    """What :func:`remove_leftovers` would remove."""
    return list(_unheld(folder, names))


def _unheld(folder: Path, names: str) -> Iterator[Path]:
    """Each folder of such a name that no process holds, locked while the caller has it."""
    for path in sorted(folder.glob(names)):
        fd = _open(path)
        if fd is None:
            continue
        try:
            if _try_lock(fd) and _same(fd, path):
                yield path
        finally:
            os.close(fd)


def _lock(final: Path, wait_s: float, waiting: Callable[[float], None]) -> Optional[int]:
    path, deadline, told = building(final), time.monotonic() + wait_s, 0.0
    while not final.exists():
        path.mkdir(parents=True, exist_ok=True)
        fd = _open(path)
        if fd is None:
            continue
        while not _try_lock(fd):
            left = deadline - time.monotonic()
            if left <= 0:
                os.close(fd)
                raise AgentError(
                    f"another process is making {final.name} and has not finished within {wait_s:g} s",
                    where=str(path),
                    fix=f"wait for it, or see who it is: fuser -v {path}",
                    exit=LOCKED,
                )
            if time.monotonic() - told >= 1:
                told = time.monotonic()
                waiting(left)
            time.sleep(0.05)
        if _same(fd, path) and not final.exists():
            return fd
        os.close(fd)
    return None


def _open(path: Path) -> Optional[int]:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _same(fd: int, path: Path) -> bool:
    """Whether ``path`` still names the folder that was locked (its holder may have renamed or removed it)."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _empty(path: Path) -> None:
    import shutil

    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _remove(path: Path) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def sync(path: Path) -> None:
    """Write the file system of ``path`` through to the disk."""
    subprocess.run(["sync", "-f", str(path)], check=False)


def free_bytes(path: Path) -> int:
    """Bytes that can be written on the file system of ``path``, or of its nearest parent that exists."""
    state = os.statvfs(_existing(path))
    return state.f_bavail * state.f_frsize


def device(path: Path) -> int:
    """The number of the file system that ``path`` is or will be on."""
    return _existing(path).stat().st_dev


def _existing(path: Path) -> Path:
    """``path`` or its nearest parent that exists."""
    return next(place for place in (path, *path.parents) if place.exists())


@contextlib.contextmanager
def disk_errors(path: Path, needed: int) -> Iterator[None]:
    """Turn an OSError by which the disk refuses into an :class:`AgentError` (exit 5) with the figures."""
    try:
        yield
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        raise refused(path, needed, REFUSALS[error.errno], str(error)) from error


def refused(path: Path, needed: int, reason: str, evidence: str) -> AgentError:
    """The error for a disk that is full or not writable: path, needed and free bytes."""
    free = free_bytes(path)
    full = reason in (REFUSALS[errno.ENOSPC], REFUSALS[errno.EDQUOT])
    inodes = f", {os.statvfs(_existing(path)).f_favail:,} inodes free" if full and free >= needed else ""
    return AgentError(
        f"cannot write {path}: {reason} ({needed:,} bytes needed, {free:,} free{inodes})",
        where=str(path),
        fix="free some space there (old environments, models, logs)"
        if full
        else "make the folder writable for root",
        evidence=evidence.splitlines()[-10:],
        exit=PREFLIGHT,
    )
