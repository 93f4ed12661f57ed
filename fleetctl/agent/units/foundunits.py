"""Units that serve models, as their files say it: those of running servers, and those that only stand by."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional

from fleetctl.agent import secrets
from fleetctl.agent.host import interpreters, serving
from fleetctl.agent.model import modelpaths
from fleetctl.agent.units import systemd, unitfile

Json = Dict[str, Any]


def units(running: List[str]) -> Dict[str, Json]:
    """The servers' units, and those in /etc/systemd/system that would start a known server."""
    own = [path.name for path in sorted(systemd.UNITS.glob("*.service")) if path.is_file()]
    serving_units = [name for name in own if name not in running and _starts_server(name)]
    names = list(dict.fromkeys([*running, *serving_units]))
    shown = systemd.show([name for name in names if "@." not in name])
    return {name: _unit(name, shown.get(name, {})) for name in names}


def _starts_server(name: str) -> bool:
    found = unitfile.settings([_text(str(systemd.UNITS / name)) or ""])
    lines = found.get("ExecStart", [])
    return any(serving.command_within(unitfile.words(line.lstrip("@-:+!"))) for line in lines)


def _unit(name: str, properties: Dict[str, str]) -> Json:
    """A unit as its files say it; the values of secrets are left out, and then the file's text too."""
    fragment = properties.get("FragmentPath") or str(systemd.UNITS / name)
    drops = properties.get("DropInPaths", "").split()
    text = _text(fragment)
    texts = [text or "", *(_text(path) or "" for path in drops)]
    found = unitfile.settings(texts)
    known = unitfile.variables(found)
    files = [word.lstrip("-") for value in found.get("EnvironmentFile", []) for word in unitfile.words(value)]
    lines = [unitfile.exec_words(line, name, known) for line in found.get("ExecStart", [])]
    command = next((one for one in map(serving.command_within, lines) if one), None)
    hidden = list(dict.fromkeys(one for text in texts for one in secrets.within(text)))
    own_hidden = secrets.within(text or "")
    described: Optional[Json] = None
    if command is not None:
        arguments, named = secrets.without(command["arguments"])
        cwd = (found.get("WorkingDirectory") or ["/"])[-1].lstrip("-")
        described = {**command, "arguments": arguments, "secrets": named, "port": serving.port_of(command)}
        described["environment"] = interpreters.environment(
            command["program"], command["script"], known, cwd, None
        )
        described.update(modelpaths.described(arguments, cwd, known))
    return {
        "fragment": fragment,
        "text": None if own_hidden else text,
        "drop_ins": drops,
        "secrets": hidden,
        "active": properties.get("ActiveState", ""),
        "enabled": properties.get("UnitFileState", ""),
        "exec_starts": len(lines),
        "shell": _shell(lines),
        "command": described,
        "variables": {
            name: None if secrets.is_secret(name, value) else value for name, value in known.items()
        },
        "environment_files": files,
        "stop_s": (found.get("TimeoutStopSec") or [""])[-1],
        "start_limit_s": (unitfile.settings(texts, "Unit").get("StartLimitIntervalSec") or [""])[-1],
        "fleetctl": {key: values[-1] for key, values in unitfile.settings(texts, "X-Fleetctl").items()},
    }


def _shell(lines: List[List[str]]) -> Optional[str]:
    """The script or shell line that a unit starts in place of a server, where it does."""
    for words in lines:
        name = words[0].rpartition("/")[2] if words else ""
        if name in ("sh", "bash", "dash", "zsh") or name.endswith(".sh"):
            kept, _ = secrets.without(words)
            return " ".join("…" if word is None or secrets.within(word) else word for word in kept)[:300]
    return None


def _text(path: str) -> Optional[str]:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
