"""Files that are whole or not there: written beside their place, synced, renamed."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Put ``text`` at ``path`` in one step; a crash or a full disk leaves what was there. An OSError names it."""
    try:
        _write(path, text, mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _write(path: Path, text: str, mode: int) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
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


def read_json(path: Path) -> Any:
    """The JSON document at ``path``; None where it is missing or not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def sync_folder(folder: Path) -> None:
    """Make renames and removals in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
