"""A slot of its own on a lab host, with stand-in services to deploy to it."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

from fleetctl.services.target import vacant_target
from tests.rollout_host.host import Host
from tests.transport.sshd import wait_for

Json = dict[str, Any]

NUMBERS = itertools.count(1)
DEADLINES = {"drain": 60, "stop": 60, "free": 60, "ready": 60, "generate": 60}
"""Far more than any step takes, on a machine that stalls too; what is to run out of time is given less."""
UNIT = """[Unit]
Description=a stand-in for a model server

[Service]
ExecStart=/usr/bin/python3 -I -S /var/lib/fleetctl/standin.py '{knobs}'
TimeoutStopSec=4
{more}
[Install]
WantedBy=multi-user.target
"""


def quoted(text: str) -> str:
    """The text inside single quotes in a unit."""
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("%", "%%")


class Gate:
    """A file on the host that a stand-in waits for; shut at first."""

    def __init__(self, host: Host, name: str) -> None:
        self.path = f"/var/lib/fleetctl/{name}"
        self._file = host.state / name

    def open(self) -> None:
        """Let pass who waits."""
        self._file.touch()

    def shut(self) -> None:
        """Let nobody pass from now on."""
        self._file.unlink()


class Site:
    """The slot ``t<N>`` with a port of its own."""

    def __init__(self, host: Host) -> None:
        number = next(NUMBERS)
        self.host = host
        self.slot = f"t{number}"
        self.port = 31000 + number
        self.signatures: list[Json] = []
        self.gpus: list[int] = []
        self._ids = itertools.count(1)

    def target(self, service: str, more: str = "", unit: str | None = None, **knobs: Any) -> Json:
        """A service whose stand-in behaves as ``knobs`` say."""
        knobs = {"port": self.port, "model": service, **knobs}
        return {
            "service": service,
            "mode": "linear",
            "engine": "wrapper",
            "unit": unit or f"{self.slot}-{service}.service",
            "unit_text": UNIT.format(knobs=quoted(json.dumps(knobs)), more=more),
            "environment": None,
            "environment_digest": None,
            "model_id": service,
            "model_paths": [],
            "metrics": {"running": "x:running", "queued": "x:queued"},
            "probe": {"prompt": "one two three", "max_tokens": 8},
            "adopted": False,
        }

    def gate(self) -> Gate:
        """A gate of its own."""
        return Gate(self.host, f"gate-{self.slot}-{next(self._ids)}")

    def nothing(self) -> Json:
        """The target that leaves the slot empty."""
        return vacant_target(self.slot).to_dict()

    def plan(self, new: Json, old: Json | None = None, **deadlines: float) -> Json:
        """A plan that brings ``new`` in ``old``'s place."""
        return {
            "schema": 1,
            "id": f"{self.slot}-{next(self._ids)}-{time.time_ns() % 10**9}",
            "kind": "swap" if old else "deploy",
            "host": self.host.name,
            "slot": self.slot,
            "port": self.port,
            "gpus": self.gpus,
            "created": time.time(),
            "operator": "tester",
            "fleetctl": "test",
            "new": new,
            "old": {**old, "unit_text": None} if old else None,
            "deadlines": {**DEADLINES, **deadlines},
            "signatures": self.signatures,
        }

    def roll(self, plan: Json, watch: Callable[[Json], None] | None = None) -> tuple[list[Json], Json]:
        """Start the rollout and follow it to its end: events and result."""
        self.host.call("rollout.start", {"plan": plan})
        return self.follow(plan["id"], watch)

    def follow(self, rollout: str, watch: Callable[[Json], None] | None = None) -> tuple[list[Json], Json]:
        """The events of a rollout, from the first, and its result."""
        events: list[Json] = []

        def take(event: Json) -> None:
            events.append(event)
            if watch:
                watch(event)

        result = self.host.call("rollout.follow", {"id": rollout}, take)
        return events, result

    def wait_ended(self) -> None:
        """Until the rollout's process is gone, which is after its result."""
        asked = f"systemctl is-active fleetctl-rollout-{self.slot}.service"
        wait_for(lambda: self.host.run(asked, check=False).strip() in ("inactive", "failed", "unknown"), 60)

    def deploy(self, service: str, more: str = "", **knobs: Any) -> Json:
        """A service that serves the slot from now on."""
        new = self.target(service, more, **knobs)
        _, result = self.roll(self.plan(new))
        assert result["outcome"] == "done", result
        return new

    def show(self, unit: str) -> dict[str, str]:
        """systemd's view of a unit."""
        return dict(self.host.call("facts", {"units": [unit]})["units"][unit])

    def owner(self) -> Json | None:
        """Who listens on the slot's port."""
        slots = {self.slot: {"port": self.port}}
        found: Json | None = self.host.call("facts", {"slots": slots})["ports"][str(self.port)]
        return found

    def locked_by(self) -> Json:
        """Who holds the slot's lock."""
        slots = {self.slot: {"port": self.port}}
        return self.host.call("facts", {"slots": slots})["slots"][self.slot]["locked_by"] or {}

    def state(self) -> Json | None:
        """``slots/<slot>.json``."""
        path = self.host.state / "slots" / f"{self.slot}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def unit_text(self, unit: str) -> str | None:
        """The unit's file in /etc/systemd/system."""
        path = self.host.root / "etc/systemd/system" / unit
        return path.read_text() if path.exists() else None

    def serves(self, service: str) -> bool:
        """Whether that service answers a generation on the slot's port."""
        body = json.dumps({"prompt": "x", "max_tokens": 2})
        asked = self.host.run(
            f"curl -s -m 30 127.0.0.1:{self.port}/v1/models;",
            f"curl -s -m 30 -d '{body}' 127.0.0.1:{self.port}/v1/completions",
            check=False,
        )
        return f'"id": "{service}"' in asked and '"completion_tokens": 2' in asked


def steps(events: list[Json], state: str = "ok") -> list[str]:
    """The steps that ended so, in their order."""
    return [event["step"] for event in events if event["state"] == state]


def once(step: str, act: Callable[[], object], state: str = "begin") -> Callable[[Json], None]:
    """A watcher that acts when the step first is in that state."""
    seen: list[Json] = []

    def watch(event: Json) -> None:
        if (event["step"], event["state"]) == (step, state) and not seen:
            seen.append(event)
            act()

    return watch
