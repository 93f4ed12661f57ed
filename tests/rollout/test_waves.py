"""Waves: every host in one of them, canaries first, and when the rest is not begun."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.rollout.waves import Pace, Wave, must_stop, waves

PACES = st.builds(
    Pace,
    max_parallel=st.integers(1, 40),
    canary=st.integers(0, 10),
    max_failures=st.integers(0, 5),
    pause_s=st.sampled_from([0.0, 1.0]),
)


@given(st.lists(st.integers(), unique=True, max_size=60), PACES)
def test_every_host_is_in_one_wave_in_order(hosts: list[int], pace: Pace) -> None:
    found = waves(hosts, pace)
    assert [host for wave in found for host in wave.hosts] == hosts
    assert all(wave.hosts for wave in found)
    assert [wave.is_canary for wave in found] == [
        bool(pace.canary) and number == 0 for number in range(len(found))
    ]
    if pace.canary and found:
        assert found[0].hosts == hosts[: pace.canary]
    if pace.pause_s:
        assert all(len(wave.hosts) <= pace.max_parallel for wave in found if not wave.is_canary)
    else:
        assert len(found) <= 2


def test_one_canary_that_fails_is_enough_and_others_may_fail_so_often() -> None:
    pace = Pace(max_failures=1)
    assert must_stop(1, Wave([1], is_canary=True), pace) == "1 of the canaries failed"
    assert must_stop(1, Wave([1]), pace) == ""
    assert must_stop(2, Wave([1]), pace) == "2 failed, and --max-failures is 1"
