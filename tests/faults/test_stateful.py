"""Rollouts, faults and hands in random order: one of the services that were deployed is always there."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.conftest import Lab
from tests.faults import agent, inject
from tests.faults.points import SWAP_BACK, Cell, Point
from tests.faults.site import Site
from tests.faults.verify import generations, leftovers, serving, steady

pytestmark = pytest.mark.lab

HOST = "ct129"
STEPS = ["preflight", "drain", "stop", "free", "install", "start", "port", "health", "commit"]
FAULTS = ["none", "rollout-killed", "service-killed", "power-cut", "aborted", "reload-refused"]
LONGER = int(os.environ.get("FLEETCTL_SEQUENCES", "1"))


class Host(RuleBasedStateMachine):
    """One slot of a real host. ``new`` never proves itself; ``good`` and ``after`` do."""

    lab: Lab

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fleetctl-sequence-"))
        self.site = Site(self.lab, HOST, self.folder, [Cell(SWAP_BACK, Point("health"))])
        self.slot = self.site.slots[0]
        self.serves: str | None = None

    def teardown(self) -> None:
        """Leave nothing for the next sequence."""
        self.site.clean()
        shutil.rmtree(self.folder)

    @initialize()
    def deployed(self) -> None:
        """A service that is there."""
        with self.site.agent() as agent:
            assert self.site.roll(agent, self.site.plan(self.slot, "good", None))["outcome"] == "done"
        self.serves = "good"

    @rule(
        service=st.sampled_from(["good", "after", "new"]),
        step=st.sampled_from(STEPS),
        at=st.sampled_from(["begin", "end"]),
        fault=st.sampled_from(FAULTS),
    )
    def roll(self, service: str, step: str, at: str, fault: str) -> None:
        """A rollout that a fault strikes somewhere, or that ends before it could."""
        orders = self.site.inside / "run/fleetctl-faults"
        orders.mkdir(exist_ok=True)
        for left in orders.iterdir():
            left.unlink()
        self.slot.cell = Cell(SWAP_BACK, Point(step, at))
        self.slot.problems.clear()
        self.site.order(self.slot)
        with self.site.agent() as session:
            plan = self.site.plan(self.slot, service, self.serves)
            self.slot.rollout = plan["id"]
            session.call("rollout.start", plan=plan, timeout=60)
            self.site.wait_held_or_ended()
            if fault == "aborted":
                session.call("rollout.abort", id=plan["id"], timeout=30)
        strike = inject.FAULTS[fault].strike if fault in inject.FAULTS else inject.nothing
        strike(self.site)
        self.site.wait_results()
        assert self.slot.problems == []
        result = self.site.result(self.slot)
        assert result is not None
        self.look(service, result, fault)

    @rule()
    def restarted_by_hand(self) -> None:
        """Somebody restarts what serves."""
        if self.serves:
            unit = self.slot.unit(self.serves)
            self.site.run(f"systemctl reset-failed {unit}; systemctl restart {unit}")
            self.site.until_serves(self.slot)

    def look(self, service: str, result: dict[str, Any], fault: str) -> None:
        """The record says who serves, and that one does."""
        with self.site.agent() as session:
            status, facts = steady(self.site, session)
        if result["outcome"] == "done":
            assert service != "new"
            self.serves = service
        found = serving(self.slot, facts)
        if found is None and fault == "service-killed":
            self.serves = None if result["outcome"] == "refused" else self.serves
            with self.site.agent() as session:
                back = self.site.roll(session, self.site.plan(self.slot, "good", "good"))
            assert back["outcome"] == "done", (result, back)
            self.serves = "good"
            return
        assert found == self.serves, result
        assert generations(self.site, self.site.slots) == {self.slot.port: True}
        assert (status[self.slot.name].unit, status[self.slot.name].enabled) == (self.slot.unit(found), True)
        active = [name for name in ("good", "new", "after") if _active(facts, self.slot.unit(name))]
        assert active == [found]
        assert leftovers(self.site) == []


def _active(facts: dict[str, Any], unit: str) -> bool:
    return facts["units"].get(unit, {}).get("ActiveState") in ("active", "activating")


@pytest.mark.timeout(1500)
def test_sequences(lab: Lab) -> None:
    agent.use()
    Host.lab = lab
    limits = settings(
        max_examples=LONGER,
        stateful_step_count=4 if LONGER == 1 else 10,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=LONGER == 1,
    )
    run_state_machine_as_test(Host, settings=limits)
