"""A library read once, front to back, without the code for GPUs in it: that is most of it, and never looked at.

What is kept goes to memory, beyond ``IN_MEMORY`` bytes to a temporary file.
"""

from __future__ import annotations

import bisect
import tempfile
from contextlib import contextmanager
from typing import BinaryIO, Iterator, List

from fleetctl.abi import fatbin
from fleetctl.abi.errors import AbiError
from fleetctl.abi.source import CHUNK, Source

IN_MEMORY = 64 << 20


class LeftOutError(Exception):
    """Bytes are wanted that were taken for GPU code and left out: the file must be unpacked whole."""


@contextmanager
def sparse(stream: BinaryIO, size: int, name: str) -> Iterator[Source]:
    """A :class:`Source` of a stream of ``size`` bytes, with zeros for the GPU code's payload.

    Raises :class:`LeftOutError`, then or at a read, for a file in which only seems to be GPU code.
    """
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as file:
        kept = _Kept(file)  # type: ignore[arg-type]
        _Filter(stream, size, name, kept).run()
        yield _SparseSource(name, size, kept)


class _Kept:
    """Pieces of a file by their offsets."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._begins: List[int] = []
        self._ends: List[int] = []
        self._places: List[int] = []
        self._written = 0

    def add(self, offset: int, data: bytes) -> None:
        if self._ends and self._ends[-1] == offset:
            self._ends[-1] += len(data)
        else:
            self._begins.append(offset)
            self._ends.append(offset + len(data))
            self._places.append(self._written)
        self._file.write(data)
        self._written += len(data)

    def whole(self, offset: int, size: int) -> bool:
        index = bisect.bisect_right(self._begins, offset) - 1
        return size == 0 or (index >= 0 and offset + size <= self._ends[index])

    def pread(self, size: int, offset: int) -> bytes:
        """Bytes of a range, with zeros in the gaps."""
        data = bytearray(size)
        index = max(bisect.bisect_right(self._begins, offset) - 1, 0)
        while index < len(self._begins) and self._begins[index] < offset + size:
            begin, end = max(self._begins[index], offset), min(self._ends[index], offset + size)
            if begin < end:
                self._file.seek(self._places[index] + begin - self._begins[index])
                data[begin - offset : end - offset] = self._file.read(end - begin)
            index += 1
        return bytes(data)


class _SparseSource(Source):
    def __init__(self, name: str, size: int, kept: _Kept) -> None:
        super().__init__(name, size, kept.pread)
        self._kept = kept

    def read(self, offset: int, size: int, what: str) -> bytes:
        if offset >= 0 and 0 <= size <= self.size - offset and not self._kept.whole(offset, size):
            raise LeftOutError(what)
        return super().read(offset, size, what)


class _Filter:
    """Passes a stream on to ``kept``, but for the payload of fat binaries."""

    def __init__(self, stream: BinaryIO, size: int, name: str, kept: _Kept) -> None:
        self._stream, self._size, self._name, self._kept = stream, size, name, kept
        self._held = b""
        self._begin = 0  # of what is still to be passed on, in ``_held``
        self._at = 0  # the same in the file

    def run(self) -> None:
        while self._fill(fatbin.CONTAINER.size):
            found = self._held.find(fatbin.MAGIC, self._begin)
            if found < 0:
                self._keep(len(self._held) - self._begin - len(fatbin.MAGIC) + 1)
            elif found > self._begin:
                self._keep(found - self._begin)
            else:
                stop = fatbin.container_end(self._head(fatbin.CONTAINER.size), self._at)
                if stop is None or stop > self._size:
                    self._keep(len(fatbin.MAGIC))
                else:
                    self._keep(fatbin.CONTAINER.size)
                    self._pass_entries(stop)
        self._keep(len(self._held) - self._begin)
        if self._at != self._size:
            raise AbiError(f"{self._at} bytes where {self._size} were announced", self._name)

    def _pass_entries(self, stop: int) -> None:
        while self._at < stop:
            self._fill(fatbin.HEADER.size)
            entry = fatbin.parse(self._head(fatbin.HEADER.size), self._at)
            if entry is None or self._at + entry.size > stop:
                raise LeftOutError("an entry that is none")
            self._keep(fatbin.HEADER.size)
            self._drop(entry.size - fatbin.HEADER.size)

    def _head(self, size: int) -> bytes:
        return self._held[self._begin : self._begin + size]

    def _fill(self, size: int) -> bool:
        """Hold at least ``size`` bytes, if there are so many left."""
        while len(self._held) - self._begin < size:
            data = self._stream.read(CHUNK)
            if not data:
                return False
            self._held = self._held[self._begin :] + data
            self._begin = 0
        return True

    def _keep(self, size: int) -> None:
        if size:
            self._kept.add(self._at, self._head(size))
            self._forget(size)

    def _drop(self, size: int) -> None:
        while size > len(self._held) - self._begin:
            size -= len(self._held) - self._begin
            self._forget(len(self._held) - self._begin)
            if not self._fill(1):
                return
        self._forget(size)

    def _forget(self, size: int) -> None:
        self._begin += size
        self._at += size
