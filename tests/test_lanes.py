"""The second lane of `make test` names folders that are there, so that nothing of it is lost."""

from __future__ import annotations

from tests import lanes


def test_the_second_lane_is_there() -> None:
    assert [name for name in lanes.SECOND if not (lanes.ROOT / name).is_dir()] == []
    assert list(lanes.SECOND) == sorted(set(lanes.SECOND))
