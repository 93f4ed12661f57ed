"""All that plans, doctor and status ask of a host, in one bounded answer that never fails as a whole."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from fleetctl.agent import paths
from fleetctl.agent.errors import AgentError
from fleetctl.agent.host import net
from fleetctl.agent.host.parts import Parts
from fleetctl.agent.rollout import apikey, record
from fleetctl.agent.rollout.router import Router
from fleetctl.agent.units import systemd

STATE = Path(paths.ROOT)
LOCKS = Path(paths.LOCKS)
HEALTH_S = 5.0
PARTS = ("boot_id", "os", "glibc", "gpus", "units", "ports", "paths", "disk")


def facts(args: Dict[str, Any], emit: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
    """The ``facts`` of docs/architecture.md; a part that fails is empty and says why in ``errors``.

    ``args``: ``slots`` (``{name: {"port", "spare_port"?, "metrics"?: {"running", "queued"}}}``), ``units``, ``paths``,
    and ``gpus`` (default true): ``nvidia-smi`` takes longer than all the rest, so false leaves ``gpus`` None.
    ``units`` in the answer are those asked for, those of the slots' states, and those that hold their ports.
    """
    slots: Dict[str, Dict[str, Any]] = args.get("slots", {})
    parts = Parts()
    parts.ask("ports", {}, port_owners, ports_of(slots))
    parts.ask("units", {}, lambda: units(unit_names(args.get("units", []), slots, parts.answer("ports"))))
    parts.ask("gpus", None, _gpus if args.get("gpus", True) else lambda: None)
    for slot, place in slots.items():
        parts.ask(f"slots.{slot}", None, slot_state, slot)
        parts.ask(f"service.{slot}", no_service("not asked"), service_facts, slot, place)
    parts.ask("paths", {}, lambda: {path: path_facts(path) for path in args.get("paths", [])})
    parts.ask("disk", None, _disk, STATE)
    parts.ask("os", None, os_facts)
    parts.ask("glibc", None, glibc_facts)
    parts.ask("boot_id", None, _text, "/proc/sys/kernel/random/boot_id")
    return {
        "hostname": socket.gethostname(),
        "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "arch": os.uname().machine,
        "kernel": os.uname().release,
        "python": python_facts(),
        **{name: parts.answer(name) for name in PARTS},
        "slots": {
            slot: {"state": parts.answer(f"slots.{slot}"), **parts.answer(f"service.{slot}")}
            for slot in slots
        },
        "errors": parts.errors,
    }


def _gpus() -> Dict[str, Any]:
    from fleetctl.agent.host import gpus

    return gpus.query()


def service_facts(slot: str, place: Dict[str, Any]) -> Dict[str, Any]:
    """What a slot's ``facts`` have besides its state, whether that can be read or not.

    ``unfinished``: of each rollout that was cut short and that nobody is at work on, the most seconds to settle it.

    Its metrics' names are the asker's or its state's; ``environment_there`` is None where the state names none.
    """
    state = _readable_state(slot) or {}
    environment = state.get("environment")
    metrics = place.get("metrics") or state.get("metrics") or {}
    held = locked_by(slot)
    return {
        "locked_by": held,
        "measured_by": flock_of(LOCKS / f"{slot}.measured"),
        "unfinished": {} if held else _cut_short(slot),
        "health": slot_health(port_in_use(place, state), metrics, apikey.of(state)),
        "environment_there": Path(environment).is_dir() if environment else None,
        "routed": routed(slot, place, state),
    }


def _cut_short(slot: str) -> Dict[str, float]:
    left, unit = record.unsettled(slot), f"{paths.ROLLOUT_UNITS}{slot}.service"
    ended = not left or systemd.show([unit])[unit]["ActiveState"] in ("inactive", "failed")
    return left if ended else {}


def routed(slot: str, place: Dict[str, Any], state: Dict[str, Any]) -> Optional[str]:
    """What the router in front of a slot says of the place in use (``UP``, ``DRAIN``, ``MAINT``, ``DOWN``); or None."""
    if not place.get("router"):
        return None
    is_spare = port_in_use(place, state) != place["port"]
    seen = Router(place["router"]).server(f"{slot}-spare" if is_spare else slot)
    return seen.status if seen else None


def ports_of(slots: Dict[str, Dict[str, Any]]) -> List[int]:
    """The port of each slot, and of its spare place where it has one."""
    ports = [place.get(key) for place in slots.values() for key in ("port", "spare_port")]
    return [port for port in ports if port is not None]


def port_in_use(place: Dict[str, Any], state: Dict[str, Any]) -> int:
    """The slot's port, or its spare place's where its last commit was there."""
    spare: Optional[int] = place.get("spare_port")
    return spare if spare is not None and state.get("port") == spare else int(place["port"])


def no_service(why: str) -> Dict[str, Any]:
    """The facts of a slot that could not be looked at."""
    return {
        "locked_by": None,
        "measured_by": None,
        "unfinished": {},
        "health": no_health(why),
        "environment_there": None,
    }


def port_owners(ports: List[int]) -> Dict[str, Optional[Dict[str, Any]]]:
    """Who listens on each port, by the port's digits: ``{"pid", "command", "unit"}`` or None."""
    return {str(port): net.port_owner(port) for port in ports}


def unit_names(asked: List[str], slots: Dict[str, Any], ports: Dict[str, Any]) -> List[str]:
    """The units asked for, those that the slots' states name, and those that hold the slots' ports."""
    states = [_readable_state(slot) or {} for slot in slots]
    filling = [state.get("unit") for state in (*states, *(one.get("previous") or {} for one in states))]
    holders = [owner["unit"] for owner in ports.values() if owner]
    return list(dict.fromkeys(name for name in (*asked, *filling, *holders) if name))


def _readable_state(slot: str) -> Optional[Dict[str, Any]]:
    try:
        return slot_state(slot)
    except (AgentError, OSError):
        return None


def slot_state(slot: str) -> Optional[Dict[str, Any]]:
    """``slots/<slot>.json``; None where the slot was never filled by fleetctl. :class:`AgentError`: it is damaged."""
    path = STATE / "slots" / f"{slot}.json"
    text = _text(path)
    if text is None:
        return None
    try:
        state = json.loads(text)
    except ValueError as error:
        raise AgentError(f"{path} is damaged: {error}", where=str(path)) from error
    if not isinstance(state, dict) or not isinstance(state.get("unit"), str):
        raise AgentError(f"{path} is damaged: it names no unit", where=str(path))
    return state


def units(names: List[str], more: Sequence[str] = ()) -> Dict[str, Dict[str, Any]]:
    """systemd's properties of each unit (``more`` too), numbers as such, and its file's ``text`` or None."""
    found: Dict[str, Dict[str, Any]] = {}
    for name, properties in systemd.show(names, more).items():
        unit: Dict[str, Any] = dict(properties)
        for key in ("MainPID", "NRestarts", "ExecMainStatus", "ExecMainCode"):
            if unit.get(key, "").isdigit():
                unit[key] = int(unit[key])
        path = unit.get("FragmentPath")
        unit["text"] = _text(path, strip=False) if path else None
        found[name] = unit
    return found


def slot_health(port: int, metrics: Dict[str, str], key: str = "") -> Dict[str, Any]:
    """What the service on a port says of itself, each of up to three questions within 5 s: a busy one takes its time.

    ``{"status": of /health, "models": ids, "running", "queued": requests or None, "error"}``
    """
    status, body = net.http("GET", port, "/health", timeout=HEALTH_S)
    if status is None:
        return no_health(body.decode(errors="replace"))
    found = no_health(None if status == 200 else body.decode(errors="replace")[:500] or None)
    found["status"] = status
    answered, body = net.http("GET", port, "/v1/models", timeout=HEALTH_S, key=key)
    if answered == 200:
        try:
            found["models"] = [str(model["id"]) for model in json.loads(body)["data"]]
        except (ValueError, KeyError, TypeError):
            found["error"] = f"/v1/models answered {body[:200].decode(errors='replace')}"
    if metrics:
        answered, body = net.http("GET", port, "/metrics", timeout=HEALTH_S)
        if answered == 200:
            text = body.decode(errors="replace")
            found.update(
                {key: metric_sum(text, metrics[key]) for key in ("running", "queued") if key in metrics}
            )
    return found


def no_health(error: Optional[str]) -> Dict[str, Any]:
    """The health of a slot that gave no answer."""
    return {"status": None, "models": [], "running": None, "queued": None, "error": error}


def metric_sum(text: str, name: str) -> Optional[float]:
    """The sum of a Prometheus metric over its labels; None where no line of it can be read."""
    rests = [line[len(name) :] for line in text.splitlines() if line.startswith(name)]
    values = []
    for rest in rests:
        if rest[:1] in ("{", " "):
            with contextlib.suppress(ValueError, IndexError):
                values.append(float(rest.rpartition("}")[2].split()[0]))
    return sum(values) if values else None


def locked_by(slot: str) -> Optional[Dict[str, Any]]:
    """What the lock's file says of its holder, and its ``pid``; looking (at /proc/locks) takes nothing.

    None also where that rollout has its result already and only ends.
    """
    held = flock_of(LOCKS / f"{slot}.lock")
    ended = held and STATE / "rollouts" / str(held.get("rollout")) / "result.json"
    return None if ended and ended.exists() else held


def flock_of(path: Path) -> Optional[Dict[str, Any]]:
    """What a file says of who holds a flock on it, and its ``pid``; None where nobody does."""
    try:
        status = path.stat()
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and device in fields:
                return {**_holder(_text(path)), "pid": int(fields[4])}
    except OSError:
        return None
    return None


def _holder(text: Optional[str]) -> Dict[str, Any]:
    try:
        said = json.loads(text or "{}")
    except ValueError:
        said = {}
    return said if isinstance(said, dict) else {}


def path_facts(path: str) -> Dict[str, Any]:
    """``{"exists", "kind": "file|folder|other" or None, "bytes"}``; of a folder: its files, not deeper."""
    place = Path(path)
    if place.is_dir():
        with os.scandir(place) as entries:
            size = sum(entry.stat().st_size for entry in entries if entry.is_file())
        return {"exists": True, "kind": "folder", "bytes": size}
    if not place.exists():
        return {"exists": False, "kind": None, "bytes": 0}
    return {"exists": True, "kind": "file" if place.is_file() else "other", "bytes": place.stat().st_size}


def python_facts() -> Dict[str, str]:
    version = ".".join(map(str, sys.version_info[:3]))
    return {
        "path": sys.executable,
        "version": version,
        "tag": f"cp{sys.version_info[0]}{sys.version_info[1]}",
    }


def os_facts() -> Dict[str, Optional[str]]:
    """``{"id", "version", "name"}`` of os-release."""
    pairs = (line.partition("=") for line in (_text("/etc/os-release") or "").splitlines())
    said = {key: value.strip().strip("\"'") for key, _, value in pairs}
    return {"id": said.get("ID"), "version": said.get("VERSION_ID"), "name": said.get("PRETTY_NAME")}


def glibc_facts() -> Optional[str]:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(" ")[2] or None
    except (ValueError, OSError):
        return None


def _disk(path: Path) -> Dict[str, Any]:
    """Free bytes where ``path`` is or will be."""
    place = next(parent for parent in (path, *path.parents) if parent.exists())
    status = os.statvfs(place)
    return {"path": str(path), "free_bytes": status.f_bavail * status.f_frsize}


def _text(path: Any, strip: bool = True) -> Optional[str]:
    try:
        text = Path(path).read_text(errors="replace")
    except FileNotFoundError:
        return None
    return text.strip() if strip else text
