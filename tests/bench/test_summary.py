"""Summaries: what is merged, what is compared, what never is, and where answers part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.bench.agreement import difference
from fleetctl.bench.record import Request, encode
from fleetctl.bench.records import DISTURBED, Recording, glance, load
from fleetctl.bench.report import facts, view
from fleetctl.bench.report.choose import charts
from fleetctl.bench.report.words import verdict
from fleetctl.bench.summary import Summary, summarize
from fleetctl.errors import Exit, FleetError
from tests.bench import synthetic
from tests.bench.synthetic import FOUR, Spec

SAME = tuple(replace(spec, digest=f"d-{spec.service}") for spec in FOUR)


def summary_of(*paths: Path) -> Summary:
    return summarize([load(path) for path in paths])


def test_a_run_is_compared_prompt_by_prompt_with_what_does_not_draft(tmp_path: Path) -> None:
    found = summary_of(synthetic.write(tmp_path))
    (cell,) = found.cells
    assert (cell.base, cell.best) == ("autoregressive", "ddtree")
    tree = cell.ratios["ddtree"]
    assert tree.sure and tree.ratio.low is not None and tree.ratio.low < 33.1 / 17.2 < (tree.ratio.high or 0)
    assert cell.lead is not None and (cell.lead.one, cell.lead.other) in {
        ("ddtree", "dflash"),
        ("ddtree", "shadow"),
    }
    point = found.points["ddtree"]
    assert point.accepted is not None and 2.8 < point.accepted.mean < 3.4
    assert found.points["autoregressive"].accepted is None
    assert point.counted == 15 and set(point.prompts) == set(synthetic.KINDS)
    requests = [
        request
        for request in load(synthetic.write(tmp_path, identity="b")).requests
        if "ddtree" in request.point
    ]
    speeds = [request.tokens / request.end_s for request in requests]
    assert point.speed is not None and point.speed.mean == pytest.approx(sum(speeds) / len(speeds))


def test_equal_services_are_not_called_different(tmp_path: Path) -> None:
    alike = [Spec("one", "linear", 25.0, 2.0, spread=0.2), Spec("two", "linear", 25.0, 2.0, spread=0.2)]
    found = summary_of(synthetic.write(tmp_path, alike))
    assert not found.cells[0].ratios["two"].sure


def test_one_round_says_that_it_cannot_tell_a_difference_from_drift(tmp_path: Path) -> None:
    once = summary_of(synthetic.write(tmp_path, repeats=1))
    (cell,) = once.cells
    tree = cell.ratios["ddtree"]
    assert tree.rounds == 1 and not tree.sure and tree.ratio.low is not None and tree.ratio.low > 1.1
    assert "in one round" in verdict(once, cell)[0] and "drifted" in verdict(once, cell)[0]
    twice = summary_of(synthetic.write(tmp_path, repeats=2, identity="b"))
    assert twice.cells[0].ratios["ddtree"].sure


def test_runs_of_one_digest_are_one_point_and_others_are_told_apart(tmp_path: Path) -> None:
    first = synthetic.write(tmp_path, SAME, identity="20261129T100000Z-x-aaaa")
    again = synthetic.write(tmp_path, SAME, identity="20261129T110000Z-x-bbbb", seed=2)
    merged = summary_of(first, again)
    assert list(merged.points) == [spec.service for spec in SAME]
    assert merged.points["ddtree"].counted == 30
    assert len(merged.points["ddtree"].prompts["haiku"].values) == 6
    changed = [replace(spec, digest=f"e-{spec.service}") for spec in SAME]
    other = summary_of(first, synthetic.write(tmp_path, changed, identity="20261129T120000Z-x-cccc"))
    assert len(other.points) == 8
    assert all(point.counted == 15 for point in other.points.values())
    assert "ddtree (20261129T100000)" in other.points


def test_what_a_sweep_took_over_from_an_earlier_run_is_counted_once(tmp_path: Path) -> None:
    first = load(synthetic.write(tmp_path, SAME, identity="20261129T100000Z-x-aaaa"))
    taken = load(synthetic.write(tmp_path, SAME, identity="20261129T110000Z-y-bbbb"))
    why = f"measured before, in run {first.run.id}"
    taken = replace(taken, ends={name: replace(end, why=why) for name, end in taken.ends.items()})
    assert summarize([first, taken]).points["ddtree"].counted == 15
    assert summarize([taken]).points["ddtree"].counted == 15


def test_another_load_generators_requests_are_told_apart(tmp_path: Path) -> None:
    own = synthetic.write(tmp_path, SAME, identity="own")
    theirs = [replace(spec, digest=f"aiperf-{spec.service}") for spec in SAME]
    other = synthetic.write(
        tmp_path, theirs, identity="other", change=lambda one: replace(one, by="aiperf 0.12")
    )
    assert {"ddtree", "ddtree by aiperf 0.12"} <= set(summary_of(own, other).points)


def test_two_models_are_refused_and_named(tmp_path: Path) -> None:
    one = synthetic.write(tmp_path, identity="one")
    two = synthetic.write(tmp_path, [replace(spec, model="qwen3") for spec in FOUR], identity="two")
    with pytest.raises(FleetError) as caught:
        summary_of(one, two)
    assert caught.value.exit == Exit.INPUT
    assert any("qwen3" in line for line in caught.value.evidence)
    assert any("smollm2" in line for line in caught.value.evidence)


def test_warm_ups_failures_and_empty_answers_are_counted_and_in_no_mean(tmp_path: Path) -> None:
    def spoil(request: Request) -> Request:
        if request.prompt == "haiku":
            return synthetic.failed(request, "http", 429, "busy")
        if request.prompt == "quicksort":
            return replace(request, tokens=0, events=[], ttft_s=None)
        if request.prompt == "arithmetic":
            return replace(request, warmup=True, end_s=1e-3)
        return request

    found = summary_of(synthetic.write(tmp_path, change=spoil)).points["ddtree"]
    assert set(found.prompts) == {"fibonacci", "json_parse"}
    assert (found.counted, found.failed, found.warmups) == (6, 6, 3)
    assert found.errors == {"http 429": (3, "busy"), "empty": (3, "an answer of no tokens")}
    assert found.speed is not None and found.speed.mean < 100


def test_failures_of_several_kinds_are_said_once_and_add_up(tmp_path: Path) -> None:
    def spoil(request: Request) -> Request:
        if request.prompt == "haiku":
            return synthetic.failed(request, "cut", None, "the connection was cut")
        return (
            synthetic.failed(request, "refused", None, "gone") if request.prompt == "quicksort" else request
        )

    lines = view.care(summary_of(synthetic.write(tmp_path, change=spoil)))
    said = [line for line in lines if line.startswith("ddtree") and "failed" in line]
    (line,) = said
    assert line.startswith("ddtree: 6 of 15 requests failed: ")
    assert "3 refused (gone)" in line and "3 cut (the connection was cut)" in line


def test_requests_of_a_disturbed_round_count_for_nothing(tmp_path: Path) -> None:
    recording = load(synthetic.write(tmp_path))
    (point,) = [one.id for one in recording.points if one.service == "ddtree"]
    end = recording.ends[point]
    with recording.path.open("ab") as file:
        file.write(encode(replace(end, outcome="failed", why="it was swapped", disturbed=[2])) + b"\n")
    again = summary_of(recording.path).points["ddtree"]
    assert (again.counted, again.rounds) == (10, 2)
    assert again.errors == {"disturbed": (5, DISTURBED)}
    assert glance(recording.path).failed == 5


def test_a_warm_up_takes_no_repeat_away_from_what_counts(tmp_path: Path) -> None:
    path = synthetic.write(tmp_path, SAME)
    recording = load(path)
    warm = replace(recording.requests[0], warmup=True)
    found = summarize([replace(recording, requests=[warm, *recording.requests])])
    assert sorted(found.points["autoregressive"].prompts["fibonacci"].values) == [0, 1, 2]


def test_nothing_measured_is_said_and_one_without_answers_is_kept(tmp_path: Path) -> None:
    found = summary_of(synthetic.write(tmp_path, change=synthetic.failed))
    assert found.points["ddtree"].speed is None and found.points["ddtree"].failed == 15
    with pytest.raises(FleetError) as caught:
        summary_of(synthetic.write(tmp_path, [], identity="none"))
    assert caught.value.exit == Exit.INPUT


def test_other_lengths_of_context_and_other_numbers_at_once_are_not_compared(tmp_path: Path) -> None:
    specs = [
        replace(spec, varied={"context_tokens": length}, context=length)
        for length in (512, 8192)
        for spec in (FOUR[0], FOUR[3])
    ]
    found = summary_of(synthetic.write(tmp_path, specs))
    assert [len(cell.names) for cell in found.cells] == [2, 2]
    assert all("512" in name for name in found.cells[0].names)
    crowd = [replace(spec, concurrency=size) for size in (1, 8) for spec in FOUR[2:]]
    both = summary_of(synthetic.write(tmp_path, crowd, identity="crowd"))
    assert [cell.names for cell in both.cells] == [["shadow @1", "ddtree @1"], ["shadow @8", "ddtree @8"]]


def test_where_answers_part_is_found_and_unsteady_ones_are_named(tmp_path: Path) -> None:
    def change(request: Request) -> Request:
        other = "ddtree" in request.point and request.prompt == "haiku"
        return (
            replace(request, text=request.text[:40] + "!" + request.text[41:])
            if other and request.repeat
            else request
        )

    found = summary_of(synthetic.write(tmp_path, change=change))
    assert found.cells[0].differences == []
    unsteady = found.points["ddtree"].prompts["haiku"].unsteady
    assert unsteady is not None and unsteady.at == 40 and unsteady.other_says.startswith("!")


def test_answers_are_not_compared_where_the_suite_does_not_want_it(tmp_path: Path) -> None:
    def change(request: Request) -> Request:
        return replace(request, text=f"{request.text} {request.point}")

    told = view.agreement(summary_of(synthetic.write(tmp_path / "a", change=change)))
    assert told.startswith("The answers differ on 5 of 5 prompts")
    quiet = synthetic.write(tmp_path / "b", change=change, suite={"compare_outputs": False})
    found = summary_of(quiet)
    assert found.cells[0].differences == []
    assert view.agreement(found) == "Answers were not compared: the suite does not want it."


def test_only_what_two_services_answered_counts_as_the_same_answer(tmp_path: Path) -> None:
    def told(name: str, gone: Callable[[Request], bool]) -> str:
        def change(request: Request) -> Request:
            return synthetic.failed(request) if gone(request) else request

        prompts = ("haiku", "quicksort", "arithmetic")
        path = synthetic.write(tmp_path, FOUR[2:], identity=name, prompts=prompts, change=change)
        return view.agreement(summary_of(path))

    same = "services gave the same answers, character for character, to"
    assert told("all", lambda one: False) == f"All {same} all 3 prompts."
    lost = told("lost", lambda one: "ddtree" in one.point and one.prompt == "haiku")
    assert lost == (
        f"The {same} all 2 prompts that two or more of them answered. "
        "Not compared: ddtree (no answer to haiku)."
    )
    nothing = "No answers were compared: no two services that were measured alike answered the same prompt."
    assert told("one", lambda one: "ddtree" in one.point) == nothing
    assert told("apart", lambda one: ("ddtree" in one.point) == (one.prompt == "haiku")) == nothing
    assert told("none", lambda one: True) == nothing


def test_answers_are_compared_where_the_base_has_none(tmp_path: Path) -> None:
    def change(request: Request) -> Request:
        if "autoregressive" in request.point and request.prompt == "haiku":
            return synthetic.failed(request)
        return replace(request, text="else") if "ddtree" in request.point else request

    found = summary_of(synthetic.write(tmp_path, change=change))
    haiku = [(one.one, one.other) for one in found.cells[0].differences if one.prompt == "haiku"]
    assert haiku == [("dflash", "ddtree")]
    assert view.agreement(found).startswith("The answers differ on 5 of 5 prompts")
    assert view.agreement(found).endswith("Not compared: autoregressive (no answer to haiku).")


def test_cells_of_other_lengths_and_prompts_have_headings_of_their_own(tmp_path: Path) -> None:
    def run(name: str, tokens: int, prompts: tuple[str, ...], about: str) -> Recording:
        specs = [replace(spec, digest=f"{name}-{spec.service}") for spec in FOUR[2:]]
        path = synthetic.write(
            tmp_path, specs, identity=name, tokens=tokens, prompts=prompts, suite={"description": about}
        )
        recording = load(path)
        return replace(recording, run=replace(recording.run, prompts_digest=f"{len(prompts)}" * 16))

    two = ("haiku", "arithmetic")
    short, long = run("short", 16, two, "Short ones."), run("long", 32, two, "Long ones.")
    found = summarize([long, short])
    titles = [view.cell_title(found, cell) for cell in found.cells]
    assert titles == ["ct200, 1 at once, at most 32 tokens", "ct200, 1 at once, at most 16 tokens"]
    assert dict(facts.run_facts(found))["Answers"] == "at most 32 or 16 tokens, interleaved"
    assert facts.description(found) == "Long ones. · Short ones."
    other = summarize([short, run("other", 16, ("quicksort", "fibonacci", "json_parse"), "Short ones.")])
    titles = [view.cell_title(other, cell) for cell in other.cells]
    assert titles == ["ct200, 1 at once, prompts 22222222", "ct200, 1 at once, prompts 33333333"]
    chart = charts(other)[0]
    assert chart.title.endswith(", prompts 22222222") and chart.lead.endswith("on 2 of 2 prompts.")
    assert view.cell_title(summarize([short]), summarize([short]).cells[0]) == "ct200, 1 at once"


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_a_difference_is_the_first_character_that_is_not_the_same(same: str, one: str, other: str) -> None:
    found = difference("p", "a", same + one, "b", same + other)
    if one == other:
        assert found is None
        return
    assert found is not None and found.at >= len(same)
    assert (same + one)[: found.at] == (same + other)[: found.at]
    assert (same + one)[found.at : found.at + 1] != (same + other)[found.at : found.at + 1]
