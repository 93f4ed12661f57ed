"""Bounded reads at an offset, of a path or of an open file; nothing past the end, nothing by a hostile size."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from typing import BinaryIO, Callable, Iterator, Union

from fleetctl.abi.errors import AbiError

CHUNK = 1 << 20

File = Union[str, "os.PathLike[str]", BinaryIO]


class Source:
    """A file of a known ``size`` (bytes); ``name`` is for errors."""

    def __init__(self, name: str, size: int, pread: Callable[[int, int], bytes]) -> None:
        self.name = name
        self.size = size
        self._pread = pread

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Exactly ``size`` bytes at ``offset``; :class:`AbiError` naming ``what`` where the file ends before."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise self.error(f"{what} is outside the file (truncated?)")
        data = self._pread(size, offset)
        if len(data) != size:
            raise self.error(f"{what} cannot be read whole: the file changed")
        return data

    def find(self, needle: bytes, begin: int, end: int) -> int:
        """The first offset of ``needle`` between ``begin`` and ``end``, or -1; a chunk in memory at a time."""
        end = min(end, self.size)
        while begin + len(needle) <= end:
            data = self._pread(min(CHUNK, end - begin), begin)
            at = data.find(needle)
            if at >= 0:
                return begin + at
            if len(data) < len(needle):
                return -1
            begin += len(data) - len(needle) + 1
        return -1

    def error(self, what: str) -> AbiError:
        """An :class:`AbiError` about this file."""
        return AbiError(what, self.name)


@contextmanager
def opened(file: File) -> Iterator[Source]:
    """A :class:`Source` of a path (regular files only) or of an open seekable file, which stays open."""
    if not isinstance(file, (str, os.PathLike)):
        yield Source(str(getattr(file, "name", "")), file.seek(0, os.SEEK_END), _seeking(file))
        return
    path = os.fspath(file)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise AbiError(f"cannot be opened: {getattr(error, 'strerror', None) or error}", path) from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise AbiError("not a regular file", path)
        yield Source(path, status.st_size, lambda size, offset: os.pread(fd, size, offset))
    except OSError as error:
        raise AbiError(f"cannot be read: {error.strerror}", path) from error
    finally:
        os.close(fd)


def _seeking(file: BinaryIO) -> Callable[[int, int], bytes]:
    def pread(size: int, offset: int) -> bytes:
        file.seek(offset)
        return file.read(size)

    return pread
