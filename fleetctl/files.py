"""Files that an operator names: replaced whole, except where something else than a regular file stands there."""

from __future__ import annotations

from pathlib import Path

from fleetctl.agent.files import write


def save(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` in one step; a device, a pipe or a link stays, and is written into. Raises OSError."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        with path.open("w", encoding="utf-8") as out:
            out.write(text)
    else:
        write(path, text)
