"""What an environment or a model that fleetctl brought lacks by now; seen by names and sizes, nothing is read whole."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

from fleetctl.agent.environment.environments import size
from fleetctl.agent.files import read_json
from fleetctl.agent.paths import ENVS, MARKER, MODEL_MARKER

ENVIRONMENTS = Path(ENVS)
WHEEL_INFO = re.compile(r"([^-]+-[^-]+)-")


def environment_damage(path: Path) -> List[str]:
    """What an environment that fleetctl built lacks of its distributions' files; nothing of any other folder."""
    marker = _json(path / MARKER)
    if path.parent != ENVIRONMENTS or not marker:
        return []
    lost = []
    infos = set()
    for site in path.glob("lib/python3.*/site-packages"):
        for info in site.glob("*.dist-info"):
            infos.add(_plain(info.name[: -len(".dist-info")]))
            lost += [str(place) for place in _recorded(site, info) if not os.path.lexists(place)]
    for wheel in marker.get("wheels") or []:
        named = WHEEL_INFO.match(wheel.get("filename", ""))
        if named and _plain(named[1]) not in infos:
            lost.append(f"{wheel['filename']}: its .dist-info")
    return sorted(lost)


def model_damage(path: Path) -> List[str]:
    """The files of a model that fleetctl sent which are gone or have another size than was sent."""
    files = _json(path / MODEL_MARKER).get("files")
    sent: Dict[str, int] = files if isinstance(files, dict) else {}
    there = {name: size(path / name) for name in sent}
    wrong = [name for name in sent if there[name] != sent[name]]
    return [f"{path / name}: {_bytes(there[name])}, {sent[name]:,} were sent" for name in wrong]


def look(args: Dict[str, Any], emit: Callable[[Dict[str, Any]], None]) -> List[str]:
    """The ``environment.damage`` call: :func:`environment_damage` of ``path``."""
    return environment_damage(Path(args["path"]))


def advice(path: Path) -> str:
    """How what is damaged comes back."""
    return f"`rm -rf {path}` there, then deploy again: it is brought anew"


def _recorded(site: Path, info: Path) -> Iterator[str]:
    """The paths in a RECORD, byte code left out: Python makes that anew."""
    try:
        with (info / "RECORD").open(encoding="utf-8", newline="") as record:
            for row in csv.reader(record):
                if row and not row[0].endswith(".pyc"):
                    yield os.path.normpath(f"{site}/{row[0]}")
    except (OSError, UnicodeDecodeError, csv.Error):
        yield f"{info}/RECORD"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _bytes(count: int) -> str:
    return "gone" if count < 0 else f"{count:,} bytes"


def _json(path: Path) -> Dict[str, Any]:
    content = read_json(path)
    return content if isinstance(content, dict) else {}
