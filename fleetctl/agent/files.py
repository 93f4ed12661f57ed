"""Files that are whole or not there: written beside their place, synced, renamed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, Optional


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Put ``text`` at ``path`` in one step; a crash or a full disk leaves what was there. An OSError names it."""
    try:
        _write(path, text, mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _write(path: Path, text: str, mode: int) -> None:
    name = str(path.parent / f".{path.name}.{os.urandom(6).hex()}")
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fchmod(out.fileno(), mode)
            os.fsync(out.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any, mode: int = 0o600) -> None:
    """:func:`write` of one JSON document."""
    write(path, json.dumps(value, indent=1, sort_keys=True) + "\n", mode)


def open_regular(path: str) -> int:
    """A descriptor to read a regular file by; never waits, as opening a fifo does. OSError for all else."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError:
        raise OSError(errno.EINVAL, "no path that a file can have", path) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "no regular file", path)
    return handle


def read_start(path: str, limit: int) -> bytes:
    """At most the first ``limit`` bytes of a regular file; OSError as :func:`open_regular`."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(limit)


def read_json(path: Path) -> Any:
    """The JSON document at ``path``; None where it is missing or not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def read_text(path: str) -> Optional[str]:
    """The text at ``path``; None where there is none to read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace") if path else None
    except OSError:
        return None


def sync_folder(folder: Path) -> None:
    """Make renames and removals in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
