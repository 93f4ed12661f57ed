"""SVC: units that failed, restart, hang, or are no longer what was deployed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from fleetctl.doctor.finding import Remedy, Severity
from fleetctl.doctor.known import at, mapping
from fleetctl.doctor.rule import Context, Found, Json, rule

READY_S = 600.0
RESTARTS = 3
ENGINE = re.compile(r"sglang[./ ]|sglang\.launch_server")
HANGS_KILLED = ("control-group", "mixed")


def _units(context: Context) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The units that matter: the examined service's, or all that were asked for."""
    for name, unit in mapping(context.facts.get("units")).items():
        if context.service is None or name == context.service.unit:
            yield str(name), mapping(unit)


def _slots(context: Context) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """``(name, facts, state)`` of the slots that matter."""
    for name, slot in mapping(context.facts.get("slots")).items():
        known = mapping(slot)
        state = mapping(known.get("state"))
        if context.service is None or state.get("unit") == context.service.unit:
            yield str(name), known, state


@rule(
    "svc-unit-failed",
    "error",
    reason="A unit that systemd has given up serves nothing until somebody starts it again.",
    source="systemd.service(5), systemd.unit(5) on StartLimitBurst",
    remedy=Remedy(
        "read its first error (`fleetctl doctor --log`), correct it, deploy again",
        commands=("journalctl -u UNIT -n 200", "systemctl reset-failed UNIT"),
    ),
)
def failed(context: Context) -> Iterator[Found]:
    for name, unit in _units(context):
        if unit.get("ActiveState") != "failed":
            continue
        result = str(unit.get("Result") or "")
        why = {
            "start-limit-hit": "it died too often, systemd starts it no more",
            "oom-kill": "the kernel killed it for lack of memory",
            "timeout": "it did not start or stop in time",
            "watchdog": "it stopped answering systemd's watchdog",
        }.get(result, f"result {result or 'unknown'}, status {unit.get('ExecMainStatus')}")
        seen = [f"{key}={unit[key]}" for key in ("Result", "ExecMainStatus", "NRestarts") if key in unit]
        yield Found(f"{name} has failed: {why}", name, seen)


@rule(
    "svc-restarts",
    "warning",
    reason="A unit that systemd starts again and again looks active between two deaths.",
    source="systemd: NRestarts; seen on the first hosts",
    remedy=Remedy("read why it died (`fleetctl doctor --log`)", commands=("journalctl -u UNIT -n 200",)),
)
def restarts(context: Context) -> Iterator[Found]:
    for name, unit in _units(context):
        count = unit.get("NRestarts")
        waits = unit.get("SubState") == "auto-restart"
        if waits or (isinstance(count, int) and count >= RESTARTS):
            severity: Severity = "error" if waits else "warning"
            now = ", and waits for its next start" if waits else ""
            seen = [f"NRestarts={count}", f"since {unit.get('ActiveEnterTimestamp') or 'unknown'}"]
            yield Found(
                f"systemd has restarted {name} {count or 0} times{now}", name, seen, severity=severity
            )


@rule(
    "svc-unit-changed",
    "warning",
    reason="What runs, what the file says and what was deployed are three things; the next start takes the file.",
    source="slots/<slot>.json: unit_sha256; systemd: NeedDaemonReload",
    remedy="`fleetctl deploy --plan` shows the difference; deploy again, or put the change into the inventory",
)
def changed(context: Context) -> Iterator[Found]:
    units = mapping(context.facts.get("units"))
    for slot, _, state in _slots(context):
        name, sha = str(state.get("unit")), state.get("unit_sha256")
        text = mapping(units.get(name)).get("text")
        if isinstance(text, str) and sha and hashlib.sha256(text.encode()).hexdigest() != sha:
            yield Found(f"the file of {name} was changed since it was deployed", name, [f"slot {slot}"])
    for name, unit in _units(context):
        if unit.get("NeedDaemonReload") == "yes":
            yield Found(
                f"the file of {name} was changed since systemd read it", name, ["NeedDaemonReload=yes"]
            )


@rule(
    "svc-not-ready",
    "error",
    reason="A unit is active as soon as its process runs; a server that says 503 long after hangs in loading, or its "
    "scheduler is dead.",
    source="seen with sglang 0.5.11 on an H200: /health is 503 until the warm-up ends; sglang#6624",
    remedy="read its log (`fleetctl logs`); restart it where nothing moves any more",
)
def not_ready(context: Context) -> Iterator[Found]:
    units = mapping(context.facts.get("units"))
    for slot, known, state in _slots(context):
        name = str(state.get("unit"))
        unit, health = mapping(units.get(name)), mapping(known.get("health"))
        if unit.get("ActiveState") != "active" or health.get("status") == 200 or known.get("locked_by"):
            continue
        seconds = _since(unit, context.facts)
        limit = at(state, "deadlines", "ready")
        if seconds is not None and seconds > (limit if isinstance(limit, (int, float)) else READY_S):
            said = f"answers {health['status']}" if health.get("status") else "does not answer"
            seen = [f"/health {said}", f"active for {seconds:.0f} s", f"slot {slot}"]
            yield Found(f"{name} is active for {seconds / 60:.0f} minutes and its /health {said}", name, seen)


def _since(unit: Json, facts: Json) -> float | None:
    """Seconds from the unit's start to the facts' time."""
    try:
        entered = datetime.strptime(str(unit.get("ActiveEnterTimestamp")), "%a %Y-%m-%d %H:%M:%S UTC")
        now = datetime.fromisoformat(str(facts.get("time")))
    except ValueError:
        return None
    return (now - entered.replace(tzinfo=UTC)).total_seconds() if now.tzinfo else None


@rule(
    "svc-environment-gone",
    "error",
    reason="A running server has its files open; the next start, at the latest after a reboot, finds none.",
    source="slots/<slot>.json: environment; ExecStart of the unit",
    remedy="deploy the service again: fleetctl builds its environment, or correct its path in the inventory",
)
def environment_gone(context: Context) -> Iterator[Found]:
    said: set[str] = set()
    for _, known, state in _slots(context):
        if known.get("environment_there") is False:
            said.add(str(state.get("unit")))
            yield Found(f"the environment of {state.get('unit')} is gone", str(state.get("environment")))
    paths = mapping(context.facts.get("paths"))
    for name, unit in _units(context):
        found = re.search(r"^ExecStart=\"?(/\S+)/bin/python", str(unit.get("text") or ""), re.MULTILINE)
        if found and name not in said and mapping(paths.get(found[1])).get("exists") is False:
            yield Found(f"{name} starts from an environment that is gone", found[1])


@rule(
    "svc-stop-hangs",
    "warning",
    reason="After a refused request SGLang does not end on SIGTERM, and its scheduler outlives the launcher with the "
    "GPU's memory.",
    source="seen with sglang 0.5.11 on an H200: 3 of 3 hang after a request refused with 400",
    remedy="TimeoutStopSec=60 and KillMode=mixed in the unit (fleetctl's templates have both)",
)
def stop_hangs(context: Context) -> Iterator[Found]:
    for name, unit in _units(context):
        text = str(unit.get("text") or "")
        if not ENGINE.search(text):
            continue
        limit = _last(text, "TimeoutStopSec") or _last(text, "TimeoutSec")
        kill = _last(text, "KillMode") or "control-group"
        if limit is None:
            seen = [f"systemd's default holds: {unit.get('TimeoutStopUSec') or '90 s'}"]
            yield Found(f"{name} has no TimeoutStopSec, and SGLang can hang on SIGTERM", name, seen)
        elif limit in ("infinity", "0"):
            yield Found(
                f"{name} waits for ever on a server that does not stop", name, [f"TimeoutStopSec={limit}"]
            )
        if kill not in HANGS_KILLED:
            yield Found(f"{name} leaves the scheduler behind when it stops", name, [f"KillMode={kill}"])


def _last(text: str, key: str) -> str | None:
    found = re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)
    return found[-1].strip() if found and found[-1].strip() else None
