"""A lab host with a slot for each cell of the matrix: rollouts held at their points, and what became of them."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fleetctl.inventory.loader import load_fleet
from fleetctl.inventory.models import Host
from fleetctl.lab import hosts as lab_hosts
from fleetctl.rollout.plan import Kind, Plan
from fleetctl.rollout.status import SlotStatus, facts_arguments, slot_statuses
from fleetctl.services.target import Target, build_target, vacant_target
from fleetctl.transport.agent import Agent, open_agent
from tests.conftest import Lab
from tests.faults.points import Cell

Json = dict[str, Any]

STANDIN = Path(__file__).parents[1] / "rollout_host" / "standin.py"
REPOSITORY = Path(__file__).parents[2]
VENV = "/var/lib/fleetctl/standin-venv"
ORDERS = "run/fleetctl-faults"
DEADLINES = {"drain": 20, "stop": 20, "free": 30, "ready": 120, "generate": 60}
AT_ONCE = 6
HELD_S = 180.0
CONTROLLER_S = 120.0
BOUND_S = 150.0
NUMBERS = itertools.count(1)
FIRST_PORT = 23000
"""Below the ports that outgoing connections take: one of a probe would keep a service from its port."""
TEMPLATE = """[Unit]
Description={{ service }}

[Service]
ExecStart=/usr/bin/python3 -I -S /var/lib/fleetctl/standin.py {{ variables["KNOBS"] | word }}
TimeoutStopSec=4

[Install]
WantedBy=multi-user.target
"""


@dataclass
class Slot:
    """A cell's own slot and services: ``good`` is there first, ``new`` (or good's unit anew) comes, ``after`` last."""

    cell: Cell
    name: str
    port: int
    rollout: str = ""
    problems: list[str] = field(default_factory=list)
    outcome: str = ""

    def unit(self, service: str) -> str:
        """The unit of a service; a redeploy brings another text for the same one."""
        if service == "new" and self.cell.kind.same_unit:
            service = "good"
        return f"{self.name}-{service}.service"

    def knobs(self, service: str) -> Json:
        """How the stand-in behaves; ``tag`` says which of them it is."""
        fails = {"tokens": 3} if service == "new" and self.cell.kind.fails else {}
        return {"port": self.port, "model": "m", "tag": service, **fails}


class Site:
    """The host with the slots of one batch."""

    def __init__(self, lab: Lab, name: str, folder: Path, cells: Sequence[Cell]) -> None:
        self.lab, self.name, self.folder = lab, name, folder
        self.place = lab.hosts[name]
        self.slots = [self._slot(cell) for cell in cells]
        self.controller: subprocess.Popen[str] | None = None
        (folder / "inventories").mkdir(exist_ok=True)
        (folder / "templates/systemd").mkdir(parents=True, exist_ok=True)
        (folder / "templates/systemd/standin.service.j2").write_text(TEMPLATE)
        self._anew = self.write(anew=True)
        self.host = self.write()
        self.fleet = load_fleet(folder, "inventories")
        (lab.state(name) / "standin.py").write_text(STANDIN.read_text())
        self.clean()
        self.run(f"test -x {VENV}/bin/python || python3 -m venv --without-pip {VENV}; mkdir -p /{ORDERS}")

    def _slot(self, cell: Cell) -> Slot:
        number = next(NUMBERS)
        return Slot(cell, f"f{number}", FIRST_PORT + number)

    def write(self, anew: bool = False) -> Host:
        """Write the inventory; with ``anew``, where a redeploy is to come, ``good`` behaves as the new service."""
        services = {}
        for slot in self.slots:
            for name in ("good", "new", "after"):
                behaves = "new" if anew and name == "good" and slot.cell.kind.same_unit else name
                services[f"{slot.name}-{name}"] = self._service(slot, f"{slot.name}-{name}", behaves)
        ssh = {"hostname": self.place.address, "user": "root", "identity_file": str(self.lab.identity)}
        host = {
            "host": self.name,
            "ssh": {**ssh, "known_hosts": str(self.lab.known_hosts)},
            "gpus": {"count": 8},
            "slots": {slot.name: {"gpus": [], "port": slot.port} for slot in self.slots},
            "environments": {"standin": {"path": VENV}},
            "models": {"m": {"path": "/etc/hostname"}},
            "services": services,
        }
        (self.folder / f"inventories/{self.name}.yaml").write_text(yaml.safe_dump(host, sort_keys=False))
        return load_fleet(self.folder, "inventories").hosts[self.name]

    def _service(self, slot: Slot, name: str, behaves: str) -> Json:
        return {
            "slot": slot.name,
            "engine": "standalone",
            "mode": "autoregressive",
            "environment": "standin",
            "model": "m",
            "unit": f"{name}.service",
            "template": "standin.service.j2",
            "env": {"KNOBS": json.dumps(slot.knobs(behaves))},
            "probe": {"prompt": "one", "max_tokens": 8},
            "deadlines": DEADLINES,
        }

    def run(self, command: str, check: bool = True) -> str:
        """A command on the host by ssh; its output."""
        return self.lab.run(self.name, command, check=check, timeout=180).stdout

    @property
    def inside(self) -> Path:
        """The host's files as it sees them, tmpfs and all; without its network."""
        record = json.loads((self.lab.state(self.name).parent / "record.json").read_text())
        children = Path(f"/proc/{record['pid']}/task/{record['pid']}/children").read_text().split()
        return Path(f"/proc/{children[0]}/root")

    def target(self, slot: Slot, service: str) -> Target:
        """A service of the slot as the agent gets it."""
        if service == "new" and slot.cell.kind.empties:
            return vacant_target(slot.name)
        if service == "new" and slot.cell.kind.same_unit:
            return build_target(self.fleet, self._anew, f"{slot.name}-good", VENV, None)
        return build_target(self.fleet, self.host, f"{slot.name}-{service}", VENV, None)

    def plan(self, slot: Slot, service: str, old: str | None) -> Json:
        """The plan that brings ``service``."""
        return self._plan(slot, self.target(slot, service), self.target(slot, old) if old else None)

    def plan_after(self, slot: Slot, old: Target | None) -> Json:
        """The plan that brings ``after`` in place of what the controller has found there."""
        return self._plan(slot, self.target(slot, "after"), old)

    def _plan(self, slot: Slot, new: Target, old: Target | None) -> Json:
        deadlines = self.host.services[f"{slot.name}-good"].deadlines
        kind: Kind = "swap" if old and new.unit != old.unit else "deploy"
        if new.is_vacant:
            kind = "stop"
        return Plan.for_slot(kind, self.host, slot.name, new, old, deadlines).to_message()

    @contextmanager
    def agent(self) -> Iterator[Agent]:
        """One agent session with the hooked agent."""
        with open_agent(self.host) as agent:
            yield agent

    def roll(self, agent: Agent, plan: Json) -> Json:
        """A rollout from start to result."""
        agent.call("rollout.start", plan=plan, timeout=60)
        result: Json = agent.call("rollout.follow", id=plan["id"], timeout=BOUND_S)
        return result

    def each(self, work: Callable[[Slot], None], slots: Sequence[Slot] | None = None) -> None:
        """The work on every slot, some at a time; what it raises is the slot's problem."""

        def guarded(slot: Slot) -> None:
            try:
                work(slot)
            except Exception as error:
                slot.problems.append(f"{type(error).__name__}: {error}"[:600])

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(guarded, self.slots if slots is None else slots))

    def set_up(self) -> None:
        """The old services, proven and enabled."""
        with self.agent() as agent:

            def bring(slot: Slot) -> None:
                result = self.roll(agent, self.plan(slot, "good", None))
                assert result["outcome"] == "done", result

            self.each(bring, [slot for slot in self.slots if slot.cell.kind.has_old])

    def order(self, slot: Slot, **more: Any) -> None:
        """Have the slot's next rollout held at its point."""
        point = slot.cell.point
        text = json.dumps({"step": point.step, "at": point.at, **more})
        (self.inside / ORDERS / f"{slot.name}.json").write_text(text)

    def start(self) -> None:
        """Start the rollouts of all slots through the agent, and wait until each is held."""
        with self.agent() as agent:

            def go(slot: Slot) -> None:
                plan = self.plan(slot, "new", "good" if slot.cell.kind.has_old else None)
                slot.rollout = plan["id"]
                agent.call("rollout.start", plan=plan, timeout=60)

            self.each(go)
        self.wait_held()

    def start_by_controller(self) -> None:
        """Have a controller of its own process start and follow all rollouts, and wait until each is held."""
        plans = []
        for slot in self.slots:
            plan = self.plan(slot, "new", "good" if slot.cell.kind.has_old else None)
            slot.rollout = plan["id"]
            plans.append(plan)
        (self.folder / "plans.json").write_text(json.dumps(plans))
        env = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{os.environ.get('PYTHONPATH', '')}"}
        words = ["-m", "tests.faults.controller", str(self.folder), self.name]
        self.controller = subprocess.Popen(
            [sys.executable, *words], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.wait_held()

    def end_controller(self) -> dict[str, str | int]:
        """How the controller saw each rollout end: its outcome, or an exit code; it must end by itself."""
        if self.controller is None:
            return {}
        try:
            out, err = self.controller.communicate(timeout=CONTROLLER_S)
        except subprocess.TimeoutExpired:
            self.controller.kill()
            self.slots[0].problems.append("the controller did not end")
            out, err = self.controller.communicate()
        assert not err, err
        return {line["slot"]: line["ended"] for line in map(json.loads, out.splitlines())}

    def judge_settled(self) -> None:
        """Crashed rollouts have a result by now, written by the deploy that came next."""
        for slot in self.slots:
            result = self.result(slot) or {}
            slot.outcome = result.get("outcome", "crashed")
            if slot.outcome == "crashed":
                slot.problems.append("the next deploy did not settle it")

    def wait_held(self) -> None:
        """Until every rollout is at its point."""
        end = time.monotonic() + HELD_S
        waiting = [slot for slot in self.slots if not slot.problems]
        while waiting and time.monotonic() < end:
            place = self.inside / ORDERS
            waiting = [slot for slot in waiting if not (place / f"{slot.name}.held").exists()]
            time.sleep(0.05)
        for slot in waiting:
            slot.problems.append(f"its point was not reached: {self.events(slot)[-3:]}")

    def wait_held_or_ended(self) -> None:
        """Until the first slot's rollout is at its point, or over."""
        held = self.inside / ORDERS / f"{self.slots[0].name}.held"
        end = time.monotonic() + HELD_S
        while not held.exists() and self.result(self.slots[0]) is None and time.monotonic() < end:
            time.sleep(0.05)

    def release(self) -> None:
        """Let all go on."""
        for slot in self.slots:
            (self.inside / ORDERS / f"{slot.name}.go").touch()

    def folder_of(self, slot: Slot) -> Path:
        """The record of the slot's rollout."""
        return self.inside / "var/lib/fleetctl/rollouts" / (slot.rollout or "none")

    def events(self, slot: Slot) -> list[str]:
        """The slot's rollout so far, in short."""
        try:
            lines = (self.folder_of(slot) / "events.jsonl").read_text().splitlines()
        except OSError:
            return []
        return [f"{event['step']} {event['state']}: {event['text']}" for event in map(json.loads, lines)]

    def result(self, slot: Slot) -> Json | None:
        """``result.json``, once it is there."""
        try:
            found: Json = json.loads((self.folder_of(slot) / "result.json").read_text())
        except (OSError, ValueError):
            return None
        return found

    def wait_results(self) -> None:
        """Until every rollout has its result, within the bound."""
        end = time.monotonic() + BOUND_S
        waiting = list(self.slots)
        while waiting and time.monotonic() < end:
            waiting = [slot for slot in waiting if self.result(slot) is None]
            time.sleep(0.1)
        for slot in waiting:
            slot.problems.append(f"no result within {BOUND_S:.0f} s: {self.events(slot)[-4:]}")

    def boot(self) -> None:
        """Switch the host on again."""
        lab_hosts.boot(self.place)

    def statuses(self, agent: Agent) -> tuple[dict[str, SlotStatus], Json]:
        """``fleetctl status`` of each slot, and the facts it was made from."""
        arguments = facts_arguments(self.host)
        facts = agent.call("facts", **arguments)
        return {status.slot: status for status in slot_statuses(self.host, facts)}, facts

    def until_serves(self, slot: Slot) -> None:
        """Wait until the slot's port answers."""
        self.run(f"until curl -sf -m 10 -o /dev/null 127.0.0.1:{slot.port}/health; do sleep 0.1; done")

    def clean(self) -> None:
        """Take all slots away."""
        self.run(
            f"rm -rf /{ORDERS}; systemctl stop 'fleetctl-rollout-f[0-9]*.service' 'f[0-9]*-*.service'; "
            "cd /etc/systemd/system; rm -f f[0-9]*-*.service multi-user.target.wants/f[0-9]*-*.service "
            "fleetctl-settle-*.service multi-user.target.wants/fleetctl-settle-*.service "
            "/run/systemd/system{.control,}/f[0-9]*; systemctl daemon-reload; systemctl reset-failed; "
            "rm -rf /var/lib/fleetctl/slots/f[0-9]*.json /var/lib/fleetctl/rollouts/*-f[0-9]*-*",
            check=False,
        )
