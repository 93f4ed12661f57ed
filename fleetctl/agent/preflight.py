"""What would make a rollout fail, found before anything is touched; reads only."""

from __future__ import annotations

import difflib
import os
import re
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from fleetctl.agent import files, gpus, net, probes, record, systemd
from fleetctl.agent.before import CONTEXT_MIB

Json = Dict[str, Any]

ENVIRONMENTS = record.HOME / "envs"
MARKER = ".fleetctl-env.json"
ROOM_BYTES = 4 << 20
ROOM_FILES = 16
UNIT_NAME = re.compile(r"[A-Za-z0-9:_.@-]+\.service")


def preflight(args: Json, emit: Callable[[Json], None]) -> Json:
    """The ``preflight`` call: ``{"findings", "diff"}`` of a plan."""
    plan = args["plan"]
    found = Preflight(plan)
    return {"findings": found.findings, "diff": diff(plan)}


def finding(
    rule: str,
    what: str,
    where: str = "",
    fix: str = "",
    evidence: Sequence[str] = (),
    severity: str = "error",
) -> Json:
    """One finding, as doctor words them."""
    return {
        "id": rule,
        "severity": severity,
        "what": what,
        "where": where,
        "fix": fix,
        "evidence": list(evidence),
    }


def diff(plan: Json) -> List[str]:
    """The lines in which the new unit's file differs from the one there."""
    unit, text = plan["new"]["unit"], plan["new"]["unit_text"]
    if text is None:
        return []
    path = systemd.UNITS / unit
    there = path.read_text(encoding="utf-8") if path.is_file() else ""
    return list(difflib.unified_diff(there.splitlines(), text.splitlines(), "there", "planned", lineterm=""))


class Preflight:
    """One look at the host: the findings, and the facts (``gpus``, ``units``) that they were made from."""

    def __init__(self, plan: Json) -> None:
        self.plan = plan
        self.new: Json = plan["new"]
        self.old: Optional[Json] = plan.get("old")
        self.findings: List[Json] = []
        names = [self.new["unit"], *([self.old["unit"]] if self.old else [])]
        if not all(UNIT_NAME.fullmatch(name) for name in names):
            self.findings.append(finding("unit-name", f"no unit names: {', '.join(names)}"))
            return
        self.gpus: Json = {}
        verified: List[List[str]] = []
        text = self.new["unit_text"]
        asked = [threading.Thread(target=lambda: self.gpus.update(gpus.query()))]
        if text is not None:
            asked.append(
                threading.Thread(target=lambda: verified.append(systemd.verify(text, self.new["unit"])))
            )
        for thread in asked:
            thread.start()
        self.units = systemd.show(sorted(set(names)))
        self._state()
        self._environment()
        self._models()
        self._port()
        self._disk()
        for thread in asked:
            thread.join()
        self._unit(verified[0] if verified else None)
        self._gpus()

    @property
    def errors(self) -> List[Json]:
        """The findings that forbid the rollout."""
        return [found for found in self.findings if found["severity"] == "error"]

    def _add(self, rule: str, what: str, *rest: Any, **named: Any) -> None:
        self.findings.append(finding(rule, what, *rest, **named))

    def _state(self) -> None:
        state = files.read_json(record.slot_path(self.plan["slot"]))
        held = state.get("unit") if isinstance(state, dict) else None
        if held and (self.old is None or self.old["unit"] != held):
            planned = self.old["unit"] if self.old else "nothing"
            what = f"slot {self.plan['slot']} is held by {held}, the plan expects {planned}"
            self._add("plan-stale", what, held, "plan again: another rollout came in between")

    def _unit(self, said: Optional[List[str]]) -> None:
        unit = self.new["unit"]
        text = self.new["unit_text"]
        if text is None:
            if self.units[unit].get("LoadState") == "not-found":
                self._add("unit-missing", f"{unit} is not there and the plan brings no text for it", unit)
            return
        if said is None:
            self._add("unit-verify", "systemd-analyze verify could not be run", unit, "install systemd")
        elif said:
            self._add("unit-verify", f"systemd-analyze verify: {said[0]}", unit, "correct the unit", said)
        if not re.search(r"^\[Install\]", text, re.MULTILINE):
            what = f"{unit} has no [Install] section: it will not start at boot"
            self._add("unit-install", what, unit, "add WantedBy=multi-user.target", severity="warning")
        drops = self.units[unit].get("DropInPaths", "").split()
        if drops:
            what = f"{unit} has drop-ins that fleetctl does not manage"
            self._add("unit-drop-ins", what, unit, "remove them, or know them", drops, severity="warning")

    def _environment(self) -> None:
        environment = self.new.get("environment")
        if not environment:
            return
        python = Path(environment) / "bin" / "python"
        if not os.access(python, os.X_OK):
            self._add("environment-python", f"{python} cannot be run", environment, "build the environment")
        if ENVIRONMENTS in Path(environment).parents and not (Path(environment) / MARKER).is_file():
            what = f"the environment is not complete: {MARKER} is missing"
            self._add("environment-incomplete", what, environment, "build the environment again")

    def _models(self) -> None:
        for path in self.new.get("model_paths") or []:
            if path.startswith("/") and not Path(path).exists():
                self._add("model-missing", f"{path} is not there", path, "copy the model to the host")

    def _port(self) -> None:
        port = int(self.plan["port"])
        owner = net.port_owner(port)
        if owner is None:
            return
        ours = {self.new["unit"], *([self.old["unit"]] if self.old else [])}
        if owner["unit"] in ours:
            return
        fix = "stop it, or give the slot another port"
        if owner["unit"] and (self.old is None or self.old.get("adopted")):
            fix = f"deploy again: {owner['unit']} is then adopted as the service to go back to, or stop it"
        what = f"port {port} is held by {probes.describe(owner)}"
        self._add("port-held", what, f"port {port}", fix, [f"{key}: {value}" for key, value in owner.items()])

    def _disk(self) -> None:
        for folder in (systemd.UNITS, record.HOME):
            try:
                room = os.statvfs(folder)
            except OSError as error:
                self._add("disk", f"{folder}: {error.strerror}", str(folder))
                continue
            no_inodes = room.f_files > 0 and room.f_favail < ROOM_FILES
            if room.f_bavail * room.f_frsize < ROOM_BYTES or no_inodes:
                what = f"no room on the disk of {folder}"
                self._add("disk-full", what, str(folder), "free some: `fleetctl env prune` may help")
            elif room.f_flag & os.ST_RDONLY:
                self._add("disk-read-only", f"{folder} is read-only", str(folder), "mount it writable")

    def _gpus(self) -> None:
        wanted = self.plan["gpus"]
        if not wanted:
            return
        there = {gpu["index"]: gpu for gpu in self.gpus["gpus"]}
        said = [self.gpus["error"]] if self.gpus["error"] else []
        leaving = (
            systemd.cgroup_pids(self.units[self.old["unit"]].get("ControlGroup", "")) if self.old else []
        )
        for index in wanted:
            gpu = there.get(index)
            where = f"GPU {index}"
            if gpu is None:
                what = f"there is no GPU {index}: {len(there)} found"
                self._add("gpu-missing", what, where, "correct the slot's gpus in the inventory", said)
            elif gpu["memory_total_mib"] is None:
                fix = "reboot or replace it, or give the slot another GPU"
                self._add("gpu-dead", f"GPU {index} does not answer", where, fix, said)
            else:
                self._gpu_use(gpu, leaving)

    def _gpu_use(self, gpu: Json, leaving: List[int]) -> None:
        where = f"GPU {gpu['index']}"
        fix = "stop it, or give the slot another GPU"
        apps = [app for app in self.gpus["apps"] if app["gpu"] == gpu["index"]]
        for app in apps:
            if app["pid"] not in leaving:
                unit = systemd.unit_of(app["pid"]) if app["pid"] else None
                what = f"{where} is in use by process {app['pid']} ({unit or app['name']})"
                command = net.command(app["pid"]) if app["pid"] else ""
                self._add("gpu-in-use", what, where, fix, [f"command: {command}"])
        used = gpu["memory_used_mib"]
        if not apps and not leaving and used is not None and used > CONTEXT_MIB:
            what = f"{used} MiB of {where} are in use by a process that cannot be seen"
            self._add("gpu-memory-held", what, where, fix)
