"""Change a file of a derived environment: written beside its place and renamed, so hard links are broken."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

SUFFIX = ".fleetctl-new"


def replace_bytes(path: str, content: bytes, mode: Optional[int] = None) -> None:
    """Put ``content`` at ``path``; permissions are those of the file that was there, or ``mode``."""
    if mode is None:
        try:
            mode = os.stat(path).st_mode & 0o777
        except FileNotFoundError:
            mode = 0o644
    draft = path + SUFFIX
    with open(draft, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
    os.replace(draft, path)


def forget_compiled(path: str) -> None:
    """Remove the byte code of the source at ``path``: its time and size may say that it is still valid."""
    source = Path(path)
    if source.suffix != ".py":
        return
    for compiled in (source.parent / "__pycache__").glob(glob_escaped(source.stem) + ".*.pyc"):
        compiled.unlink()


def glob_escaped(text: str) -> str:
    """``text`` as a pattern that matches itself."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in text)


def prune_empty(folder: str, top: str) -> None:
    """Remove ``folder`` and its parents below ``top`` while they are empty (but for an empty byte-code cache)."""
    while folder.startswith(top + "/"):
        for inside in (f"{folder}/__pycache__", folder):
            try:
                os.rmdir(inside)
            except OSError:
                if inside == folder:
                    return
        folder = os.path.dirname(folder)
