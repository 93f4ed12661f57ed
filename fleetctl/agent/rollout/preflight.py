"""What would make a rollout fail, found before anything is touched; reads only."""

from __future__ import annotations

import difflib
import os
import pwd
import re
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

from fleetctl.agent import files
from fleetctl.agent.environment import damage
from fleetctl.agent.host import gpus, net
from fleetctl.agent.paths import ENVS, MARKER
from fleetctl.agent.rollout import lock, probes, record, secretfile
from fleetctl.agent.rollout.before import CONTEXT_MIB, lasts
from fleetctl.agent.rollout.vacant import is_vacant
from fleetctl.agent.units import systemd, unitfile

Json = Dict[str, Any]

ENVIRONMENTS = Path(ENVS)
ROOM_BYTES = 4 << 20
ROOM_FILES = 16


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
        state = files.read_json(record.slot_path(plan["slot"]))
        self._slot: Json = state if isinstance(state, dict) else {}
        self._settled: Set[Any] = set()
        names = [self.new["unit"]]
        names += [other["unit"] for other in (self.old, self._slot) if other and other.get("unit")]
        if not all(systemd.UNIT_NAME.fullmatch(name) for name in names):
            self.findings.append(finding("unit-name", f"no unit names: {', '.join(names)}"))
            return
        self.gpus: Json = {"gpus": [], "apps": [], "error": None}
        verified: List[List[str]] = []
        text = self.new["unit_text"]
        asked = []
        if plan["gpus"]:
            asked.append(threading.Thread(target=lambda: self.gpus.update(gpus.query())))
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
        self._other_place()
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
        held = self._slot.get("unit")
        adopted = self.old is not None and self.old.get("adopted")
        empty = self.old is None and is_vacant(self._slot)
        if held and not adopted and not empty and (self.old is None or self.old["unit"] != held):
            planned = self.old["unit"] if self.old else "nothing"
            what = f"slot {self.plan['slot']} is held by {held}, the plan expects {planned}"
            self._add("plan-stale", what, held, "plan again: another rollout came in between")
        self._unfinished()
        self._leaving(held)
        unit, text = self.new["unit"], self.new["unit_text"]
        ours = {held, (self._slot.get("previous") or {}).get("unit"), (self.old or {}).get("unit")}
        path = systemd.UNITS / unit
        if (
            text is not None
            and unit not in ours
            and path.exists()
            and path.read_text(encoding="utf-8") != text
        ):
            what = f"{path} is there and not from this slot's last rollouts: it is replaced"
            self._add("unit-replaces", what, unit, "the rollout keeps its text", severity="warning")

    def _unfinished(self) -> None:
        """What a power cut left, where nobody is at work: the next rollout begins with it.

        The unit that it brought is gone by then, and stands in nobody's way.
        """
        slot = self.plan["slot"]
        if lock.holder(slot) is not None:
            return
        for folder in record.unfinished(slot, but=self.plan["id"]):
            self._settled.add((files.read_json(folder / "plan.json") or {}).get("new", {}).get("unit"))
            what = f"rollout {folder.name} was left unfinished: it is undone first, or finished if it was committing"
            self._add(
                "unfinished", what, str(folder), "see what it began: events.jsonl there", severity="warning"
            )

    def _leaving(self, held: Optional[str]) -> None:
        """What leaves must be able to come back, and leave nothing that serves beside it."""
        if self.old is None:
            return
        unit = self.old["unit"]
        fragment = self.units[unit].get("FragmentPath", "")
        if probes.running(self.units[unit]) and not lasts(fragment) and unit not in self._settled:
            what = f"{unit} runs from no unit file that lasts ({fragment or 'none'}): nothing could start it again"
            fix = f"write its unit file to {systemd.UNITS}, or stop {unit} and deploy again"
            self._add("unit-transient", what, unit, fix)
        if self.plan.get("overlap") and unit == self.new["unit"]:
            self._add("unit-runs", f"{unit} cannot run beside itself", unit, "swap without --blue-green")
        if held and held not in (unit, self.new["unit"]) and probes.running(self.units[held]):
            what = f"{held}, the slot's recorded service, runs beside {unit}, which has the port"
            self._add("slot-double", what, held, f"stop the wrong one of the two: systemctl stop {held}")
        environment = self.old.get("environment")
        if environment and not os.access(Path(environment) / "bin" / "python", os.X_OK):
            what = f"the environment of {unit} is gone: it could not be started again"
            self._add(
                "environment-leaving", what, environment, "the new service must succeed", severity="warning"
            )

    def _unit(self, said: Optional[List[str]]) -> None:
        unit = self.new["unit"]
        text = self.new["unit_text"]
        if is_vacant(self.new):
            return
        if text is None:
            if self.units[unit].get("LoadState") == "not-found":
                self._add("unit-missing", f"{unit} is not there and the plan brings no text for it", unit)
            return
        if said is None:
            self._add("unit-verify", "systemd-analyze verify could not be run", unit, "install systemd")
        missing = [found["where"] for found in self.findings if found["id"] == "environment-missing"]
        said = [line for line in said or [] if not any(place in line for place in missing)]
        if said:
            fix = "install it: apt-get install haproxy" if "/haproxy" in said[0] else "correct the unit"
            self._add("unit-verify", f"systemd-analyze verify: {said[0]}", unit, fix, said)
        self._account(unit, text)
        if not re.search(r"^\[Install\]", text, re.MULTILINE):
            what = f"{unit} has no [Install] section: it will not start at boot"
            self._add("unit-install", what, unit, "add WantedBy=multi-user.target", severity="warning")
        runs = probes.running(self.units[unit]) and unit not in self._settled
        if runs and (self.old is None or self.old["unit"] != unit):
            what = f"{unit} runs already, and is not the service that this plan replaces"
            fix = f"stop it (`systemctl stop {unit}` there), then deploy again"
            self._add("unit-runs", what, unit, fix)
        drops = self.units[unit].get("DropInPaths", "").split()
        if drops:
            what = f"{unit} has drop-ins that fleetctl does not manage"
            self._add("unit-drop-ins", what, unit, "remove them, or know them", drops, severity="warning")

    def _environment(self) -> None:
        environment = self.new.get("environment")
        if not environment:
            return
        place = Path(environment)
        ours = ENVIRONMENTS in place.parents
        fix = "fleetctl deploy of that service builds it" if ours else "correct its path in the inventory"
        if not place.is_dir():
            self._add("environment-missing", f"{place} is not there", environment, fix)
        elif ours and not (place / MARKER).is_file():
            what = f"the environment is not complete: {MARKER} is missing"
            self._add("environment-incomplete", what, environment, fix)
        elif not any(os.access(place / "bin" / name, os.X_OK) for name in ("python", "python3")):
            what = f"{place / 'bin' / 'python'} cannot be run"
            self._add("environment-python", what, environment, fix)
        elif lost := damage.environment_damage(place):
            what = f"the environment is damaged: {len(lost)} of its files are gone, the first {lost[0]}"
            self._add("environment-damaged", what, environment, damage.advice(place), lost[:10])

    def _models(self) -> None:
        for path in self.new.get("model_paths") or []:
            if path.startswith("/") and not Path(path).exists():
                self._add("model-missing", f"{path} is not there", path, "copy the model to the host")
            elif lost := damage.model_damage(Path(path)):
                what = f"the model is damaged: {lost[0]}"
                self._add("model-damaged", what, path, damage.advice(Path(path)), lost[:10])

    def _account(self, unit: str, text: str) -> None:
        """The user and the secrets that the unit names must be there, or systemd refuses to start it."""
        for user in unitfile.settings([text]).get("User", [])[-1:]:
            try:
                pwd.getpwnam(user)
            except KeyError:
                fix = f"`useradd --system --no-create-home {user}` there, or another `user:` in the inventory"
                self._add("unit-user", f"{unit} runs as {user}, and the host has no such user", unit, fix)
        lost = secretfile.missing(text)
        if lost:
            fix = "deploy it again from the inventory: that sends them"
            self._add("secrets-missing", f"the secrets of {unit} are not there", lost, fix)

    def _port(self) -> None:
        port = int(self.plan["port"])
        owner = net.port_owner(port)
        if owner is None or owner["unit"] in self._settled:
            return
        if self.old is not None and owner["unit"] == self.old["unit"]:
            return
        fix = "stop it, or give the slot another port"
        if owner["unit"] and (self.old is None or self.old.get("adopted")):
            fix = f"deploy again: {owner['unit']} is then adopted as the service to go back to, or stop it"
        what = f"port {port} is held by {probes.describe(owner)}"
        self._add("port-held", what, f"port {port}", fix, [f"{key}: {value}" for key, value in owner.items()])

    def _other_place(self) -> None:
        """Nothing but the old service in the slot's other place: a router would send requests to it too."""
        port = (self.plan.get("router") or {}).get("other_port")
        owner = net.port_owner(int(port)) if port else None
        if owner is None or (self.old is not None and owner["unit"] == self.old["unit"]):
            return
        what = (
            f"port {port}, the slot's other place, is held by {probes.describe(owner)}, which no record names"
        )
        fix = f"stop it: systemctl stop {owner['unit'] or owner['pid']}"
        self._add("other-place-held", what, f"port {port}", fix)

    def _disk(self) -> None:
        kept = [folder for folder in (record.SLOTS, record.ROLLOUTS) if folder.is_dir()]
        full: Set[int] = set()
        for folder in (systemd.UNITS, record.HOME, *kept):
            try:
                room = os.statvfs(folder)
            except OSError as error:
                self._add("disk", f"{folder}: {error.strerror}", str(folder))
                continue
            no_inodes = room.f_files > 0 and room.f_favail < ROOM_FILES
            if (device := folder.stat().st_dev) in full:
                continue
            if room.f_bavail * room.f_frsize < ROOM_BYTES or no_inodes:
                full.add(device)
                what = f"no room on the disk of {folder}"
                self._add(
                    "disk-full",
                    what,
                    str(folder),
                    f"free some there: `df -h {folder}`, `df -i {folder}`, `fleetctl env list`",
                )
            elif room.f_flag & os.ST_RDONLY:
                full.add(device)
                self._add("disk-read-only", f"{folder} is read-only", str(folder), "mount it writable")

    def _gpus(self) -> None:
        wanted = self.plan["gpus"]
        if not wanted or is_vacant(self.new):
            return  # what leaves a GPU may leave a dead one
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
                if unit in self._settled:
                    continue
                what = f"{where} is in use by process {app['pid']} ({unit or app['name']})"
                command = net.command(app["pid"]) if app["pid"] else ""
                self._add("gpu-in-use", what, where, fix, [f"command: {command}"])
        used = gpu["memory_used_mib"]
        if not apps and not leaving and used is not None and used > CONTEXT_MIB:
            what = f"{used} MiB of {where} are in use by a process that cannot be seen"
            self._add("gpu-memory-held", what, where, fix)
