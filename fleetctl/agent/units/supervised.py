"""Units on a host whose programs a supervisord runs: the same unit files, carried out by it.

A unit's file stays the one description, and its link among the wanted ones says whether it starts at boot. From it
come a program of supervisord's and a job for ``launcher.py``, which are never read back. Properties are worded as
``systemctl show`` words them, so that all else need not know who is in charge.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

from fleetctl.agent import files, paths
from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.rollout import keeper
from fleetctl.agent.units import unitfile

if TYPE_CHECKING:
    from fleetctl.agent.units.supervisord import Supervisord

SYSTEMD = Path("/run/systemd/system")
UNITS = Path("/etc/systemd/system")
WANTS = UNITS / "multi-user.target.wants"
HOME = Path(paths.ROOT) / "supervised"
LOGS = Path("/var/log/fleetctl")
STARTS = Path(paths.LOCKS) / "supervised"
GROUP = "supervisord/"
MARK = b"SUPERVISOR_PROCESS_NAME="
FIRST_PID_S = 2.0
STOPPED, STARTING, RUNNING, BACKOFF, STOPPING, EXITED, FATAL = 0, 10, 20, 30, 40, 100, 200
LIMITS = {"LimitNOFILE": "RLIMIT_NOFILE", "LimitMEMLOCK": "RLIMIT_MEMLOCK"}
STATES = {
    STOPPED: ("inactive", "dead"),
    STARTING: ("activating", "start"),
    RUNNING: ("active", "running"),
    BACKOFF: ("activating", "auto-restart"),
    STOPPING: ("deactivating", "stop"),
    FATAL: ("failed", "failed"),
}
PROGRAM = """\
; Written by fleetctl from {unit}; changes here are lost.
[program:{name}]
command=/usr/bin/env python3 -I -S {launcher} {job}
autostart={autostart}
autorestart=unexpected
exitcodes=0
startsecs=1
startretries=4
stopsignal=TERM
stopwaitsecs={stop_s}
stopasgroup={whole}
killasgroup=true
redirect_stderr=true
stdout_logfile={log}
stdout_logfile_maxbytes=100MB
stdout_logfile_backups=2
"""

ONCE = """\
; Written by fleetctl: settles a rollout that the end of the machine cut short.
[program:{name}]
command={command}
autostart=true
autorestart=false
startsecs=0
priority=1100
redirect_stderr=true
stdout_logfile={log}
stdout_logfile_maxbytes=1MB
stdout_logfile_backups=0
"""

SETTLING = "fleetctl-settle-"

Properties = Dict[str, str]


def in_charge() -> bool:
    """Whether this host has no systemd and a supervisord runs its programs; its XML-RPC is imported only then."""
    return not SYSTEMD.is_dir() and _config() is not None


@lru_cache(maxsize=1)
def _config() -> Optional[Path]:
    from fleetctl.agent.units import supervisord

    return supervisord.config_path()


@lru_cache(maxsize=4)
def _of(config: Path) -> Supervisord:
    from fleetctl.agent.units.supervisord import Supervisord

    return Supervisord(config)


def server() -> Supervisord:
    """The host's supervisord."""
    config = _config()
    if config is None:
        fix = (
            "start one: `pip install supervisor`, then supervisord with an [include] and a [unix_http_server]"
        )
        raise AgentError("neither systemd nor a supervisord runs here", fix=fix, exit=PREFLIGHT)
    return _of(config)


def name_of(unit: str) -> str:
    """The program's name; supervisord takes no colon."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", unit[: -len(".service")] if unit.endswith(".service") else unit)


def log_of(unit: str) -> Path:
    """Where the unit's words go."""
    return LOGS / f"{name_of(unit)}.log"


def show(units: Sequence[str]) -> Dict[str, Properties]:
    """The units' properties in systemd's words."""
    return {unit: _show(unit) for unit in units}


def _show(unit: str) -> Properties:
    if unit.startswith(paths.ROLLOUT_UNITS):
        return _rollout(unit)
    path = UNITS / unit
    name = name_of(unit)
    found = server().process(name) or {"state": STOPPED, "pid": 0, "start": 0, "exitstatus": 0}
    state, pid = int(found["state"]), int(found["pid"])
    active, sub = STATES.get(state, ("failed", "failed"))
    if state == STARTING and pid:
        active, sub = "active", "running"
    status = int(found["exitstatus"])
    if state == EXITED:
        active, sub = ("inactive", "dead") if status == 0 else ("failed", "failed")
    start = files.read_json(STARTS / f"{name}.json") or {}
    first = start.get("pid", pid)
    restarted = bool(pid and first and pid != first) or (state == FATAL and bool(start))
    return {
        "Id": unit,
        "LoadState": "loaded" if path.is_file() else "not-found",
        "ActiveState": active,
        "SubState": sub,
        "Result": "success" if active != "failed" else "signal" if status < 0 else "exit-code",
        "UnitFileState": _enabled(unit),
        "FragmentPath": str(path) if path.is_file() else "",
        "DropInPaths": "",
        "MainPID": str(pid),
        "NRestarts": str(int(restarted)),
        "ControlGroup": GROUP + name if found.get("start") else "",
        "ExecMainStatus": str(max(status, 0)),
        "ExecMainCode": "1" if state in (EXITED, BACKOFF, FATAL) and status > 0 else "0",
        "ActiveEnterTimestamp": _moment(found["start"]) if active == "active" else "",
        "InactiveEnterTimestamp": _moment(found.get("stop", 0)),
        "NeedDaemonReload": "no",
        "InvocationID": start.get("id") or (str(found["start"]) if found["start"] else ""),
        "Job": "0",
        "TimeoutStopUSec": "",
        "Description": "",
    }


def _rollout(unit: str) -> Properties:
    """A rollout's process, which is its keeper's and not supervisord's."""
    pid = keeper.pid_of(unit)
    active = "active" if pid else "inactive"
    return {"Id": unit, "LoadState": "loaded", "ActiveState": active, "SubState": "", "MainPID": str(pid)}


def _enabled(unit: str) -> str:
    path = UNITS / unit
    if not path.is_file():
        return ""
    if (WANTS / unit).is_symlink():
        return "enabled"
    return "disabled" if "[Install]" in path.read_text(encoding="utf-8") else "static"


def _moment(seconds: int) -> str:
    return time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) if seconds else ""


def start(unit: str) -> None:
    """Run the unit as its file is now; returns once supervisord has started it or tries again."""
    from fleetctl.agent.units import supervisord

    name, there = name_of(unit), server()
    _write(unit)
    _forget(there, name)
    there.ask("reloadConfig")
    there.tolerate([supervisord.ALREADY_ADDED], "addProcessGroup", name)
    there.tolerate([supervisord.ALREADY_STARTED], "startProcess", name, False)
    STARTS.mkdir(parents=True, exist_ok=True)
    begun = {"id": os.urandom(16).hex(), "pid": 0}
    files.write_json(STARTS / f"{name}.json", begun)
    end = time.monotonic() + FIRST_PID_S
    while time.monotonic() < end:
        found = there.process(name) or {}
        if found.get("pid") or found.get("state") not in (STOPPED, STARTING):
            files.write_json(STARTS / f"{name}.json", {**begun, "pid": int(found.get("pid") or 0)})
            return
        time.sleep(0.02)


def _forget(there: Supervisord, name: str) -> None:
    """Have supervisord drop what it knows of a program that does not run, so that it reads the new file."""
    from fleetctl.agent.units import supervisord

    with contextlib.suppress(AgentError):
        there.tolerate([supervisord.BAD_NAME], "removeProcessGroup", name)


def stop(unit: str) -> None:
    """Ask supervisord to stop it and return; it kills it after the unit's TimeoutStopSec."""
    from fleetctl.agent.units import supervisord

    codes = [supervisord.NOT_RUNNING, supervisord.BAD_NAME]
    server().tolerate(codes, "stopProcess", name_of(unit), False)


def kill(unit: str, number: str = "KILL") -> None:
    """Signal every process of the unit."""
    for pid in pids(GROUP + name_of(unit)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, getattr(signal, f"SIG{number}"))


def enable(unit: str) -> None:
    """Start it with supervisord."""
    WANTS.mkdir(parents=True, exist_ok=True)
    if not (WANTS / unit).is_symlink():
        (WANTS / unit).symlink_to(UNITS / unit)
    _write(unit)


def disable(unit: str) -> None:
    """No longer start it with supervisord."""
    with contextlib.suppress(FileNotFoundError):
        (WANTS / unit).unlink()
    if (UNITS / unit).is_file():
        _write(unit)


def once_at_start(unit: str, command: Sequence[str]) -> None:
    """Have supervisord run a command once when it starts next, behind what is enabled."""
    name = name_of(unit)
    folder, ending = server().folder()
    for place in (folder, LOGS):
        place.mkdir(parents=True, exist_ok=True)
    words = " ".join(word.replace("%", "%%") for word in command)
    files.write(folder / f"{name}{ending}", ONCE.format(name=name, command=words, log=log_of(unit)))
    files.sync_folder(folder)


def not_at_start(unit: str) -> None:
    """No longer; supervisord forgets those that it has run and that have ended."""
    name, there = name_of(unit), server()
    folder, ending = there.folder()
    (folder / f"{name}{ending}").unlink(missing_ok=True)
    for known in there.ask("getAllProcessInfo"):
        if str(known["name"]).startswith(SETTLING) and known["state"] == EXITED:
            _forget(there, known["name"])
            log_of(known["name"]).unlink(missing_ok=True)


def reload() -> None:
    """Make the programs' files agree with the units' files; nothing that runs is touched."""
    UNITS.mkdir(parents=True, exist_ok=True)
    folder, ending = server().folder()
    for job in HOME.glob("*.json") if HOME.is_dir() else []:
        unit = str((files.read_json(job) or {}).get("unit", ""))
        if (UNITS / unit).is_file():
            _write(unit)
        else:
            for left in (job, folder / f"{job.stem}{ending}"):
                left.unlink(missing_ok=True)
    server().ask("reloadConfig")


def _write(unit: str) -> None:
    """The unit's program and job, from its file."""
    path = UNITS / unit
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise AgentError(f"{unit} has no file: {error.strerror}", where=str(path), exit=PREFLIGHT) from error
    name = name_of(unit)
    folder, ending = server().folder()
    for place in (HOME, LOGS, folder):
        place.mkdir(parents=True, exist_ok=True)
    HOME.chmod(0o700)
    import pkgutil

    source = (pkgutil.get_data("fleetctl.agent.units", "launcher.py") or b"").decode()
    program = HOME / "launcher.py"
    if not program.is_file() or program.read_text(encoding="utf-8") != source:
        files.write(program, source)
    files.write_json(HOME / f"{name}.json", job(unit, text))
    said = unitfile.settings([text])
    files.write(
        folder / f"{name}{ending}",
        PROGRAM.format(
            unit=path,
            name=name,
            launcher=program,
            job=HOME / f"{name}.json",
            autostart=str((WANTS / unit).is_symlink()).lower(),
            stop_s=int(float(_last(said, "TimeoutStopSec") or 90)),
            whole=str(_last(said, "KillMode") != "mixed").lower(),
            log=log_of(unit),
        ),
    )


def job(unit: str, text: str) -> Dict[str, Any]:
    """What :mod:`launcher` needs of a unit's text."""
    said = unitfile.settings([text])
    known = unitfile.variables(said)
    lines = said.get("ExecStart", [])
    state = _last(said, "StateDirectory")
    return {
        "unit": unit,
        "argv": unitfile.exec_words(lines[-1], unit, known) if lines else [],
        "environment": known,
        "files": [value.replace("%%", "%") for value in said.get("EnvironmentFile", [])],
        "folder": _last(said, "WorkingDirectory") or "/",
        "user": _last(said, "User") or "",
        "home": f"/var/lib/{state}" if state else "",
        "limits": {LIMITS[key]: _limit(said[key][-1]) for key in LIMITS if said.get(key)},
    }


def _last(said: unitfile.Settings, key: str) -> Optional[str]:
    return said[key][-1] if said.get(key) else None


def _limit(text: str) -> Optional[int]:
    return int(text) if text.isdigit() else None


def verify(text: str, unit: str) -> List[str]:
    """What would keep the unit from starting here."""
    found = job(unit, text)
    if not found["argv"]:
        return [f"{unit}: no ExecStart="]
    program = found["argv"][0]
    return (
        []
        if os.access(program, os.X_OK)
        else [f"{unit}: Command {program} is not executable: no such program"]
    )


def pids(group: str) -> List[int]:
    """The processes of a program, those that lost their parent too: told by the variable that supervisord gives."""
    wanted = MARK + group[len(GROUP) :].encode()
    return [pid for pid in _processes() if wanted in _environ(pid)]


def unit_of(pid: int) -> Optional[str]:
    """The unit that a process belongs to; None for one that no program of supervisord's is."""
    mark = next((word for word in _environ(pid) if word.startswith(MARK)), None)
    return f"{mark[len(MARK) :].decode(errors='replace')}.service" if mark else None


def _processes() -> List[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _environ(pid: int) -> List[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def cursor() -> str:
    """Where the units' words end now."""
    sizes = {path.stem: path.stat().st_size for path in LOGS.glob("*.log")} if LOGS.is_dir() else {}
    return json.dumps(sizes)


def since(unit: str, after: Optional[str]) -> List[str]:
    """The command that prints the unit's words behind a :func:`cursor`, as lines; with ``-F`` also those to come."""
    log = log_of(unit)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    sizes = json.loads(after) if after else {}
    return ["tail", "-c", f"+{int(sizes.get(log.stem, 0)) + 1}", str(log)]
