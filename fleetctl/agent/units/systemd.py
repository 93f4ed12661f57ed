"""Units: what they are like, and the few verbs a rollout needs; by ``systemctl``, or on a host without systemd by
``supervised``.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence, Set

from fleetctl.agent import files
from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.rollout import keeper
from fleetctl.agent.units import bus, supervised

UNITS = Path("/etc/systemd/system")
CGROUPS = Path("/sys/fs/cgroup")
PROPERTIES = [
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "UnitFileState",
    "FragmentPath",
    "DropInPaths",
    "MainPID",
    "NRestarts",
    "ControlGroup",
    "ExecMainStatus",
    "ExecMainCode",
    "ActiveEnterTimestamp",
    "InactiveEnterTimestamp",
    "NeedDaemonReload",
    "InvocationID",
    "Job",
    "TimeoutStopUSec",
    "Description",
]
UNIT_NAME = re.compile(r"[A-Za-z0-9:_.@\\-]+\.service")
COMMAND_TIMEOUT_S = 60.0
NO_LIMIT = 2**64 - 1
SECOND = 10**6
SPANS = {"w": 604800 * SECOND, "d": 86400 * SECOND, "h": 3600 * SECOND, "min": 60 * SECOND, "s": SECOND}
SPANS |= {"ms": 1000, "us": 1}
RELOAD_PAUSES_S = (0.2, 0.8)

Properties = Dict[str, str]


def run(command: Sequence[str], timeout: float = COMMAND_TIMEOUT_S) -> "subprocess.CompletedProcess[str]":
    """Run a command in a plain locale and UTC; one that is missing or hangs is an :class:`AgentError`."""
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "cat"}
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            env=environment,
            check=False,
        )
    except FileNotFoundError as error:
        raise AgentError(
            f"{command[0]} is not on this host", fix=f"install {command[0]}", exit=PREFLIGHT
        ) from error
    except subprocess.TimeoutExpired as error:
        what = f"no answer from {' '.join(command)} within {timeout:g} s"
        raise AgentError(what, fix="see what overloads the host, or hangs there", exit=PREFLIGHT) from error


def show(units: Sequence[str], more: Sequence[str] = ()) -> Dict[str, Properties]:
    """Properties of units (``more`` too) as ``systemctl`` words them; an absent one has LoadState ``not-found``."""
    if not units:
        return {}
    if supervised.in_charge():
        return supervised.show(units)
    names = {*PROPERTIES, *more}
    try:
        return {unit: _in_words(bus.properties(unit, names)) for unit in units}
    except (bus.Unavailable, bus.Refused):
        return _show(units, more)


def _in_words(said: Dict[str, Any]) -> Properties:
    return {name: _word(name, value) for name, value in said.items()}


def _word(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "Job":
        return str(value[0] or "")
    if name == "InvocationID":
        return bytes(value).hex()
    if name.endswith("Timestamp"):
        return time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(value // SECOND)) if value else ""
    if value == NO_LIMIT:
        return "infinity"
    if name.endswith("USec"):
        return _span(value)
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _span(microseconds: int) -> str:
    """``1min 30s``; from a second down with a fraction, as ``3.004000s``."""
    words = []
    for unit, size in SPANS.items():
        count, microseconds = divmod(microseconds, size)
        if count and microseconds and size <= SECOND:
            words.append(f"{count}.{microseconds:0{len(str(size)) - 1}}{unit}")
            break
        words += [f"{count}{unit}"] if count else []
    return " ".join(words) or "0"


def _show(units: Sequence[str], more: Sequence[str] = ()) -> Dict[str, Properties]:
    """:func:`show` by ``systemctl``."""
    done = run(["systemctl", "show", "--no-pager", "-p", ",".join([*PROPERTIES, *more]), "--", *units])
    blocks = [_properties(block) for block in done.stdout.split("\n\n") if block.strip()]
    if len(blocks) == len(units):
        return dict(zip(units, blocks))
    if len(units) == 1:
        raise AgentError(
            f"systemctl cannot show {units[0]}",
            where=units[0],
            evidence=done.stderr.splitlines() or ["(no output)"],
        )
    return {unit: _show([unit], more)[unit] for unit in units}


def _properties(block: str) -> Properties:
    return {name: value for name, _, value in (line.partition("=") for line in block.splitlines())}


def _act(*arguments: str, timeout: float = COMMAND_TIMEOUT_S) -> None:
    done = run(["systemctl", "--no-ask-password", *arguments], timeout)
    if done.returncode:
        raise AgentError(
            f"systemctl {' '.join(arguments)} failed with status {done.returncode}",
            where=arguments[-1],
            evidence=done.stderr.splitlines(),
        )


def daemon_reload() -> None:
    """Make systemd read the unit files again; tried a few times, since it refuses while another reload is on."""
    if supervised.in_charge():
        return supervised.reload()
    for pause in RELOAD_PAUSES_S:
        try:
            return _act("daemon-reload")
        except AgentError:
            time.sleep(pause)
    return _act("daemon-reload")


def take_in(unit: str, place: Path) -> bool:
    """Make systemd know the unit's file at ``place``; one that it has not read yet needs no reload of all units.

    True where it was read without one and was never started.
    """
    known = show([unit])[unit]
    at_its_place = known.get("FragmentPath") == str(place)
    if known.get("LoadState") != "loaded" or not at_its_place or known.get("NeedDaemonReload") != "no":
        daemon_reload()
        return False
    return known.get("ActiveState") == "inactive" and not known.get("InvocationID")


def is_stale(unit: str) -> bool:
    """Whether systemd would start the unit from another text than its files have."""
    found = show([unit])[unit]
    fragment = found.get("FragmentPath", "")
    return found.get("NeedDaemonReload") == "yes" or bool(fragment and not Path(fragment).exists())


def is_stopping() -> bool:
    """Whether the host goes down: no unit can be started any more."""
    if supervised.in_charge():
        return False
    return run(["systemctl", "is-system-running"]).stdout.strip() == "stopping"


def start(unit: str) -> None:
    """Queue the start and return; the probes see what becomes of it."""
    if supervised.in_charge():
        return supervised.start(unit)
    return _queue("StartUnit", "start", unit)


def stop(unit: str) -> None:
    """Queue the stop and return; systemd's own TimeoutStopSec applies."""
    if supervised.in_charge():
        return supervised.stop(unit)
    return _queue("StopUnit", "stop", unit)


def _queue(method: str, verb: str, unit: str) -> None:
    """Queue a job; where systemd cannot be asked straight or refuses, by ``systemctl``, whose words say why."""
    try:
        bus.manage(method, unit, "replace")
    except (bus.Unavailable, bus.Refused):
        _act(verb, "--no-block", "--", unit)


def kill(unit: str, number: str = "KILL") -> None:
    """Signal every process of the unit's control group; nothing left to signal is no error."""
    if supervised.in_charge():
        return supervised.kill(unit, number)
    run(["systemctl", "kill", "--kill-who=all", "-s", number, "--", unit])
    return None


def enable(unit: str) -> None:
    """Start it at boot; what systemd says of it lags until the next :func:`daemon_reload`."""
    if supervised.in_charge():
        return supervised.enable(unit)
    return _act("enable", "--quiet", "--no-reload", "--", unit)


def disable(unit: str) -> None:
    """No longer start it at boot; seen by systemd at the next :func:`daemon_reload`."""
    if supervised.in_charge():
        return supervised.disable(unit)
    return _act("disable", "--quiet", "--no-reload", "--", unit)


def sync_enablement() -> None:
    """Have what :func:`enable` and :func:`disable` did survive a power cut."""
    for folder in (UNITS, *UNITS.glob("*.wants"), *UNITS.glob("*.requires")):
        files.sync_folder(folder)


def reset_failed(unit: str) -> None:
    """Forget failures and the start limit's count; for own units only."""
    if supervised.in_charge():
        return
    try:
        bus.manage("ResetFailedUnit", unit)
    except bus.Refused:
        return
    except bus.Unavailable:
        run(["systemctl", "reset-failed", "--", unit])


def poke(unit: str) -> None:
    """SIGUSR1 to the unit's main process."""
    if supervised.in_charge():
        keeper.kill(unit, signal.SIGUSR1)
    else:
        run(["systemctl", "kill", "--kill-who=main", "-s", "USR1", "--", unit])


def verify(text: str, name: str) -> List[str]:
    """What ``systemd-analyze verify`` says of a unit; its status is 0 on unknown keys, so any line counts."""
    if supervised.in_charge():
        return supervised.verify(text, name)
    import tempfile

    with tempfile.TemporaryDirectory(prefix="fleetctl-verify-") as folder:
        path = Path(folder) / name
        path.write_text(text)
        done = run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(path)])
        if done.returncode and "recursive-errors" in done.stderr:
            done = run(["systemd-analyze", "verify", "--man=no", str(path)])
    lines = [line.replace(folder + "/", "").strip() for line in (done.stdout + done.stderr).splitlines()]
    found = [line for line in lines if line and not _of_another(line, name)]
    if done.returncode and not found:
        return [f"systemd-analyze verify: status {done.returncode}"]
    return found


def _of_another(line: str, name: str) -> bool:
    """Whether a line is about a unit that this one only depends on."""
    about = re.match(r"(?:/\S*/)?([\w@:.\\-]+\.[a-z]+)(?::| points to )", line)
    return about is not None and about[1] != name


def cgroup_pids(control_group: str) -> List[int]:
    """The processes in a unit's control group and below it; an empty name or a gone group has none."""
    if not control_group or control_group == "/":
        return []
    if control_group.startswith(supervised.GROUP):
        return supervised.pids(control_group)
    found: List[int] = []
    for root in (CGROUPS, CGROUPS / "unified", CGROUPS / "systemd"):
        top = root / control_group.lstrip("/")
        for folder in _folders(top):
            try:
                found += [int(line) for line in (folder / "cgroup.procs").read_text().split()]
            except OSError:
                continue
        if found:
            break
    return found


def _folders(top: Path) -> Iterable[Path]:
    for folder, _, _ in os.walk(top):
        yield Path(folder)


def login_units() -> Set[str]:
    """The services that this process came through: sshd's, where a host has no logind. No rollout may stop them."""
    found: Set[str] = set()
    pid = os.getpid()
    while pid > 1:
        unit = unit_of(pid)
        if unit:
            found.add(unit)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found


def unit_of(pid: int) -> "str | None":
    """The system's service unit that a process belongs to; None in a session, a scope or none at all."""
    if supervised.in_charge():
        return supervised.unit_of(pid)
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "name=systemd"):
            continue
        parts = path.split("/")
        if any(part.startswith("user@") for part in parts):
            return None
        for part in parts:
            if part.endswith(".service"):
                return part
    return None
