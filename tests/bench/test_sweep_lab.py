"""``sweep`` and ``tune`` on a lab host: stand-ins whose speed by budget is known, swapped, killed and interrupted."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from fleetctl.bench.records import Recording, load, recordings
from tests.bench.test_bench_lab import serving, wait_for_stream
from tests.e2e.conftest import TEMPLATE, Site, site  # noqa: F401

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
CURVE = {"4": 0.2, "8": 0.02, "32": 0.3}
"""Ten times apart: what else the machine does in a request changes no verdict."""
KNOBS = '{{ variables["KNOBS"] | word }}'
DRAFTING = TEMPLATE.replace(KNOBS, KNOBS + ' {{ command[3:] | map("word") | join(" ") }}')


@pytest.fixture
def fleet(site: Site) -> Site:  # noqa: F811
    """``good`` serves; ``tree`` is as quick as its budget has it."""
    (site.folder / "templates/systemd/drafting.service.j2").write_text(DRAFTING)
    suites = site.folder / "playbooks/bench"
    suites.mkdir(parents=True)
    (suites / "own.txt").write_text("".join(f"Say {number}{' again' * number}.\n" for number in range(4)))
    suite = "prompts: own.txt\nmax_tokens: 12\nrepeats: 2\nvary: {budget: [8, 4, 32]}\nservices: [tree]\n"
    (suites / "quick.yaml").write_text(suite)
    drafting(site, CURVE)
    site.service("good", address="0.0.0.0", itl=0.2)
    site.run("deploy", "ct200", "--service", "good")
    return site


def drafting(site: Site, curve: dict[str, float], **knobs: Any) -> None:  # noqa: F811
    site.service("tree", "drafting.service.j2", address="0.0.0.0", itl=0.01, curve=curve, **knobs)
    site.services["tree"] |= {"mode": "tree", "drafter": "m"}
    site.write()


def last(fleet: Site) -> Recording:
    return load(recordings(fleet.folder)[0])


def ends(recording: Recording) -> dict[object, str]:
    points = {point.id: point.varied["budget"] for point in recording.points}
    return {points[end.point]: end.outcome for end in recording.ends.values()}


def test_each_point_is_measured_once_and_the_slow_one_stopped(fleet: Site) -> None:
    drafting(fleet, CURVE, once=f"/run/once-{fleet.slot}")
    said = fleet.run("sweep", "ct200", "quick")
    assert said.count("tried once more") == 1
    first = last(fleet)
    assert first.end.outcome == "done" and not first.problems
    assert ends(first) == {8: "done", 4: "stopped", 32: "stopped"}
    slow = next(end for end in first.ends.values() if "budget=32" in end.point)
    assert "surely below 0.9" in slow.why and "budget=8" in slow.why and "after 1 of 2 rounds" in slow.why
    assert slow.why in said
    counted = [one for one in first.requests if one.counts]
    assert [sum(one.point == point.id for one in counted) for point in first.points] == [8, 4, 4]
    assert serving(fleet) == "good"

    said = fleet.run("sweep", "ct200", "quick")
    again = last(fleet)
    assert said.count(f"measured before, in run {first.run.id}") >= 3 and again.run.id != first.run.id
    assert [one.text for one in again.requests] == [one.text for one in first.requests]
    assert [point.digest for point in again.points] == [point.digest for point in first.points]
    assert all(end.why.startswith(f"measured before, in run {first.run.id}") for end in again.ends.values())
    assert "nothing is left" in fleet.run("sweep", "ct200", "quick", "--plan")
    plan = json.loads(fleet.run("sweep", "ct200", "quick", "--plan", "--json", "--again", expect=10))["plan"]
    assert len(plan["points"]) == 3 and plan["requests"] == 27
    drafting(fleet, {**CURVE, "32": 0.01}, once=f"/run/once-{fleet.slot}")
    plan = json.loads(fleet.run("sweep", "ct200", "quick", "--plan", "--json", expect=10))["plan"]
    assert plan["requests"] == 27, "another environment variable makes other services"


def test_after_a_kill_it_goes_on_and_brings_back_what_stood_there_first(fleet: Site) -> None:
    drafting(fleet, {**CURVE, "4": 0.5, "32": 0.1})
    process = fleet.start("sweep", "ct200", "quick", "--repeats", "1")
    fleet.until(process, f"ct200/{fleet.slot}/tree?budget=8@c1 round 1")
    wait_for_stream(fleet)
    process.kill()
    process.communicate(timeout=60)
    killed = last(fleet)
    assert killed.end.outcome == "interrupted" and ends(killed) == {8: "done"}
    assert serving(fleet) == "tree"

    said = fleet.run("sweep", "ct200", "quick", "--repeats", "1")
    whole = last(fleet)
    assert said.count(f"measured before, in run {killed.run.id}") >= 1
    assert whole.end.outcome == "done" and set(ends(whole)) == {4, 8, 32}
    assert serving(fleet) == "good" and not list((fleet.folder / ".fleetctl/standing").iterdir())


def test_interrupted_it_keeps_what_it_has_and_goes_on_with_the_same_point(fleet: Site) -> None:
    drafting(fleet, {**CURVE, "4": 0.5, "32": 0.1})
    process = fleet.start("sweep", "ct200", "quick", "--repeats", "1")
    fleet.until(process, f"ct200/{fleet.slot}/tree?budget=8@c1 round 1")
    wait_for_stream(fleet)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=280)
    assert process.returncode == 130 and "Traceback" not in err, out + err
    assert ends(last(fleet)) == {8: "done", 4: "interrupted"} and serving(fleet) == "good"
    plan = json.loads(fleet.run("sweep", "ct200", "quick", "--repeats", "1", "--plan", "--json", expect=10))
    assert [point["varied"]["budget"] for point in plan["plan"]["points"]] == [4, 32]


def test_tune_finds_the_budget_and_its_choice_holds_on_prompts_held_out(fleet: Site) -> None:
    prompts = "".join(f"Say {number}{' again' * number}.\n" for number in range(10))
    (fleet.folder / "playbooks/bench/own.txt").write_text(prompts)
    suite = fleet.folder / "playbooks/bench/quick.yaml"
    suite.write_text(suite.read_text().replace("[8, 4, 32]", "[8, 32]"))
    process = fleet.start("tune", "ct200", "--suite", "quick", "--looks", "2", "--json")
    out, err = process.communicate(timeout=800)
    assert process.returncode == 0, out + err
    found = json.loads(out.splitlines()[-1])["outcome"]
    assert found["advice"] == found["choice"] == f"ct200/{fleet.slot}/tree?budget=8@c1"
    assert found["incumbent"] == f"ct200/{fleet.slot}/good@c1"
    (check,) = found["checks"]
    assert check["verdict"] == "confirmed" and check["other"] == found["incumbent"]
    assert check["ratio"]["low"] > 1 and check["ratio"]["prompts"] == 3
    assert found["entry"]["tree"]["args"] == {"budget": 8}
    beaten = {one["name"].partition("?")[2] for one in found["beaten"]}
    assert "budget=32@c1" in beaten
    recording = last(fleet)
    held = {one.prompt for one in recording.requests if one.round == 3 and not one.warmup}
    assert held and not held & {one.prompt for one in recording.requests if one.round < 3 and not one.warmup}
    assert recording.end.outcome == "done" and serving(fleet) == "good"


def test_tune_refuses_a_workload_of_too_few_prompts(fleet: Site) -> None:
    said = fleet.run("tune", "ct200", "--suite", "quick", expect=2)
    assert "each needs 3" in said and "--workload" in said
    assert not recordings(fleet.folder)
