"""A service's secrets: a file that only root reads, named by the unit's ``EnvironmentFile=`` and never changed.

Other values make another file, so the unit that a rollback puts back still names its own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from fleetctl.agent import files
from fleetctl.agent.environment.users import users
from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.paths import SECRETS
from fleetctl.agent.rollout import record

Json = Dict[str, Any]
FOLDER = Path(SECRETS)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SPECIAL = re.compile(r'["\\$`]')


def find(args: Json, emit: Callable[[Json], None]) -> Json:
    """The ``secrets.find`` call: ``{"path"}`` of the service's file with exactly these ``values``, or None."""
    wanted = text(args["values"])
    service = record.checked_name(args["service"], "service name")
    for path in sorted(FOLDER.glob(f"{service}-????????.env")) if FOLDER.is_dir() else []:
        if is_private(path) and path.read_text(encoding="utf-8") == wanted:
            return {"path": str(path)}
    return {"path": None}


def keep(args: Json, emit: Callable[[Json], None]) -> Json:
    """The ``secrets.keep`` call: write ``values`` to ``path``, one that is not there yet."""
    path = Path(args["path"])
    name = record.checked_name(path.name, "secrets file")
    if path.parent != FOLDER or not name.endswith(".env"):
        raise AgentError(f"secrets go to {FOLDER} and nowhere else", where=str(path), exit=PREFLIGHT)
    FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
    FOLDER.chmod(0o700)
    if path.exists():
        raise AgentError(
            "a secrets file is never changed", where=str(path), fix="deploy again", exit=PREFLIGHT
        )
    files.write(path, text(args["values"]), 0o600)
    _prune(name[: -len("-01234567.env")], path)
    return {"path": str(path)}


def _prune(service: str, new: Path) -> None:
    """Remove the service's files that no unit, no slot (its way back too) and no unfinished rollout names."""
    slots = "".join(path.read_text(encoding="utf-8") for path in record.SLOTS.glob("*.json"))
    old = [path for path in FOLDER.glob(f"{service}-????????.env") if path != new and str(path) not in slots]
    used = users(record.HOME, [str(path) for path in old])
    for path in old:
        if str(path) not in used:
            path.unlink()


def text(values: Dict[str, str]) -> str:
    """The file's text, as systemd.exec(5) reads an ``EnvironmentFile=``."""
    lines = []
    for name, value in sorted(values.items()):
        if not VARIABLE.fullmatch(name) or any(character < " " for character in value):
            raise AgentError(f"the secret {name} is no single line of text", exit=PREFLIGHT)
        lines.append('{}="{}"\n'.format(name, SPECIAL.sub(lambda match: "\\" + match[0], value)))
    return "".join(lines)


def is_private(path: Path) -> bool:
    """Whether nobody but root reads or writes the file."""
    state = os.lstat(path)
    return state.st_uid == os.getuid() and state.st_mode & 0o077 == 0


def missing(unit_text: Optional[str]) -> Optional[str]:
    """The secrets file that a unit's text names and that is not there."""
    for line in (unit_text or "").splitlines():
        path = line.partition("EnvironmentFile=")[2] if line.startswith("EnvironmentFile=") else ""
        if path.startswith(f"{FOLDER}/") and not Path(path).exists():
            return path
    return None
