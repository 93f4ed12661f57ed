"""One batch of the matrix: many rollouts on one host, each held at its point, and one fault for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import Lab
from tests.faults import agent, inject
from tests.faults.inject import Fault
from tests.faults.points import Cell
from tests.faults.site import Site
from tests.faults.verify import next_deploy, verify


@dataclass(frozen=True)
class Verdict:
    """What became of one cell."""

    fault: str
    kind: str
    point: str
    outcome: str
    problems: list[str]


def run(lab: Lab, host: str, folder: Path, fault: Fault, cells: Sequence[Cell]) -> list[Verdict]:
    """Strike all cells at once and judge each."""
    agent.use()
    site = Site(lab, host, folder, cells)
    try:
        if fault.name == "disk-full":
            inject.small_disks(site)
        site.set_up()
        for slot in site.slots:
            site.order(slot, **({"clock": fault.clock} if fault.clock else {}))
        if fault.by_controller:
            site.start_by_controller()
        else:
            site.start()
        fault.strike(site)
        if not fault.crashes:
            site.wait_results()
            verify(site)
        ends = site.end_controller()
        for slot in site.slots if fault.by_controller else []:
            if ends.get(slot.name) not in fault.ends and ends.get(slot.name) != slot.outcome:
                slot.problems.append(f"the controller ended with {ends.get(slot.name)}")
        next_deploy(site)
        if fault.crashes:
            site.judge_settled()
    finally:
        lab.reset()
        if fault.name == "disk-full":
            inject.usual_disks(site)
        site.clean()
    return [
        Verdict(fault.name, slot.cell.kind.name, slot.cell.point.name, slot.outcome, slot.problems)
        for slot in site.slots
    ]
