"""Where nodes wait for each other, seen from one of them on real systemd: told, not told, told otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rollout_host.host import AgentSaid
from tests.rollout_host.scenarios import Runner, named_in, scenario
from tests.rollout_host.site import Json, Site, once, steps
from tests.rollout_host.test_scenarios import assert_back, kill_at

LONG_S = 120.0
SHORT_S = 1.5


def gated(site: Site, old: Json | None, limits: dict[str, float], **knobs: object) -> Json:
    """A plan that brings ``new`` and waits at these gates."""
    return {**site.plan(site.target("new", **knobs), old), "gates": limits}


def at(gate: str, act: Callable[[], object]) -> Callable[[Json], None]:
    """Do something once the rollout waits at the gate."""

    return once(f"hold-{gate}", act)


def go(site: Site, plan: Json, gate: str) -> Json:
    """The controller's word."""
    return dict(site.host.call("rollout.go", {"id": plan["id"], "gate": gate}))


@scenario
def told_at_every_gate(site: Site) -> None:
    old = site.deploy("good")
    limits = {"begin": LONG_S, "stop": LONG_S, "commit": LONG_S, "sure": LONG_S}
    plan = gated(site, old, limits)
    answers: list[Json] = []

    def tell(event: Json) -> None:
        gates = [gate for gate in limits if (event["step"], event["state"]) == (f"hold-{gate}", "begin")]
        for gate in gates:
            serves = "new" if gate in ("commit", "sure") else "good"
            assert site.serves(serves), gate
            answers.append(go(site, plan, gate))

    events, result = site.roll(plan, tell)
    assert result["outcome"] == "done", result
    assert answers == [{"open": True, "why": ""}] * len(limits)
    assert [step for step in steps(events) if step.startswith("hold-")] == [f"hold-{gate}" for gate in limits]
    assert go(site, plan, "sure") == {"open": False, "why": "it has ended already"}
    assert site.serves("new")


@scenario
def no_word_before_anything_has_changed(site: Site) -> None:
    old = site.deploy("good")
    _, result = site.roll(gated(site, old, {"begin": SHORT_S}))
    assert (result["outcome"], result["failed_step"]) == ("refused", "hold-begin"), result
    assert site.serves("good")


@scenario
def no_word_that_all_are_proven(site: Site) -> None:
    old = site.deploy("good")
    _, result = site.roll(gated(site, old, {"commit": SHORT_S, "sure": LONG_S}))
    assert_back(site, old, result, "hold-commit")
    assert "no word of the other nodes within 1.5 s" in result["reason"]
    assert "controller or another node was lost" in result["fix"]


@scenario
def no_word_that_all_were_told(site: Site) -> None:
    old = site.deploy("good")
    plan = gated(site, old, {"commit": LONG_S, "sure": SHORT_S})
    events, result = site.roll(plan, at("commit", lambda: go(site, plan, "commit")))
    assert result["outcome"] == "done", result
    said = next(event["text"] for event in events if (event["step"], event["state"]) == ("hold-sure", "ok"))
    assert said == "no word for 1.5 s since all nodes were proven: going on"
    assert site.serves("new")
    assert site.show(f"{site.slot}-new.service")["UnitFileState"] == "enabled"


@scenario
def told_otherwise_at_the_last_gate(site: Site) -> None:
    old = site.deploy("good")
    plan = gated(site, old, {"sure": LONG_S})
    _, result = site.roll(plan, at("sure", lambda: site.host.call("rollout.abort", {"id": plan["id"]})))
    assert result["outcome"] == "aborted", result
    assert site.serves("good")
    assert site.unit_text(f"{site.slot}-new.service") is None


@scenario
def killed_at_the_last_gate(site: Site) -> None:
    old = site.deploy("good")
    _, result = site.roll(gated(site, old, {"sure": LONG_S}), kill_at(site, "hold-sure"))
    assert_back(site, old, result, "hold-sure")


@scenario
def the_new_one_dies_while_the_others_are_waited_for(site: Site) -> None:
    old = site.deploy("good")
    plan = gated(site, old, {"commit": LONG_S})
    kill = f"systemctl kill -s KILL {site.slot}-new.service"
    _, result = site.roll(plan, at("commit", lambda: site.host.run(kill)))
    assert_back(site, old, result, "hold-commit")
    assert "while the other nodes were waited for" in result["reason"]


@scenario
def one_too_busy_to_count_its_requests_is_waited_for(site: Site) -> None:
    old = site.deploy("good")
    plan = gated(site, old, {"begin": LONG_S})
    signal = f"systemctl kill {old['unit']} -s"

    def stall() -> None:
        site.host.run(f"{signal} STOP")
        go(site, plan, "begin")

    stalls = at("begin", stall)
    goes_on = once("drain", lambda: site.host.run(f"{signal} CONT"), "wait")
    events, result = site.roll(plan, lambda event: (stalls(event), goes_on(event)))
    assert result["outcome"] == "done", result
    said = [event["text"] for event in events if (event["step"], event["state"]) == ("drain", "wait")]
    assert said[0] == "no answer from /metrics"


@scenario
def a_gate_or_a_rollout_that_is_not_known(site: Site) -> None:
    with pytest.raises(AgentSaid, match="no gate 'door'"):
        site.host.call("rollout.go", {"id": "x", "gate": "door"})
    with pytest.raises(AgentSaid, match="there is no rollout none-1"):
        site.host.call("rollout.go", {"id": "none-1", "gate": "commit"})


@pytest.mark.lab
@pytest.mark.parametrize("name", named_in(__name__))
def test_scenario(name: str, runner: Runner) -> None:
    runner.wait(name)
