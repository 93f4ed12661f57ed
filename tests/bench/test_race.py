"""A race throws out the slow ones and keeps the best with the stated confidence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.bench.race import FEWEST_PROMPTS, Race, batches
from fleetctl.errors import FleetError


def _run(speeds: dict[str, float], seed: int, noise: float = 0.05, prompts: int = 14, looks: int = 4) -> Race:
    """A race of candidates with these true speeds; prompts differ by a third, each candidate on each by a tenth."""
    random = np.random.default_rng(seed)
    levels = {f"p{number}": float(np.exp(random.normal(0, 0.3))) for number in range(prompts)}
    parts = batches(list(levels), looks)
    race = Race(list(speeds), len(parts))
    for part in parts:
        for name in race.running:
            taste = {prompt: float(np.exp(random.normal(0, 0.1 + noise))) for prompt in part}
            race.add(name, {(prompt, 0): speeds[name] * levels[prompt] * taste[prompt] for prompt in part})
        race.look()
    return race


def test_the_slow_leave_and_the_best_stays() -> None:
    race = _run(
        {"autoregressive": 16, "linear": 22, "budget=8": 30, "budget=16": 31, "budget=64": 14}, seed=1
    )
    assert {"autoregressive", "budget=64"} <= {gone.name for gone in race.out}
    assert race.leader in ("budget=8", "budget=16")
    assert {"budget=8", "budget=16"} <= set(race.running)
    worst = next(gone for gone in race.out if gone.name == "autoregressive")
    assert worst.ratio < worst.high < 1
    assert worst.ratio == pytest.approx(0.52, rel=0.2)


def test_where_all_are_the_same_one_leaves_in_less_than_a_twentieth_of_the_races() -> None:
    speeds = {f"c{number}": 20.0 for number in range(6)}
    wrong = sum("c0" in {gone.name for gone in _run(speeds, seed).out} for seed in range(300))
    assert wrong / 300 <= 0.05


def test_a_look_more_than_was_planned_would_break_the_promise() -> None:
    race = _run({"a": 1, "b": 1}, seed=1)
    with pytest.raises(ValueError, match="stated error"):
        race.look()


def test_too_few_prompts_throw_nobody_out() -> None:
    race = Race(["a", "b"], 1)
    for prompt in range(FEWEST_PROMPTS - 1):
        race.add("a", {(f"p{prompt}", 0): 100.0})
        race.add("b", {(f"p{prompt}", 0): 1.0})
    assert race.look() == []
    assert race.leader == "a"


def test_a_candidate_whose_requests_all_failed_ends_the_choice_with_a_reason() -> None:
    race = Race(["a", "b"], 1)
    race.add("a", {("p", 0): 1.0})
    assert race.look() == []
    with pytest.raises(FleetError, match="no prompt was answered by all"):
        _ = race.leader
    race.drop("b", "HTTP 500")
    assert (race.running, race.leader) == (["a"], "a")


def test_a_prompt_that_failed_for_one_is_left_out_of_its_pairs_only() -> None:
    race = Race(["a", "b"], 1)
    race.add("a", {(f"p{number}", 0): 10.0 + number / 10 for number in range(6)})
    race.add("b", {(f"p{number}", 0): 5.0 for number in range(5)})
    (gone,) = race.look()
    assert (gone.name, gone.by) == ("b", "a")
    assert race.ratio("b", "a") == pytest.approx(math.prod(5 / (10 + n / 10) for n in range(5)) ** 0.2)


def test_a_busy_stretch_in_one_look_throws_nobody_out() -> None:
    """All prompts of a look are slowed alike: sure by the prompts, and yet nothing."""
    race = Race(["a", "b"], 3)
    for look, slowed in enumerate((0.85, 1.3, 0.6)):
        for prompt in range(5):
            race.add("a", {(f"p{prompt}", look): 20.0 + prompt})
            race.add("b", {(f"p{prompt}", look): (20.0 + prompt) * slowed * (1 + prompt / 1000)})
        assert race.look() == []


def test_who_is_slower_in_each_of_two_looks_leaves() -> None:
    race = Race(["a", "b"], 2)
    for look in (1, 2):
        for prompt in range(4):
            race.add("a", {(f"p{prompt}{look}", look): 20.0 + prompt})
            race.add("b", {(f"p{prompt}{look}", look): (20.0 + prompt) * (0.9 + prompt / 1000)})
        assert [gone.name for gone in race.look()] == (["b"] if look == 2 else [])


@given(st.integers(1, 60), st.integers(1, 8))
def test_batches_are_all_the_prompts_in_order_and_none_too_small(count: int, looks: int) -> None:
    prompts = [f"p{number}" for number in range(count)]
    parts = batches(prompts, looks)
    assert [prompt for part in parts for prompt in part] == prompts
    assert len(parts) <= looks
    assert all(len(part) >= min(count, FEWEST_PROMPTS) for part in parts)
