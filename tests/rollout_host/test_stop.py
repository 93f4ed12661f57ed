"""Slots that are emptied on real systemd: what leaves, what a crash or an abort brings back, what fills them again."""

from __future__ import annotations

import json
import threading

import pytest

from fleetctl.lab import gpus
from tests.rollout_host.scenarios import Runner, named_in, scenario
from tests.rollout_host.site import Json, Site, once, steps
from tests.rollout_host.test_scenarios import LASTING, LASTS_S, kill_at

EMPTYING = ["lock", "preflight", "record", "drain", "stop", "free", "commit"]


def assert_empty(site: Site, old: Json) -> None:
    """Nothing serves, nothing starts at boot, no unit was made for that, and the record knows what was there."""
    assert site.owner() is None
    found = site.show(old["unit"])
    assert (found["ActiveState"], found["UnitFileState"]) == ("inactive", "disabled")
    assert site.show(site.nothing()["unit"])["LoadState"] == "not-found"
    state = site.state()
    assert state is not None
    assert (state["service"], state["previous"]["service"]) == ("vacant", old["service"])
    assert state["previous"]["unit_text"] == old["unit_text"]


def assert_untouched(site: Site, old: Json) -> None:
    """The old service serves and starts at boot, as if nobody had come."""
    assert site.serves(old["service"])
    assert site.show(old["unit"])["UnitFileState"] == "enabled"
    state = site.state()
    assert state is not None
    assert state["service"] == old["service"]


def empty(site: Site, old: Json) -> None:
    """A slot that ``old`` has left."""
    _, result = site.roll(site.plan(site.nothing(), old))
    assert result["outcome"] == "done", result


def cut_short_in_its_commit(site: Site, plan: Json) -> None:
    """Carry the plan out, and have its record end where its commit began."""
    site.roll(plan)
    site.wait_ended()
    folder = site.host.state / "rollouts" / plan["id"]
    lines = (folder / "events.jsonl").read_text().splitlines()
    begun = next(number for number, line in enumerate(lines) if '"commit"' in line)
    (folder / "events.jsonl").write_text("\n".join(lines[: begun + 1]) + "\n")
    (folder / "result.json").unlink()


@scenario
def emptied_and_filled_again(site: Site) -> None:
    old = site.deploy("one")
    events, result = site.roll(site.plan(site.nothing(), old))
    assert (result["outcome"], result["left"]) == ("done", f"slot {site.slot} is empty"), result
    assert steps(events) == EMPTYING
    assert_empty(site, old)
    new = site.target("two")
    _, result = site.roll(site.plan(new))
    assert result["outcome"] == "done", result
    state = site.state()
    assert state is not None
    assert (state["service"], state["previous"]["service"]) == ("two", "vacant")
    assert "previous" not in state["previous"]


@scenario
def emptied_once_its_requests_are_answered(site: Site) -> None:
    gate = site.gate()
    old = site.deploy("one", held=gate.path)
    ask = f'curl -s -m 150 -d \'{{"prompt": "slow", "max_tokens": 4}}\' 127.0.0.1:{site.port}/v1/completions'
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(site.host.run(ask, check=False)))
    asking.start()
    busy = f"until curl -s 127.0.0.1:{site.port}/metrics | grep -q 'running.* 1'; do sleep 0.05; done"
    site.host.run(f'timeout 120 sh -c "{busy.replace("$", chr(92) + "$")}"')
    _, result = site.roll(site.plan(site.nothing(), old), once("drain", gate.open, "wait"))
    assert result["outcome"] == "done", result
    asking.join()
    assert '"completion_tokens": 4' in answers[0]
    assert_empty(site, old)


@scenario
def one_that_fails_to_start_leaves_an_emptied_slot_empty(site: Site) -> None:
    old = site.deploy("one")
    empty(site, old)
    before = site.state()
    _, result = site.roll(site.plan(site.target("bad", die=0.1)))
    assert (result["outcome"], result["exit"]) == ("rolled-back", 6), result
    assert "as empty as before" in result["left"]
    assert site.state() == before
    assert_empty(site, old)


@scenario
def emptying_aborted_while_it_stops(site: Site) -> None:
    gate = site.gate()
    old = site.deploy("one", more=LASTING, deaf=gate.path)
    plan = site.plan(site.nothing(), old, stop=LASTS_S)

    def ask() -> None:
        assert site.host.call("rollout.abort", {"id": plan["id"]})["asked"]
        gate.open()

    _, result = site.roll(plan, once("stop", ask))
    assert (result["outcome"], result["exit"]) == ("aborted", 6), result
    assert_untouched(site, old)


@scenario
def emptying_killed_while_it_stops(site: Site) -> None:
    gate = site.gate()
    old = site.deploy("one", more=LASTING, deaf=gate.path)
    _, result = site.roll(site.plan(site.nothing(), old, stop=LASTS_S), kill_at(site, "stop", gate))
    assert (result["outcome"], result["exit"]) == ("rolled-back", 6), result
    assert_untouched(site, old)


@scenario
def emptying_killed_while_it_commits_is_finished(site: Site) -> None:
    old = site.deploy("one")
    plan = site.plan(site.nothing(), old)
    cut_short_in_its_commit(site, plan)
    (site.host.state / "slots" / f"{site.slot}.json").unlink()
    site.host.run(f"systemctl enable -q {old['unit']}")
    site.host.call("rollout.settle", {"id": plan["id"]})
    _, result = site.follow(plan["id"])
    assert (result["outcome"], result["left"]) == ("done", f"slot {site.slot} is empty"), result
    assert_empty(site, old)


@scenario
def one_that_a_boot_brought_back_in_the_middle_of_the_commit_stays(site: Site) -> None:
    old = site.deploy("one")
    plan = site.plan(site.nothing(), old)
    before = site.state()
    cut_short_in_its_commit(site, plan)
    (site.host.state / "slots" / f"{site.slot}.json").write_text(json.dumps(before))
    site.host.run(f"systemctl enable -q --now {old['unit']}")
    site.host.call("rollout.settle", {"id": plan["id"]})
    _, result = site.follow(plan["id"])
    assert (result["outcome"], result["exit"]) == ("rolled-back", 6), result
    assert_untouched(site, old)


@scenario
def emptied_also_where_its_gpu_is_dead_or_keeps_its_memory(site: Site) -> None:
    site.gpus = [7]
    old = site.deploy("one")
    pid = int(site.show(old["unit"])["MainPID"])
    with site.host.gpus:
        gpus.occupy(site.host.name, 7, 40000, pid, "sglang::scheduler")
        _, result = site.roll(site.plan(site.nothing(), old, free=1))
        gpus.release(site.host.name, 7)
    assert result["outcome"] == "done", result
    assert "GPU 7 still has 40000 MiB in use" in result["reason"]
    assert "reset" in result["fix"]
    assert_empty(site, old)
    old = site.deploy("two")
    with site.host.gpus:
        gpus.lose(site.host.name, 7)
        found = site.host.call("preflight", {"plan": site.plan(site.nothing(), old)})["findings"]
        empty(site, old)
        state = gpus.read(site.host.name)
        state["gpus"][7]["error"] = ""
        gpus.write(site.host.name, state)
    assert found == []
    assert_empty(site, old)


@pytest.mark.lab
@pytest.mark.parametrize("name", named_in(__name__))
def test_scenario(name: str, runner: Runner) -> None:
    runner.wait(name)
