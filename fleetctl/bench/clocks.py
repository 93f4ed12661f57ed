"""The clocks of a measurement, read together: whether somebody set the wall clock meanwhile."""

from __future__ import annotations

import time

DRIFT_S = 0.05
AT_ONCE_S = 0.001
LOOKS = 100


def clock_jump(wall: float, steady: float) -> float:
    """Seconds that the wall clock was set by, while a steady clock passed ``steady``; 0 for mere drift."""
    return wall - steady if abs(wall - steady) > DRIFT_S else 0.0


def clocks() -> tuple[float, float, float]:
    """The wall clock, a steady one and the CPU time, of one moment: the closest of some looks, if one was held up."""
    looks = []
    for _ in range(LOOKS):
        steady, wall, cpu = time.monotonic(), time.time(), time.process_time()
        took = time.monotonic() - steady
        looks.append((took, (wall, steady, cpu)))
        if took < AT_ONCE_S:
            break
    return min(looks)[1]
