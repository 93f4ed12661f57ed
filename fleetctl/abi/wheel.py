"""The compiled libraries in a wheel, read in the archive: each member once, nothing of it unpacked to stay."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
import zlib
from contextlib import contextmanager
from typing import Any, BinaryIO, Iterator, cast

from fleetctl.abi.elf import Library, read_library
from fleetctl.abi.errors import AbiError
from fleetctl.abi.source import CHUNK, File, opened
from fleetctl.abi.stream import LeftOutError, sparse

MAX_MEMBER = 16 << 30

_NAME = re.compile(r".*\.so(\.\d[\w.]*)?")
_DAMAGES = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)


def wheel_libraries(file: File, *, symbols: bool = True, gpu: bool = True) -> Iterator[Library]:
    """Each library of a wheel (path or open file), its ``path`` the member's name; in the archive's order.

    Members that are called ``.so`` and are not ELF (a linker's script) are left out. Raises :class:`AbiError` for
    a damaged archive or library.
    """
    name = os.fspath(file) if isinstance(file, (str, os.PathLike)) else str(getattr(file, "name", ""))
    with _damage(name), zipfile.ZipFile(_binary(file)) as archive:
        for member in archive.infolist():
            if not _NAME.fullmatch(member.filename) or member.file_size < 4:
                continue
            if member.file_size > MAX_MEMBER:
                raise AbiError(f"{member.filename} is too large: {member.file_size} bytes", name)
            with archive.open(member) as stream:
                if stream.read(4) != b"\x7fELF":
                    continue
            yield _read(archive, member, symbols, gpu)


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, symbols: bool, gpu: bool) -> Library:
    try:
        with (
            archive.open(member) as stream,
            sparse(_binary(stream), member.file_size, member.filename) as source,
        ):
            return read_library(source, symbols=symbols, gpu=gpu)
    except LeftOutError:
        with archive.open(member) as stream, tempfile.TemporaryFile() as whole:
            shutil.copyfileobj(stream, whole, CHUNK)
            with opened(_binary(whole)) as source:
                source.name = member.filename
                return read_library(source, symbols=symbols, gpu=gpu)


def _binary(file: Any) -> BinaryIO:
    return cast("BinaryIO", file)


@contextmanager
def _damage(name: str) -> Iterator[None]:
    """What the archive's reader says of a damaged one, as :class:`AbiError`."""
    try:
        yield
    except _DAMAGES as error:
        raise AbiError(f"the archive cannot be read: {error}", name) from error
