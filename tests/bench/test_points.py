"""Suites become points and visits in the order that is stated, and requests in the order of the prompts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.bench import clocks
from fleetctl.bench.asks import Round, calibration, characters_a_token, filler
from fleetctl.bench.clocks import clock_jump
from fleetctl.bench.points import choose_services, copies, gpus_for, plan_bench
from fleetctl.bench.prompts import Message, Prompt
from fleetctl.bench.suite import Suite
from fleetctl.errors import FleetError
from fleetctl.inventory.models import Host
from tests.bench import made

PROMPTS = [Prompt(name=name, kind="code", text=f"Write {name}.") for name in ("a", "b", "c")]


def host(**fields: Any) -> Host:
    def service(engine: str, mode: str, slot: str = "native") -> dict[str, Any]:
        drafter = {} if mode == "autoregressive" else {"drafter": "d"}
        return {"slot": slot, "engine": engine, "mode": mode, "environment": "e", "model": "m", **drafter}

    return Host.model_validate(
        {
            "host": "ct200", "gpus": {"count": 8}, "default_slot": "native",
            "slots": {"native": {"gpus": [1], "port": 30001}, "other": {"gpus": [0], "port": 30000}},
            "environments": {"e": {"path": "/venv"}}, "models": {"m": {"path": "/m"}, "d": {"path": "/d"}},
            "services": {
                "plain": service("standalone", "autoregressive"), "dflash": service("standalone", "linear"),
                "ddtree": service("standalone", "tree"), "big": service("sglang", "tree"),
                "wrapper": service("standalone", "tree", "other"),
            },
            **fields,
        }
    )  # fmt: skip


def suite(**fields: Any) -> Suite:
    return Suite.model_validate({"suite": "s", **fields})


def test_services_are_those_named_else_the_suites_else_the_slots() -> None:
    ct200 = host()
    assert choose_services(ct200, suite(services=["dflash"]), ["ddtree", "plain"]) == ["ddtree", "plain"]
    assert choose_services(ct200, suite(services=["dflash"]), []) == ["dflash"]
    assert choose_services(ct200, suite(), []) == ["plain", "dflash", "ddtree", "big"]
    with pytest.raises(FleetError, match="which the suite s names") as caught:
        choose_services(ct200, suite(services=["nope"]), [])
    assert "--service NAME" in caught.value.fix
    with pytest.raises(FleetError, match="dflash named twice by the suite s"):
        choose_services(ct200, suite(services=["dflash", "dflash"]), [])
    with pytest.raises(FleetError, match="ddtree named twice"):
        choose_services(ct200, suite(), ["ddtree", "plain", "ddtree"])


def test_interleaved_measures_a_b_a_b_and_blocks_a_a_b_b() -> None:
    def order(**fields: Any) -> list[tuple[str, list[int], bool]]:
        plan = plan_bench(host(), suite(repeats=2, **fields), ["plain", "ddtree"], 3)
        return [(visit.point.service, visit.rounds, visit.swap) for visit in plan.visits]

    assert order() == [
        ("plain", [1], True), ("ddtree", [1], True), ("plain", [2], True), ("ddtree", [2], True),
    ]  # fmt: skip
    assert order(order="blocks") == [("plain", [1, 2], True), ("ddtree", [1, 2], True)]
    assert [swap for _, _, swap in order(order="blocks", concurrency=[1, 4])] == [True, False, True, False]


def test_only_modes_that_take_it_are_varied() -> None:
    plan = plan_bench(host(), suite(vary={"budget": [8, 15], "topk": [4]}), ["plain", "ddtree", "big"], 3)
    assert [point.id for point in plan.points] == [
        "ct200/native/plain@c1",
        "ct200/native/ddtree?budget=8&topk=4@c1",
        "ct200/native/ddtree?budget=15&topk=4@c1",
        "ct200/native/big?budget=8&topk=4@c1",
        "ct200/native/big?budget=15&topk=4@c1",
    ]
    assert plan.points[2].overrides == {"budget": 15, "top-k": 4}
    assert plan.points[4].overrides == {
        "speculative-ddtree-budget": 15, "speculative-ddtree-topk": 4,
    }  # fmt: skip
    assert plan.left_out == ["plain (mode autoregressive) takes no budget, topk: measured as it is"]
    with pytest.raises(FleetError, match="varies bugdet, which no engine knows") as caught:
        plan_bench(host(), suite(vary={"bugdet": [1]}), ["ddtree"], 3)
    assert "did you mean budget?" in caught.value.fix


def test_no_plan_is_without_bounds() -> None:
    most = suite(repeats=1000, warmup=0)
    assert plan_bench(host(), most, ["plain"], 1000).requests == 1_000_000
    with pytest.raises(FleetError, match="more than 1,000,000 requests would be planned"):
        plan_bench(host(), most, ["plain"], 1001)
    values = list(range(1, 1001))
    with pytest.raises(FleetError, match="more than 1,000,000 requests"):
        plan_bench(host(), suite(repeats=1000, vary={"budget": values, "topk": values}), ["ddtree"], 3)


def test_tensor_parallel_takes_gpus_of_no_other_slot() -> None:
    plan = plan_bench(host(), suite(tp=[1, 4, 8]), ["big", "ddtree"], 3)
    assert [point.varied for point in plan.points] == [{"tp": 1}, {"tp": 4}, {}]
    assert gpus_for(host(), "native", 4) == [1, 2, 3, 4]
    assert any("tp 8" in note for note in plan.left_out) and any("ddtree" in note for note in plan.left_out)


@given(st.integers(1, 40), st.integers(1, 64))
def test_enough_requests_to_keep_so_many_at_work(prompts: int, concurrency: int) -> None:
    asked = copies(prompts, concurrency) * prompts
    assert asked >= (prompts if concurrency == 1 else 2 * concurrency)
    assert asked - prompts < 2 * concurrency


def test_the_plan_counts_and_times_what_it_asks_for() -> None:
    plan = plan_bench(
        host(), suite(repeats=2, warmup=2, max_tokens=100), ["plain"], 3, lambda point: (7.0, 2.0)
    )
    assert plan.requests == 2 * (3 + 2)
    assert plan.seconds == 7.0 + 10 * 2.0
    longer = plan_bench(host(), suite(repeats=2, warmup=2, max_tokens=1000), ["plain"], 3)
    assert longer.seconds > plan_bench(host(), suite(repeats=2, warmup=2), ["plain"], 3).seconds


def whose(asked: list[Prompt], fields: dict[str, Any], point: dict[str, Any] | None = None) -> Round:
    from dataclasses import replace

    planned = plan_bench(host(), suite(**fields), ["ddtree"], len(asked)).points[0]
    return Round(replace(planned, **(point or {})), suite(**fields), asked)


def test_each_service_is_asked_the_same_in_the_same_order() -> None:
    rounds = whose(PROMPTS, {"repeats": 2, "concurrency": [2], "seed": 7})
    asked = [
        (one.prompt, one.repeat, one.round, one.seed) for number in (1, 2) for one in rounds.asks(number)
    ]
    assert [name for name, *_ in asked] == ["a", "b", "c"] * 4
    assert [repeat for _, repeat, *_ in asked] == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    assert [number for *_, number, _ in asked] == [1] * 6 + [2] * 6
    warm = [one for number in (1, 2, 3, 4) for one in rounds.warmups(number)]
    assert all(one.warmup for one in warm) and [one.prompt for one in warm] == ["a", "b", "c", "a"]


def test_turns_grow_on_the_answers_given() -> None:
    said = [("system", "S"), ("user", "1"), ("user", "RESULT 2"), ("assistant", "own"), ("user", "3")]
    messages = [Message.model_validate({"role": role, "content": text}) for role, text in said]
    ask = next(whose([Prompt(name="agent", messages=messages)], {"turns": 3}).asks(1))
    seen = []
    point = made.point()
    while ask is not None:
        seen.append((ask.prompt, [(one["role"], one["content"]) for one in ask.messages]))
        following = ask.follow(made.request(point, text=f"answer {len(seen)}")) if ask.follow else None
        if following is None:
            break
        ask = following
    assert [name for name, _ in seen] == ["agent#1", "agent#2", "agent#3"]
    assert seen[0][1] == [("system", "S"), ("user", "1")]
    assert seen[1][1] == [*seen[0][1], ("assistant", "answer 1"), ("user", "RESULT 2")]
    assert seen[2][1] == [*seen[1][1], ("assistant", "own"), ("user", "3")]


def test_a_conversation_of_one_turn_is_sent_whole_and_a_failure_ends_it() -> None:
    messages = [
        Message.model_validate({"role": role, "content": text})
        for role, text in (("user", "1"), ("assistant", "2"), ("user", "3"))
    ]
    prompt = Prompt(name="chat", messages=messages)
    (ask,) = whose([prompt], {}).asks(1)
    assert [one["content"] for one in ask.messages] == ["1", "2", "3"] and ask.prompt == "chat"
    (first,) = whose([prompt], {"turns": 2}).asks(1)
    assert first.follow is not None and first.follow(made.failed(made.point())) is None


def test_prompts_are_filled_up_to_the_length_wanted() -> None:
    rounds = whose(PROMPTS, {}, {"context_tokens": 512})
    lengths = {sum(len(one["content"]) for one in ask.messages) for ask in rounds.asks(1)}
    assert all(abs(length - 512 * rounds.characters) < 8 for length in lengths)
    first, again = next(rounds.asks(1)), next(rounds.asks(2))
    assert first.messages == again.messages and first.messages[-1]["content"].endswith("\n\nWrite a.")
    ask = calibration(400)
    assert characters_a_token(ask, made.request(made.point(), prompt_tokens=100)) == 4.0
    assert len(filler(321, "x")) == 321 and filler(50, "x") != filler(50, "y")


def test_a_clock_that_is_set_is_told_from_one_that_drifts() -> None:
    assert clock_jump(3605.0, 5.0) == 3600.0 and clock_jump(-3595.0, 5.0) == -3600.0
    assert clock_jump(5.01, 5.0) == 0.0


def test_clocks_are_read_at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stalls between two looks, twice: no clock was set."""
    now, stalls = 100.0, [3.0, 0.0, 0.0, 0.0, 7.0, 0.0]

    def look() -> float:
        nonlocal now
        now += stalls.pop() if stalls else 0.0
        return now

    clock = SimpleNamespace(monotonic=look, time=lambda: 1000 + look(), process_time=lambda: 1.0)
    monkeypatch.setattr(clocks, "time", clock)
    wall, steady, _ = clocks.clocks()
    assert wall - steady == 1000 and not stalls
