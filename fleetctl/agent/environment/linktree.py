"""Bring a folder's files into another one as hard links, reflinks or copies.

Nothing under the new folder may be opened for writing: what is to change there is written anew and renamed
(:mod:`fleetctl.agent.environment.rewrite`), so the files that share an inode with it stay as they are.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, Iterable, List, Tuple

from fleetctl.agent.capture.foldertree import Tree

HARDLINK, REFLINK, COPY = "hardlink", "reflink", "copy"
FICLONE = 0x40049409
PARALLEL = 4
DEPTH = 3
Share = Tuple[List[str], List[str]]
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


def bring(tree: Tree, paths: Iterable[str], target: str, method: str) -> None:
    """The folders of ``tree`` and the files ``paths`` of it to ``target``, which is there and empty.

    Packages side by side in some threads: making folders and links is the kernel's work, not Python's. Folders
    are writable for their owner, whatever theirs are. A file that refuses the method is copied.
    """
    shares: Dict[str, Share] = {}
    for folder in tree.folders[1:]:
        if folder.count("/") < DEPTH:
            os.mkdir(f"{target}/{folder}", 0o755)
        else:
            shares.setdefault(_package(folder), ([], []))[0].append(folder)
    for path in paths:
        shares.setdefault(_package(path.rpartition("/")[0]), ([], []))[1].append(path)

    def work(share: Share) -> None:
        for folder in share[0]:
            os.mkdir(f"{target}/{folder}", 0o755)
        if method == HARDLINK:
            _link(tree.root, target, share[1])
        else:
            for path in share[1]:
                place(f"{tree.root}/{path}", f"{target}/{path}", method)

    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(work, shares.values()))


def _package(folder: str) -> str:
    """What belongs to one thread: ``lib/python3.x/site-packages/x`` and all below, or what lies above in itself."""
    return "/".join(folder.split("/", DEPTH + 1)[: DEPTH + 1])


def _link(source: str, target: str, paths: List[str]) -> None:
    link = os.link
    for path in paths:
        try:
            link(f"{source}/{path}", f"{target}/{path}")
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
            place(f"{source}/{path}", f"{target}/{path}", REFLINK)


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
