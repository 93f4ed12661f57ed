"""What became of a slot while it was measured, in words, and where it is told who or what did it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleetctl.bench.filled import Filled, changed
from fleetctl.bench.points import plan_bench
from fleetctl.bench.refusals import disturbed
from tests.bench.test_points import host, suite

BEGAN = Filled("ddtree", "ddtree.service", "start-1", "active", True, "r1", "ana", "")
THEIRS = {"rollout": "r2", "operator": "ben"}


@pytest.mark.parametrize(
    ("now", "said", "see"),
    [
        ({"state": "activating", "runs": False}, "ddtree.service ended, and is being", "logs ct200 ddtree"),
        ({"state": "failed", "runs": False}, "ddtree.service failed", "logs ct200 ddtree"),
        ({"state": "inactive", "runs": False}, "does not run any more: it is inactive", "logs ct200 ddtree"),
        ({"start": "start-2"}, "ddtree.service was restarted", "logs ct200 ddtree"),
        ({"start": "start-2", **THEIRS}, "was restarted (rollout r2 of ben)", "history ct200"),
        ({"state": "activating", "runs": False, **THEIRS}, "it is activating (rollout r2 of ben)", "history ct200"),
        ({"service": "plain", "unit": "plain.service"}, "plain took its place", "history ct200"),
        ({"at_work": "rollout r2"}, "rollout r2 was at work in its slot", "history ct200"),
    ],
)  # fmt: skip
def test_a_service_that_died_is_told_from_one_that_somebody_touched(
    now: dict[str, Any], said: str, see: str
) -> None:
    change = changed(BEGAN, replace(BEGAN, **now))
    assert change is not None and said in change.what
    (point,) = plan_bench(host(), suite(), ["ddtree"], 1).points
    assert f"fleetctl {see} " in disturbed(point, change).fix


def test_the_same_process_is_no_change() -> None:
    assert changed(BEGAN, replace(BEGAN, **THEIRS)) is None
