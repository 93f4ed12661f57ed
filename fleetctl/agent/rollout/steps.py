"""The steps of a rollout that change the host, each bounded, each writing what it does before and after."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Set

from fleetctl.agent import files
from fleetctl.agent.errors import AgentError
from fleetctl.agent.host import facts, gpus, net
from fleetctl.agent.rollout import probes, record, trial, vacant, watch
from fleetctl.agent.rollout.ladder import Failed, Ladder
from fleetctl.agent.rollout.record import Record
from fleetctl.agent.rollout.router import Router
from fleetctl.agent.rollout.signatures import Signatures
from fleetctl.agent.rollout.watch import Interrupt, Watch
from fleetctl.agent.sha import sha256_of
from fleetctl.agent.units import systemd

Json = Dict[str, Any]

TOLERANCE_MIB = 512
KILL_S = 5.0
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.25
WAIT_EVERY_S = 1.0
KEPT = ["service", "mode", "engine", "unit", "environment", "environment_digest", "model_id", "model_paths"]
KEPT += ["metrics", "probe", "adopted", "remedies", "nodes", "rank", "rungs", "api_key", "deadlines"]


class Work:
    """A rollout in hand: its record, the wish to abort, and what was there before."""

    def __init__(self, kept: Record, interrupt: Interrupt, before: Json) -> None:
        self.record = kept
        self.interrupt = interrupt
        self.before = before
        self.plan: Json = kept.plan
        self.new: Json = self.plan["new"]
        self.old: Optional[Json] = self.plan.get("old")
        self.table = Signatures(self.plan.get("signatures") or [])
        self.same_unit = bool(self.old and self.old["unit"] == self.new["unit"])
        self.empties = vacant.is_vacant(self.new)
        self.spared: Set[str] = set()
        """Units that run by somebody else's start, or a boot's: proven as they are, and not stopped."""
        self.router = Router(self.plan["router"]) if self.plan.get("router") else None
        self.overlap = bool(self.plan.get("overlap"))
        self.never_started = False
        """Whether systemd has read the new unit just now, and so has nothing to forget about it."""
        self.held = ""
        """What the stopped service's port or GPUs are still held by, where nothing is to start there."""
        self.old_was_active = bool(self.old and self.before["units"][self.old["unit"]]["active"])

    def limit(self, name: str, target: Optional[Json] = None) -> float:
        """A deadline in seconds: the target's own where it has one, else the plan's."""
        return float(record.deadlines(self.plan, target)[name])

    def patience(self, target: Json) -> float:
        """How long a service may take to stop: what it accepted at the last moment has the drain time too."""
        return max(self.limit("stop", target), self.limit("drain", target))

    def until(self, limit_s: float, look: Callable[[], Optional[str]]) -> Optional[str]:
        """Ask ``look`` what is still waited for until it says None; the last answer where the time is up."""
        end = time.monotonic() + limit_s
        said = time.monotonic()
        pause = FIRST_PAUSE_S
        while True:
            waiting = look()
            left = end - time.monotonic()
            if waiting is None or left <= 0:
                return waiting
            if time.monotonic() - said >= WAIT_EVERY_S:
                said = time.monotonic()
                self.record.wait(waiting, left)
            self.interrupt.sleep(min(pause, left))
            pause = min(pause * 1.4, LONGEST_PAUSE_S)


def drain(work: Work) -> None:
    """Let requests in flight finish, where the leaving service counts them; bounded, and then go on."""
    assert work.old is not None
    names = [name for name in (work.old.get("metrics") or {}).values() if name]
    port, router = probes.port_of(work.plan, work.old), work.router
    work.record.begin("drain", f"requests in flight at {work.old['unit']}")
    if not (names or router) or not work.old_was_active:
        work.record.ok("nothing to wait for" if work.old_was_active else "was not running")
        return

    def look() -> Optional[str]:
        if router and (seen := router.server(router.old)) and seen.sessions:
            return f"{seen.sessions} requests in flight through the router"
        status, body = net.http("GET", port, "/metrics", timeout=2.0) if names else (None, b"")
        if status is None and body.startswith(b"no answer within") and "health" in work.before["rungs"]:
            return "no answer from /metrics"
        text = body.decode(errors="replace") if status == 200 else ""
        flying = sum(facts.metric_sum(text, name) or 0 for name in names)
        return f"{flying:g} requests in flight" if flying else None

    limit = work.limit("drain", work.old)
    left = work.until(limit, look)
    over = f"{left} after {limit:g} s: going on"
    work.record.ok("no request in flight" if left is None else over)


def stop(work: Work, step: str, unit: str, limit: float) -> None:
    """Stop a unit until its control group is empty: systemd's way, then SIGKILL to all of it."""
    properties = systemd.show([unit])[unit]
    group = properties.get("ControlGroup") or work.before["units"].get(unit, {}).get("control_group", "")
    work.record.begin(step, f"stop {unit}")
    if not probes.running(properties) and properties.get("ActiveState") != "deactivating":
        if not systemd.cgroup_pids(group):
            work.record.ok("was not running")
            return
    else:
        systemd.stop(unit)

    def look() -> Optional[str]:
        pids = systemd.cgroup_pids(group)
        if pids:
            return f"{len(pids)} processes of {unit}, the first {pids[0]}: {net.command(pids[0])[:100]}"
        state = systemd.show([unit])[unit].get("ActiveState")
        return None if state in ("inactive", "failed") else f"{unit} is {state}"

    waiting = work.until(limit, look)
    if waiting is None:
        work.record.ok(f"{unit} is stopped")
        return
    work.record.info(f"{waiting} after {limit:g} s: SIGKILL to the whole control group")
    systemd.kill(unit)
    waiting = work.until(KILL_S, look)
    if waiting is not None:
        fix = "a process that survives SIGKILL hangs in the driver: reset the GPU or reboot the host"
        raise Failed(f"{waiting}, after SIGKILL", _stuck(group), fix=fix)
    work.record.ok(f"{unit} is stopped, killed after {limit:g} s")


def _stuck(group: str) -> List[str]:
    found = []
    for pid in systemd.cgroup_pids(group):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            continue
        found.append(f"process {pid}, state {state}: {net.command(pid)[:200]}")
    return found


def free(work: Work, step: str) -> None:
    """Wait until what the stopped service held is free: its port, and its GPUs' memory at the baseline."""
    port = int(work.plan["port"])
    work.record.begin(step, f"port {port} and GPU memory")

    def look() -> Optional[str]:
        owner = net.port_owner(port)
        if owner is not None:
            return f"port {port} is held by {probes.describe(owner)}"
        return _gpu_memory(work.plan["gpus"], work.before["baseline_mib"])

    waiting = work.until(work.limit("free"), look)
    if waiting is not None and work.empties:
        work.held = waiting
        work.record.ok(
            f"not free after {work.limit('free'):g} s: {waiting}; nothing is to start here: going on"
        )
        return
    if waiting is not None:
        fix = "end what holds it; memory that no process owns needs a GPU reset or a reboot"
        raise Failed(f"not free after {work.limit('free'):g} s: {waiting}", fix=fix)
    work.record.ok(f"port {port} is free, GPU memory is back at its baseline")


def _gpu_memory(wanted: List[int], baseline: Dict[str, int]) -> Optional[str]:
    if not baseline:
        return None
    now = gpus.query()
    for gpu in now["gpus"]:
        used, expected = gpu["memory_used_mib"], baseline.get(str(gpu["index"]))
        if gpu["index"] not in wanted or used is None or expected is None or used <= expected + TOLERANCE_MIB:
            continue
        apps = [f"{app['pid']} {app['name']}" for app in now["apps"] if app["gpu"] == gpu["index"]]
        by = f"process {', '.join(apps)}" if apps else "no process that can be seen"
        return f"GPU {gpu['index']} still has {used} MiB in use ({expected} expected), held by {by}"
    return None


def install(work: Work) -> None:
    """Put the unit's text where systemd reads it; its file is only written at commit."""
    if work.empties:
        return
    unit, text = work.new["unit"], work.new["unit_text"]
    there = work.before["units"][unit]
    as_it_was, path = trial.is_as_it_was(text, there), trial.place(unit, there)
    work.record.begin("install", f"{unit} as it was" if as_it_was else f"{path}")
    if text is not None and not as_it_was:
        trial.begin(unit, text, there)
    if trial.is_new(there):
        work.never_started = systemd.take_in(unit, path)
    else:
        systemd.daemon_reload()
    work.record.ok(f"{unit} as it was" if as_it_was else f"{unit} is in place, until it has proven itself")


def start(work: Work, target: Json, prefix: str, rungs: List[str]) -> None:
    """Start a unit and climb its rungs, listening from before the start."""
    if vacant.is_vacant(target):
        return
    unit = target["unit"]
    work.record.begin(f"{prefix}start", f"start {unit}", {"boot": trial.boot()})
    invocation = ""
    if prefix or not work.never_started:
        if not target.get("adopted"):
            systemd.reset_failed(unit)
        state = systemd.show([unit])[unit]
        invocation = "" if probes.running(state) else state.get("InvocationID", "")
    place = watch.cursor()
    following = Watch(unit, place, work.table, work.interrupt)
    try:
        systemd.start(unit)
        work.record.ok(f"{unit} is starting")
        Ladder(work.record, work.interrupt, target, following, work.table, invocation, prefix).climb(rungs)
    finally:
        following.close()


def commit(work: Work) -> None:
    """Make it last: its file, enabled at boot, the leaving one not, and the slot's state. Safe to do twice.

    The leaving one is disabled first: a power cut in between boots with neither, and the boot unit brings one.
    """
    unit, slot = work.new["unit"], work.plan["slot"]
    work.record.begin(
        "commit", f"slot {slot} is empty" if work.empties else f"{unit} becomes the slot's service"
    )
    trial.make_last(unit, work.new["unit_text"], work.before["units"][unit])
    for other, there in work.before["units"].items():
        if other != unit and there["enabled"] == "enabled":
            systemd.disable(other)
    if not work.empties:
        systemd.enable(unit)
    systemd.sync_enablement()
    try:
        systemd.daemon_reload()
    except AgentError as error:
        work.record.info(f"{error.what}: systemd reads it at its next reload", {"evidence": error.evidence})
    record.SLOTS.mkdir(mode=0o700, exist_ok=True)
    files.write_json(record.slot_path(slot), state(work))
    done = (
        "nothing starts there at boot"
        if work.empties
        else f"{unit} is enabled, slot {slot} is {work.new['service']}"
    )
    work.record.ok(done)


def confirm(work: Work) -> None:
    """A last look: a service that died while it was committed is not left as the slot's."""
    if work.empties:
        return
    unit = work.new["unit"]
    state = systemd.show([unit])[unit]
    no_process = "process" in probes.rungs_of(work.new) and state.get("MainPID", "0") == "0"
    if state.get("ActiveState") != "active" or no_process:
        evidence = [f"journal: {line[:400]}" for line in watch.tail(unit)]
        raise Failed(f"{unit} ended while it was committed", evidence)


def state(work: Work) -> Json:
    """``slots/<slot>.json`` after this rollout. The same service with the same unit keeps its ``previous``."""
    before = work.before["slot"] if isinstance(work.before["slot"], dict) else {}
    previous: Optional[Json] = None
    if is_same(work):
        previous = before.get("previous")
    elif work.old is not None:
        there = work.before["units"][work.old["unit"]]
        known = before if before.get("unit") == work.old["unit"] else {}
        previous = {**_head(work.old, there["text"]), **{k: v for k, v in known.items() if k != "previous"}}
        previous.setdefault("port", probes.port_of(work.plan, work.old))
        previous["unit_text"] = there["text"]
    elif vacant.is_vacant(before):
        was = {key: value for key, value in before.items() if key != "previous"}
        previous = before.get("previous") if work.empties else was
    text = work.new["unit_text"]
    if text is None:
        text = work.before["units"][work.new["unit"]]["text"]
    return {
        **_head(work.new, text),
        "port": work.plan["port"],
        "gpus": work.plan["gpus"],
        "rollout": work.plan["id"],
        "operator": work.plan.get("operator"),
        "since": time.time() if work.plan.get("restart", True) else before.get("since", time.time()),
        "previous": previous,
    }


def is_same(work: Work) -> bool:
    """Whether this rollout only starts again what filled the slot: no other service, no other unit text."""
    if work.old is None or work.old["unit"] != work.new["unit"]:
        return False
    before = work.before["slot"] if isinstance(work.before["slot"], dict) else {}
    named = before.get("service") or work.new.get("service")
    there = work.before["units"][work.new["unit"]]["text"]
    return named == work.new.get("service") and work.new["unit_text"] in (None, there)


def _head(target: Json, text: Optional[str]) -> Json:
    digest = None if text is None else sha256_of(text)
    return {**{key: target.get(key) for key in KEPT}, "unit_sha256": digest}
