"""Logs of any size as blocks of whole lines: compressed or not, in UTF-8, UTF-16 or Latin-1."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from fleetctl.errors import FleetError

BLOCK = 1 << 18
LONGEST_LINE = 1 << 16
SNIFFED = 4096
DAMAGED = (OSError, EOFError, lzma.LZMAError, ValueError, UnicodeError)
_OPENERS: tuple[tuple[bytes, Any], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\x00", lzma.open),
)
_NOT_LOGS = {
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"\x7fELF": "a program",
    b"LPKSHHRH": "a binary journal",
}
_MARKS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class NotALogError(Exception):
    """The file holds something else; the text says what and how to go on."""


def open_log(path: str | Path) -> BinaryIO:
    """A log's bytes, decompressed; ``-`` is standard input. A file that cannot be opened: exit code 2."""
    if str(path) == "-":
        return decompressed(sys.stdin.buffer)
    try:
        return decompressed(Path(path).open("rb"))
    except OSError as error:
        raise FleetError(
            f"the log cannot be read: {error.strerror or error}",
            where=str(path),
            fix="name a file that is there, or - for standard input",
        ) from error


def decompressed(stream: IO[bytes]) -> BinaryIO:
    """The stream, or what is in it where it is compressed by gzip, bzip2 or xz."""
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(cast("Any", stream))
    head = buffered.peek(8)[:8]
    for magic, opener in _OPENERS:
        if head.startswith(magic):
            return cast("BinaryIO", opener(buffered))
    return buffered


def is_empty(stream: BinaryIO) -> bool:
    """Whether nothing is in it; what is damaged is not empty."""
    try:
        return not cast("Any", stream).peek(1)
    except DAMAGED:
        return False


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks of whole lines as UTF-8-like bytes, each ended by a newline but perhaps the last.

    UTF-16 is transcoded, Latin-1 left as it is (signatures are ASCII). A line over 64 KiB is cut: its first and its
    last 32 KiB remain, one line still. A stream that breaks off ends there.
    """
    rest = b""
    for data in _decoded(stream):
        end = data.rfind(b"\n") + 1
        if not end:
            rest = shortened(rest + data)
            continue
        block = rest + data[:end]
        rest = data[end:]
        yield block if _is_short(block) else b"\n".join(map(shortened, block.split(b"\n")))
    if rest:
        yield shortened(rest)


def shortened(line: bytes) -> bytes:
    """A line of at most 64 KiB: its beginning and its end."""
    half = LONGEST_LINE // 2
    return line if len(line) <= LONGEST_LINE else line[:half] + line[-half:]


def _is_short(block: bytes) -> bool:
    """Whether no line in the block can be over the limit; false may be wrong."""
    step = LONGEST_LINE
    return all(b"\n" in block[at : at + step] for at in range(0, len(block), step)) and len(block) < 4 * BLOCK


def _decoded(stream: BinaryIO) -> Iterator[bytes]:
    head = _read(stream, SNIFFED)
    if magic := next((kind for start, kind in _NOT_LOGS.items() if head.startswith(start)), None):
        fix = "write it as text first (journalctl --file, zstd -dc, unzip -p) and pass it as --log -"
        raise NotALogError(f"this is {magic}, not a log; {fix}")
    encoding, mark = _encoding(head)
    head = head[mark:]
    if encoding is None:
        while head:
            yield head
            head = _read(stream, BLOCK)
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    while head:
        yield decoder.decode(head).encode(errors="replace")
        head = _read(stream, BLOCK)


def _encoding(head: bytes) -> tuple[str | None, int]:
    if head.startswith(codecs.BOM_UTF8):
        return None, len(codecs.BOM_UTF8)
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name, len(mark)
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if len(head) >= 8 and max(even, odd) > len(head) // 4 and min(even, odd) < len(head) // 16:
        return ("utf-16-le" if odd > even else "utf-16-be"), 0
    return None, 0


def _read(stream: BinaryIO, size: int) -> bytes:
    try:
        return stream.read(size) or b""
    except DAMAGED:
        return b""
