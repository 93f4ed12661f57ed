"""The file of ``-o`` and the like, looked at before the work whose outcome goes there."""

from __future__ import annotations

import os
from pathlib import Path

from fleetctl.errors import FleetError


def require_place(file: Path) -> None:
    """FleetError (exit 2) where no file can be written at ``file``."""
    folder = file.absolute().parent
    if file.is_dir():
        raise FleetError("is a folder, and a file is to be written", where=str(file), fix="-o FOLDER/FILE")
    if not folder.is_dir():
        raise FleetError(
            f"there is no folder {folder}",
            where=f"-o {file}",
            fix="make it first, or name a file in a folder that is there",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FleetError(
            f"nothing can be written in {folder}", where=f"-o {file}", fix="name a file in another folder"
        )


def require_folder(folder: Path, option: str) -> None:
    """FleetError (exit 2) where there is no folder ``folder`` to write in, and none can be made."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise FleetError(f"{there} is no folder", where=f"{option} {folder}", fix="name another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise FleetError(
            f"nothing can be written in {there}", where=f"{option} {folder}", fix="name another folder"
        )
