"""Bring a folder's files into another one as hard links, reflinks or copies.

Nothing under the new folder may be opened for writing: what is to change there is written anew and renamed
(:mod:`fleetctl.agent.rewrite`), so the files that share an inode with it stay as they are.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Iterable, List

from fleetctl.agent.foldertree import Tree

HARDLINK, REFLINK, COPY = "hardlink", "reflink", "copy"
FICLONE = 0x40049409
PARALLEL = 4
NO_LINK = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES}
NO_CLONE = {errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EBADF}


def choose(source: str, folder: str, immutable: bool) -> str:
    """How ``source``'s folder comes to ``folder``, found by trying with that one file.

    A hard link is one file under two names. That is safe only where nobody writes to either: for
    environments that fleetctl made. Anything else (a venv that pip or an editor may still change in place)
    is cloned by the file system where it can, and copied where it cannot.
    """
    trial = os.path.join(folder, ".fleetctl-trial")
    try:
        if immutable and _linked(source, trial):
            return HARDLINK
        return REFLINK if _cloned(source, trial, 0o600) else COPY
    finally:
        if os.path.lexists(trial):
            os.unlink(trial)


def make_folders(tree: Tree, target: str) -> None:
    """The folders of ``tree`` under ``target``, which is there; writable for the owner, whatever theirs are."""
    for folder in tree.folders[1:]:
        os.mkdir(f"{target}/{folder}", 0o755)


def bring(source: str, target: str, paths: Iterable[str], method: str) -> None:
    """Each of ``paths`` from ``source`` to ``target``; a file that refuses the method is copied."""
    if method == HARDLINK:
        for path in paths:
            try:
                os.link(f"{source}/{path}", f"{target}/{path}")
            except OSError as error:
                if error.errno not in NO_LINK:
                    raise
                place(f"{source}/{path}", f"{target}/{path}", REFLINK)
        return
    names = list(paths)
    shares = [names[start::PARALLEL] for start in range(PARALLEL)]

    def share(part: List[str]) -> None:
        for path in part:
            place(f"{source}/{path}", f"{target}/{path}", method)

    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(share, shares))


def place(source: str, target: str, method: str) -> None:
    """One file, with its mode and times; by the next best method where the file system refuses this one."""
    if method == HARDLINK and _linked(source, target):
        return
    state = os.stat(source)
    mode = state.st_mode & 0o777 | 0o600
    if method == COPY or not _cloned(source, target, mode):
        shutil.copyfile(source, target)
        os.chmod(target, mode)
    os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))


def _linked(source: str, target: str) -> bool:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        return False
    return True


def _cloned(source: str, target: str, mode: int) -> bool:
    """A reflink; False, and no file, where the file system has none."""
    with open(source, "rb") as old:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            os.fchmod(handle, mode)
            fcntl.ioctl(handle, FICLONE, old.fileno())
        except OSError as error:
            os.unlink(target)
            if error.errno not in NO_CLONE:
                raise
            return False
        finally:
            os.close(handle)
    return True
