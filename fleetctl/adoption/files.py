"""The files of an adopted host on the operator's disk: never over what is there."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.adoption.compose import Files
from fleetctl.errors import FleetError
from fleetctl.inventory.document import read
from fleetctl.inventory.models import Ssh
from fleetctl.services.unit import TEMPLATES

HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
DESTINATION = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@:\s\[\]]+)(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True)
class Destination:
    """What the transport needs of a host that no inventory has yet."""

    name: str
    ssh: Ssh


def destination(name: str, text: str | None, file: Path) -> tuple[Destination, dict[str, Any]]:
    """How to reach a host, and the ``ssh`` that its file is to say: from ``--ssh``, or the file that is there.

    Raises ``FleetError`` (exit 2) for a name or a destination that cannot be one.
    """
    if not HOST.fullmatch(name):
        raise FleetError(
            f"{name} cannot be a host's name in an inventory",
            fix="use lower case letters, digits, - and .: fleetctl adopt NAME --ssh user@address[:port]",
        )
    if text is not None:
        found = _parse(text)
        return Destination(name, Ssh.model_validate(found)), found
    there = read(file).data if file.is_file() else None
    said = there.get("ssh") if isinstance(there, dict) and there.get("host") == name else None
    if not isinstance(said, dict):
        return Destination(name, Ssh()), {}
    try:
        return Destination(name, Ssh.model_validate(said)), said
    except ValueError:
        fix = "correct it, or name the host's address: --ssh user@address[:port]"
        raise FleetError("the file's ssh: is wrong", where=str(file), fix=fix) from None


def _parse(text: str) -> dict[str, Any]:
    match = DESTINATION.fullmatch(text)
    port = int(match["port"] or 22) if match else 0
    if match is None or match["host"].startswith("-") or not 1 <= port <= 65535:
        raise FleetError(f"--ssh {text} is no destination", fix="write user@address, or user@address:port")
    found: dict[str, Any] = {"hostname": match["host"].strip("[]")}
    if match["user"]:
        found["user"] = match["user"]
    if match["port"]:
        found["port"] = port
    return found


def check_name(folder: Path, host: str, file: Path) -> None:
    """Refuse a host that another file of the inventory describes."""
    for path in sorted(folder.glob("*.yaml")) if folder.is_dir() else []:
        data = read(path).data
        if path.resolve() != file.resolve() and isinstance(data, dict) and data.get("host") == host:
            raise FleetError(
                f"the host {host} stands in {path.name} already",
                where=str(path),
                fix="give this one another name: fleetctl adopt NAME --ssh user@address, or write there: "
                f"-o {path}",
            )


def write(files: Files, file: Path, root: Path) -> list[Path]:
    """Write what is not there yet, templates first; the paths written, none where all is there just so.

    Raises ``FleetError`` (exit 2) with the differences where a file is there and differs: then nothing is written.
    """
    wanted = {root / TEMPLATES / name: text for name, text in files.templates.items()}
    wanted[file] = files.inventory
    there = {path: _there(path) for path in wanted}
    differing = {path: said for path, said in there.items() if said is not None and said != wanted[path]}
    if differing:
        raise FleetError(
            f"{' and '.join(_shown(path, root) for path in differing)} would change, and no file is overwritten",
            where=str(file),
            fix="take over what you want of it, write elsewhere with -o FILE, or see it whole with --stdout",
            evidence=[
                line for path, said in differing.items() for line in _diff(path, root, said, wanted[path])
            ],
        )
    written = [path for path, said in there.items() if said is None]
    for path in written:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="") as handle:
                handle.write(wanted[path])
        except OSError as error:
            raise FleetError(f"cannot be written: {error.strerror}", where=str(path)) from None
    return written


def _there(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FleetError(f"cannot be read: {error}", where=str(path)) from None


def _diff(path: Path, root: Path, before: str, after: str) -> list[str]:
    name = _shown(path, root)
    return list(
        difflib.unified_diff(before.splitlines(), after.splitlines(), name, f"{name} found", lineterm="", n=1)
    )


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
