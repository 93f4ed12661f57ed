"""Rollouts on real systemd: what works, and every failure with the old service back and proven."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from fleetctl.lab import gpus
from tests.rollout_host.host import AgentSaid
from tests.rollout_host.scenarios import Runner, named_in, scenario
from tests.rollout_host.site import DEADLINES, Gate, Json, Site, once, steps
from tests.transport.sshd import wait_for

EARLY = ("process", "unit", "port")
LASTS_S = 300
LASTING = f"TimeoutStopSec={LASTS_S}\n"
LADDER = ["process", "unit", "port", "health", "models", "generate"]


def assert_back(site: Site, old: Json, result: Json, *failed_step: str) -> None:
    """The old service is back, proven, enabled; the new one left nothing."""
    assert result["outcome"] == "rolled-back", result
    assert result["exit"] == 6
    assert result["failed_step"] in failed_step, result
    assert site.show(old["unit"])["ActiveState"] == "active"
    assert site.show(old["unit"])["UnitFileState"] == "enabled"
    assert site.unit_text(old["unit"]) == old["unit_text"]
    assert site.serves(old["service"])
    state = site.state()
    assert state is not None
    assert state["service"] == old["service"]


def fails(
    site: Site,
    failed_step: str | tuple[str, ...],
    more: str = "",
    signatures: list[Json] | None = None,
    limits: dict[str, float] | None = None,
    **knobs: object,
) -> Json:
    """Swap a good service for one that fails in the step, ``limits`` its deadlines; the result."""
    old = {**site.deploy("good"), "deadlines": DEADLINES}
    site.signatures = signatures or []
    new = site.target("bad", more, **knobs)
    events, result = site.roll(site.plan(new, old, **(limits or {})))
    assert_back(site, old, result, *([failed_step] if isinstance(failed_step, str) else failed_step))
    assert site.unit_text(new["unit"]) is None
    assert site.show(new["unit"])["ActiveState"] == "inactive"
    assert steps(events)[-1] == "restore-generate"
    return result


@scenario
def first_deploy(site: Site) -> None:
    new = site.target("one")
    plan = site.plan(new)
    events, result = site.roll(plan)
    assert result["outcome"] == "done", result
    assert steps(events) == ["lock", "preflight", "record", "free", "install", "start", *LADDER, "commit"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert site.serves("one")
    state = site.state()
    assert state is not None
    assert state["previous"] is None
    assert site.show(new["unit"])["UnitFileState"] == "enabled"
    assert site.follow(plan["id"]) == (events, result)


@scenario
def first_deploy_fails_and_leaves_the_slot_empty(site: Site) -> None:
    new = site.target("one", die=0.1)
    _, result = site.roll(site.plan(new))
    assert (result["outcome"], result["exit"]) == ("rolled-back", 6)
    assert "empty" in result["left"]
    assert site.unit_text(new["unit"]) is None
    assert site.state() is None


@scenario
def swap_waits_for_requests_in_flight(site: Site) -> None:
    gate = site.gate()
    old = site.deploy("one", held=gate.path)
    ask = f'curl -s -m 150 -d \'{{"prompt": "slow", "max_tokens": 4}}\' 127.0.0.1:{site.port}/v1/completions'
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(site.host.run(ask, check=False)))
    asking.start()
    while 'x:running{model="m"} 1' not in site.host.run(f"curl -s 127.0.0.1:{site.port}/metrics"):
        time.sleep(0.05)
    new = site.target("two")
    _events, result = site.roll(site.plan(new, old), once("drain", gate.open, "wait"))
    asking.join()
    assert result["outcome"] == "done", result
    assert '"completion_tokens": 4' in answers[0]
    assert site.serves("two")
    assert site.show(old["unit"])["UnitFileState"] == "disabled"
    assert site.show(old["unit"])["ActiveState"] == "inactive"
    state = site.state()
    assert state is not None
    assert (state["service"], state["previous"]["service"]) == ("two", "one")
    assert state["previous"]["unit_text"] == old["unit_text"]
    assert "previous" not in state["previous"]


@scenario
def dies_at_start(site: Site) -> None:
    known = {
        "id": "pkg-soundfile",
        "pattern": "No module named .soundfile",
        "verdict": "fatal",
        "reason": "soundfile is missing",
    }
    said = ["ModuleNotFoundError: No module named 'soundfile'"]
    result = fails(site, EARLY, signatures=[{**known, "fix": "install soundfile"}], die=0.5, says=said)
    assert result["signature"]["id"] == "pkg-soundfile"
    assert result["fix"] == "install soundfile"
    assert any("No module named 'soundfile'" in line for line in result["evidence"])


@scenario
def dies_without_a_word(site: Site) -> None:
    result = fails(site, EARLY, die=0.5, status=3)
    assert "exited with status 3" in result["reason"]
    assert any("dead at" in line for line in result["evidence"])


@scenario
def restarts_in_a_loop(site: Site) -> None:
    result = fails(site, EARLY, more="Restart=always\nRestartSec=50ms\n", die=0.3)
    assert "exited" in result["reason"] or "restarted" in result["reason"]


@scenario
def answers_models_and_never_generates(site: Site) -> None:
    result = fails(site, "generate", limits={"generate": 2}, hang=True)
    assert "not within 2 s" in result["reason"]


@scenario
def stops_after_three_tokens(site: Site) -> None:
    result = fails(site, "generate", tokens=3)
    assert "3 of 8 tokens" in result["reason"]
    assert any("completion_tokens" in line for line in result["evidence"])


@scenario
def never_becomes_ready(site: Site) -> None:
    result = fails(site, "health", limits={"ready": 10}, never=True)
    assert "not within 10 s" in result["reason"]
    assert "503" in result["reason"]
    assert any("loading" in line for line in result["evidence"])


@scenario
def never_listens(site: Site) -> None:
    fails(site, "port", limits={"ready": 10}, unbound=True)


@scenario
def serves_another_model(site: Site) -> None:
    result = fails(site, "models", model="stranger")
    assert "stranger" in result["reason"]


@scenario
def a_fatal_line_ends_the_wait(site: Site) -> None:
    known = {
        "id": "svc-port-taken",
        "pattern": "address already in use",
        "verdict": "fatal",
        "reason": "the port is taken",
        "fix": "",
    }
    said = ["[Errno 98] address already in use"]
    result = fails(site, (*EARLY, "health"), signatures=[known], never=True, says=said)
    assert result["signature"]["id"] == "svc-port-taken"
    assert "logged a fatal line" in result["reason"], "it, and not the deadline, ends the wait"


@scenario
def the_old_one_ignores_sigterm(site: Site) -> None:
    old = site.deploy("one", more=LASTING, deaf=True)
    _, result = site.roll(site.plan(site.target("two"), old, drain=1, stop=2))
    assert result["outcome"] == "done", result
    assert 1.9 <= result["seconds"]["stop"] < LASTS_S / 2, "the plan's deadline, not the unit's"
    assert site.serves("two")


@scenario
def the_old_one_leaves_a_child(site: Site) -> None:
    old = site.deploy("one", more="KillMode=process\n", child=True)
    _, result = site.roll(site.plan(site.target("two"), old, drain=1, stop=1))
    assert result["outcome"] == "done", result
    assert site.host.run(f"pgrep -fc '[s]tandin.py.*{site.port}.*one'", check=False).strip() == "0"


@scenario
def a_stranger_has_the_port(site: Site) -> None:
    server = ["python3", "-m", "http.server", str(site.port), "--bind", "127.0.0.1"]
    stranger = subprocess.Popen(
        [*site.host.ssh, *server], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while site.owner() is None:
            time.sleep(0.1)
        new = site.target("one")
        events, result = site.roll(site.plan(new))
        assert (result["outcome"], result["exit"]) == ("refused", 5)
        assert [found["id"] for found in result["findings"]] == ["port-held"]
        assert "http.server" in result["reason"]
        assert "install" not in steps(events)
        assert site.unit_text(new["unit"]) is None
    finally:
        owner = site.owner()
        if owner is not None:
            site.host.run(f"kill {owner['pid']}")
        stranger.wait(60)


@scenario
def someone_elses_unit_is_adopted_and_comes_back(site: Site) -> None:
    theirs = site.target("theirs")
    site.host.install(theirs["unit"], theirs["unit_text"], enable=True)
    while not site.serves("theirs"):
        time.sleep(0.1)
    new = site.target("ours", tokens=3)
    found = site.host.call("preflight", {"plan": site.plan(new)})["findings"]
    assert [one["id"] for one in found] == ["port-held"]
    assert theirs["unit"] in found[0]["fix"]
    adopted = {**theirs, "adopted": True}
    _, result = site.roll(site.plan(new, adopted))
    assert result["outcome"] == "rolled-back", result
    assert site.serves("theirs")
    assert site.unit_text(theirs["unit"]) == theirs["unit_text"]
    _, result = site.roll(site.plan(site.target("ours"), adopted))
    assert result["outcome"] == "done", result
    state = site.state()
    assert state is not None
    assert state["previous"]["adopted"] is True
    assert state["previous"]["unit_text"] == theirs["unit_text"]


@scenario
def a_unit_that_could_not_be_started_again_is_not_stopped(site: Site) -> None:
    theirs = site.target("theirs")
    knobs = json.dumps({"port": site.port, "model": "theirs"})
    command = f"/usr/bin/python3 -I -S /var/lib/fleetctl/standin.py '{knobs}'"
    site.host.run(f"systemd-run -q --unit={theirs['unit']} {command}")
    while not site.serves("theirs"):
        time.sleep(0.1)
    _, result = site.roll(site.plan(site.target("ours"), {**theirs, "adopted": True}))
    assert (result["outcome"], result["exit"]) == ("refused", 5), result
    assert [one["id"] for one in result["findings"] if one["severity"] == "error"] == ["unit-transient"]
    assert site.serves("theirs")
    site.host.run(f"systemctl stop {theirs['unit']}")


@scenario
def an_old_one_that_loads_longer_has_its_own_deadline(site: Site) -> None:
    old = site.deploy("one", load=3)
    _, result = site.roll(site.plan(site.target("two", die=0.1), {**old, "deadlines": DEADLINES}, ready=2))
    assert_back(site, old, result, *EARLY)


@scenario
def an_unchanged_unit_file_is_not_written_again(site: Site) -> None:
    old = site.deploy("one")
    path = site.host.root / "etc/systemd/system" / old["unit"]
    (site.host.state / old["unit"]).write_text(old["unit_text"])
    path.unlink()
    path.symlink_to(f"/var/lib/fleetctl/{old['unit']}")
    site.host.run("systemctl daemon-reload")
    _, result = site.roll(site.plan(old, old))
    assert result["outcome"] == "done", result
    assert path.is_symlink()


@scenario
def a_slot_that_was_taken_over_by_hand(site: Site) -> None:
    mine = site.deploy("mine")
    theirs = site.target("theirs")
    site.host.run(f"systemctl stop {mine['unit']}")
    site.host.install(theirs["unit"], theirs["unit_text"])
    while not site.serves("theirs"):
        time.sleep(0.1)
    adopted = {**theirs, "adopted": True}
    _, result = site.roll(site.plan(site.target("bad", tokens=3), adopted))
    assert result["outcome"] == "rolled-back", result
    assert site.serves("theirs")
    assert site.show(mine["unit"])["UnitFileState"] == "enabled"
    _, result = site.roll(site.plan(site.target("new"), adopted))
    assert result["outcome"] == "done", result
    assert site.show(mine["unit"])["UnitFileState"] == "disabled"
    state = site.state()
    assert state is not None
    assert state["previous"]["unit"] == theirs["unit"]


@scenario
def two_at_once(site: Site) -> None:
    gate = site.gate()
    first = site.plan(site.target("one", until=gate.path))
    site.host.call("rollout.start", {"plan": first})
    with pytest.raises(AgentSaid) as said:
        site.host.call("rollout.start", {"plan": site.plan(site.target("two"))})
    assert said.value.error["exit"] == 4
    wait_for(lambda: site.locked_by().get("rollout"), 60)
    with pytest.raises(AgentSaid) as said:
        site.host.call("rollout.start", {"plan": site.plan(site.target("two"))})
    assert first["id"] in said.value.error["what"]
    assert "tester" in said.value.error["what"]
    gate.open()
    _, result = site.follow(first["id"])
    assert result["outcome"] == "done"


def kill_at(site: Site, step: str, gate: Gate | None = None) -> Callable[[Json], None]:
    """Kill the rollout's process -9 when the step first begins, then open the gate that holds it there."""

    def kill() -> None:
        site.host.run(f"systemctl kill -s KILL --kill-who=main fleetctl-rollout-{site.slot}.service")
        if gate:
            gate.open()

    return once(step, kill)


@scenario
def killed_while_the_new_one_loads(site: Site) -> None:
    old = site.deploy("good")
    plan = site.plan(site.target("new", never=True), old)
    events, result = site.roll(plan, kill_at(site, "health"))
    assert_back(site, old, result, "health")
    assert "recover" in steps(events)
    assert "KILL" in result["reason"]
    assert site.unit_text(f"{site.slot}-new.service") is None


@scenario
def killed_while_stopping(site: Site) -> None:
    gate = site.gate()
    old = site.deploy("good", more=LASTING, deaf=gate.path)
    plan = site.plan(site.target("new"), old, stop=LASTS_S)
    events, result = site.roll(plan, kill_at(site, "stop", gate))
    assert_back(site, old, result, "stop")
    assert "restore-stop" not in steps(events, "begin")


@scenario
def killed_while_restoring(site: Site) -> None:
    gate = site.gate()
    gate.open()
    old = site.deploy("good", until=gate.path)
    new = site.target("bad", never=True)
    kill = kill_at(site, "restore-health", gate)

    def fail() -> None:
        gate.shut()
        site.host.run(f"systemctl kill -s KILL {new['unit']}")

    end = once("health", fail)
    _, result = site.roll(site.plan(new, old), lambda event: (end(event), kill(event)))
    assert_back(site, old, result, "health")
    assert "ended in step restore-health" in result["reason"]


@scenario
def killed_while_committing(site: Site) -> None:
    old = site.deploy("one")
    new = site.target("two")
    plan = site.plan(new, old)
    _, result = site.roll(plan)
    assert result["outcome"] == "done"
    site.wait_ended()
    folder = site.host.state / "rollouts" / plan["id"]
    lines = (folder / "events.jsonl").read_text().splitlines()
    last = next(number for number, line in enumerate(lines) if '"commit"' in line)
    (folder / "events.jsonl").write_text("\n".join(lines[: last + 1]) + "\n")
    (folder / "result.json").unlink()
    (site.host.state / "slots" / f"{site.slot}.json").unlink()
    site.host.run(f"systemctl disable -q {new['unit']}; systemctl enable -q {old['unit']}")
    site.host.run(f"python3 -I -S {site.host.program} recover /var/lib/fleetctl/rollouts/{plan['id']}")
    _events, result = site.follow(plan["id"])
    assert result["outcome"] == "done", result
    state = site.state()
    assert state is not None
    assert state["service"] == "two"
    enabled = site.host.run(f"systemctl is-enabled {new['unit']} {old['unit']}", check=False)
    assert enabled.split() == ["enabled", "disabled"]


@scenario
def a_crashed_one_is_settled_by_the_next(site: Site) -> None:
    gate = site.gate()
    gate.open()
    old = site.deploy("one", until=gate.path)
    plan = site.plan(site.target("two", never=True), old)
    unit = f"fleetctl-rollout-{site.slot}.service"
    recovers = f"until systemctl show -P SubState {unit} | grep -q stop-post; do sleep 0.05; done"

    def crash() -> None:
        gate.shut()
        site.host.run(
            f"systemctl kill -s KILL --kill-who=main {unit}; {recovers}; systemctl kill -s KILL {unit}"
        )

    with pytest.raises(AgentSaid) as said:
        site.roll(plan, once("health", crash))
    assert said.value.error["exit"] == 7
    gate.open()
    new = site.target("three")
    found = site.host.call("preflight", {"plan": site.plan(new, old)})["findings"]
    assert [one["what"] for one in found if one["id"] == "unfinished" and plan["id"] in one["what"]]
    following = site.plan(new, old)
    started = site.host.call("rollout.start", {"plan": following})
    twice = 2 * (DEADLINES["stop"] + DEADLINES["ready"] + DEADLINES["generate"])
    assert started["settles"] == {plan["id"]: twice + DEADLINES["free"] + 60}
    events, result = site.follow(following["id"])
    assert result["outcome"] == "done", result
    waits = [event for event in events if event["step"] == "settle" and event["state"] == "wait"]
    assert any(f"{plan['id']}, restore-start" in event["text"] for event in waits)
    assert all(0 < event["left_s"] <= started["settles"][plan["id"]] for event in waits)
    _, settled = site.follow(plan["id"])
    assert settled["outcome"] == "rolled-back"
    assert site.serves("three")


@scenario
def aborted_in_the_middle(site: Site) -> None:
    old = site.deploy("good")
    plan = site.plan(site.target("new", never=True), old, ready=LASTS_S)

    def ask() -> None:
        assert site.host.call("rollout.abort", {"id": plan["id"]})["asked"]

    _, result = site.roll(plan, once("health", ask))
    assert (result["outcome"], result["exit"], result["failed_step"]) == ("aborted", 6, "health"), result
    assert result["seconds"]["health"] < LASTS_S / 2
    assert site.serves("good")
    assert site.unit_text(f"{site.slot}-new.service") is None
    assert site.host.call("rollout.abort", {"id": plan["id"]})["asked"] is False


@scenario
def its_unit_is_stopped_in_the_middle(site: Site) -> None:
    old = site.deploy("good")
    stop = f"systemctl stop --no-block fleetctl-rollout-{site.slot}.service"
    plan = site.plan(site.target("new", never=True), old, ready=LASTS_S)
    _, result = site.roll(plan, once("health", lambda: site.host.run(stop)))
    assert (result["outcome"], result["exit"]) == ("aborted", 6), result
    assert site.serves("good")


@scenario
def the_same_unit_with_a_text_that_fails(site: Site) -> None:
    old = site.deploy("one")
    new = site.target("one", unit=old["unit"], tokens=3)
    _, result = site.roll(site.plan(new, old))
    assert_back(site, old, result, "generate")
    good = site.target("one", more="Nice=1\n", unit=old["unit"])
    _, result = site.roll(site.plan(good, old))
    assert result["outcome"] == "done", result
    assert site.unit_text(old["unit"]) == good["unit_text"]
    state = site.state()
    assert state is not None
    assert state["previous"]["unit_text"] == old["unit_text"]


@scenario
def the_same_service_again_keeps_what_was_before_it(site: Site) -> None:
    first = site.deploy("one")
    second = site.target("two")
    site.roll(site.plan(second, first))
    site.host.run(f"systemctl disable -q --now {second['unit']}")
    _, result = site.roll(site.plan(second, second))
    assert result["outcome"] == "done", result
    state = site.state()
    assert state is not None
    assert (state["service"], state["previous"]["service"]) == ("two", "one")
    assert state["previous"]["unit_text"] == first["unit_text"]


@scenario
def enabled_only_where_it_proves_itself(site: Site) -> None:
    new = site.deploy("one")
    site.host.run(f"systemctl disable -q {new['unit']}")
    strange = {**new, "model_id": "another"}
    _, result = site.roll({**site.plan(strange, new), "restart": False})
    assert (result["outcome"], result["exit"]) == ("refused", 5), result
    assert "models" in result["reason"]
    assert site.show(new["unit"])["UnitFileState"] == "disabled"
    events, result = site.roll({**site.plan(new, new), "restart": False})
    assert result["outcome"] == "done", result
    assert steps(events) == ["lock", "preflight", "record", "commit"]
    assert site.show(new["unit"])["UnitFileState"] == "enabled"


@scenario
def gpu_memory_is_not_freed(site: Site) -> None:
    site.gpus = [3]
    old = site.deploy("good")
    pid = int(site.show(old["unit"])["MainPID"])
    with site.host.gpus:
        gpus.occupy(site.host.name, 3, 40000, pid, "sglang::scheduler")
        _events, result = site.roll(site.plan(site.target("new"), old, free=1.5))
        gpus.release(site.host.name, 3)
    assert_back(site, old, result, "free")
    assert "GPU 3 still has 40000 MiB in use" in result["reason"]
    assert result["seconds"]["free"] < DEADLINES["free"]


@scenario
def a_gpu_is_dead_or_taken(site: Site) -> None:
    site.gpus = [4, 5, 6, 99]
    with site.host.gpus:
        gpus.lose(site.host.name, 4)
        gpus.occupy(site.host.name, 5, 30000, 1, "python3")
        gpus.occupy(site.host.name, 6, 30000)
        found = site.host.call("preflight", {"plan": site.plan(site.target("one"))})["findings"]
        for gpu in (5, 6):
            gpus.release(site.host.name, gpu)
        state = gpus.read(site.host.name)
        state["gpus"][4]["error"] = ""
        gpus.write(site.host.name, state)
    assert [one["id"] for one in found] == ["gpu-dead", "gpu-in-use", "gpu-memory-held", "gpu-missing"]


@scenario
def a_unit_with_an_unknown_key(site: Site) -> None:
    new = site.target("one", more="MemoryMaxx=1G\n")
    _events, result = site.roll(site.plan(new))
    assert (result["outcome"], result["exit"]) == ("refused", 5)
    assert "MemoryMaxx" in result["reason"]
    assert site.unit_text(new["unit"]) is None


@scenario
def an_incomplete_environment_and_a_missing_model(site: Site) -> None:
    new = site.target("one")
    new["environment"] = "/var/lib/fleetctl/envs/none-123"
    new["model_paths"] = ["/dev/shm/none"]
    answer = site.host.call("preflight", {"plan": site.plan(new)})
    ids = [one["id"] for one in answer["findings"]]
    assert ids == ["environment-missing", "model-missing"]
    assert "+[Unit]" in answer["diff"]


@scenario
def a_plan_made_before_another_rollout(site: Site) -> None:
    old = site.deploy("one")
    _, result = site.roll(site.plan(site.target("two")))
    assert result["exit"] == 5
    assert "plan-stale" in [one["id"] for one in result["findings"]]
    assert site.serves("one")
    assert site.show(old["unit"])["ActiveState"] == "active"


@scenario
def an_old_one_that_did_not_run_stays_so(site: Site) -> None:
    old = site.deploy("one")
    site.host.run(f"systemctl stop {old['unit']}")
    _, result = site.roll(site.plan(site.target("two", die=0.1), old))
    assert (result["outcome"], result["exit"]) == ("rolled-back", 6)
    assert "was not running before" in result["left"]
    assert site.show(old["unit"])["ActiveState"] == "inactive"


@scenario
def the_old_one_cannot_come_back(site: Site) -> None:
    flag = f"/var/lib/fleetctl/flag-{site.slot}"
    site.host.run(f"touch {flag}")
    old = site.deploy("one", more=f"ExecStartPre=/usr/bin/test -e {flag}\n")

    gate = site.gate()

    def spoil() -> None:
        site.host.run(f"rm {flag}")
        gate.open()

    new = site.target("two", until=gate.path, tokens=3)
    _, result = site.roll(site.plan(new, old), once("health", spoil))
    assert (result["outcome"], result["exit"]) == ("not-restored", 7), result
    assert "a person is needed" in result["fix"]
    assert old["unit"] in result["fix"]
    assert any("restore" not in line for line in result["evidence"])


@pytest.mark.lab
@pytest.mark.parametrize("name", named_in(__name__))
def test_scenario(name: str, runner: Runner) -> None:
    runner.wait(name)
