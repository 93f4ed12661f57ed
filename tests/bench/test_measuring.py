"""The client's times are those of the server's schedule: the cases of benchmarks/bench_client.py, shorter.

Bounds are wide, since what else runs on the machine is measured too; the benchmark has the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.bench_client import Case, run_case
from tests.bench.scheduled import running


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running() as url:
        yield url


@pytest.mark.parametrize(
    "case",
    [
        Case("one stream", 1, 3, 0.3, 0.02, 40, 1, 0.1),
        Case("drafted", 1, 3, 0.3, 0.05, 80, 4, 0.1),
        Case("64 streams", 64, 128, 0.4, 0.032, 60, 1, 0.25),
    ],
    ids=lambda case: case.name,
)
def test_a_known_schedule_is_measured_as_it_was(url: str, case: Case) -> None:
    assert any(run_case(url, case).worst <= case.bound for _ in range(3))


def test_streams_at_once_do_not_make_each_other_late(url: str) -> None:
    """With one pool for all connections, choosing one of 64 took so long that the last request began seconds late."""
    case = Case("at once", 64, 192, 0.5, 0.03, 2, 1, 0.5)
    assert any(run_case(url, case).ttft[0] <= 0.2 for _ in range(3))
