"""Intervals, ratios and outliers, on made-up values whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.bench.statistics import contrary, differs, interval, outliers, paired_ratio, student_quantile
from fleetctl.errors import FleetError

KEYS = st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 3))
SPEEDS = st.dictionaries(KEYS, st.floats(0.1, 1e4), min_size=1)


def _speeds(random: np.random.Generator, prompts: int = 5, repeats: int = 3) -> dict[tuple[str, int], float]:
    """Prompts that differ by a fifth, repeats by a twentieth, around 100."""
    return {
        (f"p{prompt}", repeat): float(level * np.exp(random.normal(0, 0.05)))
        for prompt, level in enumerate(100 * np.exp(random.normal(0, 0.2, prompts)))
        for repeat in range(repeats)
    }


@given(SPEEDS)
@settings(max_examples=60, deadline=None)
def test_an_interval_lies_within_the_values_and_holds_their_mean(
    values: dict[tuple[str, int], float],
) -> None:
    found = interval(values, draws=200)
    assert found.n == len(values)
    assert found.prompts == len({prompt for prompt, _ in values})
    if found.low is None or found.high is None:
        assert len(values) == 1
        return
    slack = 1e-9 * max(values.values())
    assert min(values.values()) - slack <= found.low <= found.high <= max(values.values()) + slack


@given(SPEEDS, st.floats(0.5, 2))
@settings(max_examples=60, deadline=None)
def test_the_ratio_of_values_to_the_same_ones_scaled_is_the_scale(
    values: dict[tuple[str, int], float], scale: float
) -> None:
    found = paired_ratio({key: value * scale for key, value in values.items()}, values, draws=200)
    assert found.mean == pytest.approx(scale)
    assert found.median == pytest.approx(scale)
    if found.low is not None:
        assert found.low == pytest.approx(scale)


def test_ninety_five_intervals_of_a_hundred_hold_the_truth_though_there_are_but_five_prompts() -> None:
    random = np.random.default_rng(1)
    held = 0
    for trial in range(300):
        a, b = _speeds(random), _speeds(random)
        found = paired_ratio(a, b, seed=trial, draws=4000)
        held += not differs(found)
    assert 0.92 <= held / 300 <= 0.995


def test_a_true_difference_is_found_and_one_that_is_none_is_not() -> None:
    random = np.random.default_rng(2)
    base = _speeds(random)
    noise = {key: float(np.exp(random.normal(0, 0.02))) for key in base}
    assert differs(paired_ratio({key: value * 1.2 * noise[key] for key, value in base.items()}, base))
    assert not differs(paired_ratio({key: value * noise[key] for key, value in base.items()}, base))


def test_a_pair_takes_out_what_its_two_share() -> None:
    random = np.random.default_rng(3)
    drift = [1.0, 0.5, 0.8]
    base = {key: value * drift[key[1]] for key, value in _speeds(random).items()}
    ratio = paired_ratio({key: value * 1.03 for key, value in base.items()}, base)
    assert ratio.low == pytest.approx(1.03)
    spread = interval(base)
    assert spread.low is not None and spread.high is not None
    assert spread.high / spread.low > 1.3


def test_the_mean_of_a_prompt_that_lost_repeats_weighs_no_less() -> None:
    found = interval({("a", 0): 10.0, ("b", 0): 20.0, ("b", 1): 20.0, ("b", 2): 20.0})
    assert (found.mean, found.median, found.n, found.prompts) == (15.0, 15.0, 4, 2)


def test_one_value_has_no_interval_and_never_differs() -> None:
    found = paired_ratio({("a", 0): 9.0}, {("a", 0): 1.0})
    assert (found.low, found.high) == (None, None)
    assert not differs(found)


def test_the_same_seed_gives_the_same_interval() -> None:
    values = _speeds(np.random.default_rng(4))
    assert interval(values, seed=7) == interval(values, seed=7) != interval(values, seed=8)


def test_more_prompts_make_it_narrower() -> None:
    few = interval(_speeds(np.random.default_rng(5), prompts=4))
    many = interval(_speeds(np.random.default_rng(5), prompts=40))
    assert few.low is not None and few.high is not None and many.low is not None and many.high is not None
    assert many.high - many.low < (few.high - few.low) / 2


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({}, {}),
        ({("a", 0): 1.0}, {("b", 0): 1.0}),
        ({("a", 0): 0.0}, {("a", 0): 1.0}),
        ({("a", 0): math.nan}, {("a", 0): 1.0}),
    ],
    ids=["nothing", "nothing-shared", "zero", "not-a-number"],
)
def test_a_ratio_of_nothing_is_refused(
    a: dict[tuple[str, int], float], b: dict[tuple[str, int], float]
) -> None:
    with pytest.raises(FleetError):
        paired_ratio(a, b)


def test_an_outlier_is_named_and_kept() -> None:
    values = {(f"p{p}", r): 100.0 * (p + 1) * (1 + 0.01 * r) for p in range(5) for r in range(3)}
    assert outliers(values) == []
    values[("p3", 1)] *= 0.5
    assert outliers(values) == ["p3 #1"]
    assert interval(values).n == 15


def test_the_prompt_that_contradicts_the_mean_is_named() -> None:
    linear = {("fibonacci", 0): 140.4, ("json_parse", 0): 83.0, ("quicksort", 0): 97.1}
    tree = {("fibonacci", 0): 160.0, ("json_parse", 0): 174.1, ("quicksort", 0): 77.4}
    assert contrary(tree, linear) == ["quicksort"]


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (10, 2.228), (99, 1.984)]
)
def test_students_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, abs=1e-3)
