"""What a tuning may look at, whom it checks against and what it then advises."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.bench.points import Planned
from fleetctl.bench.prompts import Prompt
from fleetctl.bench.race import Race
from fleetctl.bench.suite import load_suite
from fleetctl.bench.tuning import advise, check, entry, rivals, split
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import load_fleet
from fleetctl.inventory.models import Service

ROOT = Path(__file__).parents[2]
KINDS = ("code", "fact", "creative")


def _prompts(counts: dict[str, int]) -> list[Prompt]:
    return [
        Prompt(name=f"{kind}-{number}", kind=kind, text="Say it.")
        for kind, count in counts.items()
        for number in range(count)
    ]


def _speeds(level: float, prompts: int = 6) -> dict[tuple[str, int], float]:
    return {
        (f"p{prompt}", repeat): level * (1 + prompt / 10) * (1 + 0.01 * repeat)
        for prompt in range(prompts)
        for repeat in (1, 2)
    }


@given(st.dictionaries(st.sampled_from(KINDS), st.integers(4, 12), min_size=1), st.integers(0, 9))
def test_no_prompt_is_chosen_with_and_checked_with(counts: dict[str, int], seed: int) -> None:
    prompts = _prompts(counts)
    try:
        parted = split(prompts, 1 / 3, seed)
    except FleetError:
        assert len(prompts) < 9
        return
    names = [prompt.name for prompt in [*parted.chosen_with, *parted.held_out]]
    assert sorted(names) == sorted(prompt.name for prompt in prompts)
    for kind, count in counts.items():
        held = sum(prompt.kind == kind for prompt in parted.held_out)
        assert abs(held - count / 3) <= 1
    assert split(prompts, 1 / 3, seed) == parted


def test_the_workload_that_comes_with_it_is_large_enough() -> None:
    suite = load_suite(ROOT, "tune")
    parted = split(suite.read_prompts(ROOT), 1 / 3, suite.seed)
    assert (len(parted.chosen_with), len(parted.held_out)) == (13, 7)
    assert {prompt.kind for prompt in parted.held_out} == {"code", "explanation", "fact", "creative"}


def test_a_check_tells_better_from_worse_from_neither() -> None:
    mine = _speeds(20)
    odd = {key: value * (1.3 if key[0] in ("p0", "p2", "p4") else 0.8) for key, value in mine.items()}
    found = check(mine, {"slow": _speeds(15), "quick": _speeds(25), "odd": odd}, seed=1)
    assert [one.verdict for one in found] == ["confirmed", "contradicted", "not significant"]
    assert found[0].ratio.mean == pytest.approx(20 / 15)
    assert found[0].ratio.confidence == pytest.approx(1 - 0.05 / 3)


def test_a_difference_that_one_round_contradicts_is_none() -> None:
    mine = _speeds(20)
    other = {
        (prompt, repeat): value * (0.5 if repeat == 1 else 1.05) for (prompt, repeat), value in mine.items()
    }
    (found,) = check(mine, {"other": other}, seed=1)
    assert found.ratio.low is not None and found.ratio.low > 1
    assert found.verdict == "not significant"


@pytest.mark.parametrize(
    ("others", "incumbent", "advice", "word"),
    [
        ({"now": 15.0}, "now", "choice", "1.33 times"),
        ({"now": 20.0}, "now", "now", "no significant difference"),
        ({"now": 25.0}, "now", "now", "does not hold"),
        ({"now": 15.0, "rival": 25.0}, "now", "rival", "does not hold"),
        ({"rival": 15.0}, None, "choice", "nothing of these ran"),
        ({"rival": 15.0}, "choice", "choice", "nothing is to be changed"),
        (
            {"rival": 20.0},
            "choice",
            "choice",
            "no significant difference between what runs now and the best of",
        ),
        ({"rival": 25.0}, "choice", "rival", "does not hold"),
        ({}, "choice", "choice", "what runs now is the quickest"),
    ],
)
def test_the_advice_is_what_was_shown(
    others: dict[str, float], incumbent: str | None, advice: str, word: str
) -> None:
    checks = check(_speeds(20), {name: _speeds(level) for name, level in others.items()}, seed=1)
    found, why = advise("choice", incumbent, checks)
    assert found == advice and word in why


def test_the_choice_is_checked_against_what_runs_and_the_best_of_another_service() -> None:
    services = {"t8": "ddtree", "t16": "ddtree", "ar": "autoregressive", "df": "dflash"}
    points = {
        name: Planned(name, "h", "s", service, "tree", "standalone", {}, {}, 1, 1) for name, service in services.items()
    }  # fmt: skip
    race = Race(list(services), 1)
    for name, level in {"t8": 30.0, "t16": 29.0, "ar": 10.0, "df": 20.0}.items():
        race.add(name, _speeds(level))
    assert rivals(race, "t8", "ar", points) == ["ar", "df"]
    assert rivals(race, "t8", "df", points) == ["df"]
    assert rivals(race, "t8", "t8", points) == ["df"]
    race.drop("df", "HTTP 500")
    assert rivals(race, "t8", None, points) == ["ar"]


def test_the_entry_is_the_inventorys_with_the_chosen_arguments() -> None:
    host = load_fleet(ROOT, "inventories/lab").hosts["ct200"]
    data = yaml.safe_load(entry(host, "ddtree", {"budget": 8, "top-k": 4}))
    written = yaml.safe_load((ROOT / "inventories/lab/ct200.yaml").read_text())["services"]["ddtree"]
    assert data["ddtree"]["args"] == {"budget": 8, "top-k": 4}
    assert data["ddtree"]["deadlines"]["drain"] == 20
    expected = Service.model_validate({**written, "args": {"budget": 8, "top-k": 4}})
    assert Service.model_validate(data["ddtree"]) == expected
