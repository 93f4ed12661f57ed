"""Faults at every step of every kind of rollout; a chosen part in each run, the whole by ``make faults``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Lab
from tests.faults import matrix, report
from tests.faults.inject import FAULTS, Fault
from tests.faults.points import (
    DEPLOY,
    KINDS,
    REDEPLOY,
    REDEPLOY_BACK,
    STOP,
    SWAP,
    SWAP_BACK,
    Cell,
    Kind,
    Point,
    cells,
)

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

HOST = "ct129"
CHOSEN = [
    Cell(DEPLOY, Point("health")),
    Cell(SWAP, Point("stop", "end")),
    Cell(SWAP, Point("commit", "systemd.disable")),
    Cell(REDEPLOY, Point("install", "end")),
    Cell(REDEPLOY, Point("commit")),
    Cell(SWAP_BACK, Point("restore-start")),
    Cell(REDEPLOY_BACK, Point("restore-units", "end")),
    Cell(STOP, Point("stop", "end")),
    Cell(STOP, Point("commit", "systemd.disable")),
]
CHOSEN_FAULTS = ("rollout-killed", "power-cut")
ALL = [(fault, kind) for fault in FAULTS.values() for kind in KINDS]


@pytest.mark.parametrize("name", CHOSEN_FAULTS)
def test_chosen(lab: Lab, tmp_path: Path, name: str) -> None:
    _judge(matrix.run(lab, HOST, tmp_path, FAULTS[name], CHOSEN))


@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("fault", "kind"), ALL, ids=[f"{fault.name}-{kind.name.replace(' ', '-')}" for fault, kind in ALL]
)
def test_whole(lab: Lab, tmp_path: Path, fault: Fault, kind: Kind) -> None:
    verdicts = matrix.run(lab, HOST, tmp_path, fault, cells(kind))
    report.keep(verdicts)
    _judge(verdicts)


def _judge(verdicts: list[matrix.Verdict]) -> None:
    wrong = [f"{one.fault}, {one.kind}, {one.point}: {one.problems}" for one in verdicts if one.problems]
    assert not wrong, "\n".join(wrong)
