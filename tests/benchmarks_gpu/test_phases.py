"""The GPU measurements, run against a server that stands in for sglang: what they ask, conclude and keep."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.gpu import leftovers, lossless, plumbing, profile, server, speed
from benchmarks.gpu.__main__ import chosen
from benchmarks.gpu.arms import ddtree, dflash
from benchmarks.gpu.results import Results
from benchmarks.gpu.server import Arm
from benchmarks.gpu.texts import prompts
from tests.transport.sshd import free_port

STANDIN = Path(__file__).parent / "standin"
MODEL, DRAFTER = Path("/model"), Path("/drafter")


@pytest.fixture(autouse=True)
def standin(monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m sglang.launch_server`` is the stand-in, at ports that are free."""
    monkeypatch.setenv("PYTHONPATH", str(STANDIN))
    made = server.Server.__init__

    def at_a_free_port(self: server.Server, arm: Arm, model: Path, port: int, *rest: object) -> None:
        made(self, arm, model, free_port(), *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(server.Server, "__init__", at_a_free_port)


def test_equal_texts_are_equal_and_a_difference_is_judged_by_its_gap(tmp_path: Path) -> None:
    unsafe = Arm("unsafe", ddtree(DRAFTER, hybrid="unsafe"))
    found = lossless.measure(
        MODEL, DRAFTER, tmp_path, dtype="bfloat16", budgets=(15,), count=3, tokens=12, extra=[unsafe]
    )["arms"]
    assert {name: entry["equal"] for name, entry in found.items() if "unsafe" not in name} == {
        f"{arm}-batch-{count}": 3
        for arm in ("autoregressive", "linear", "shadow", "tree-15")
        for count in (1, 8)
    }
    wrong = found["unsafe-batch-1"]
    assert (wrong["equal"], wrong["tau"]) == (0, 4.0)
    assert wrong["differences"][0]["at"] == 5
    assert wrong["worst_gap"] == pytest.approx(0.25)


def test_speed_keeps_what_it_has_and_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    arms = [Arm("linear", dflash(DRAFTER)), Arm("tree-15", ddtree(DRAFTER, budget=15))]
    first = speed.measure(MODEL, DRAFTER, tmp_path, arms[:1], tokens=8, minutes=10)
    kept = first["arms"]["linear"]
    again = speed.measure(MODEL, DRAFTER, tmp_path, arms, tokens=8, minutes=10)["arms"]
    assert again["linear"] == kept
    figures = again["tree-15"]
    assert figures["five"]["accepted_length"] == 4.0
    assert figures["phases"]["device"] == {"build": 0.5, "verify": 4.5}
    assert figures["phases"]["device_build_and_commit_share"] == pytest.approx(0.1)
    assert figures["phases"]["accepted"] == {"1": 3.0}


def test_an_arm_that_does_not_start_is_said_and_the_others_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = [Arm("good", dflash(DRAFTER)), Arm("bad", ("--broken",)), Arm("tree", ddtree(DRAFTER))]
    found = plumbing.measure(MODEL, tmp_path, arms, phase="plumbing", tokens=8)["arms"]
    assert (
        "bad: NOT READY: it ended with status 1: RuntimeError: broken on purpose" in capsys.readouterr().out
    )
    assert found["tree"]["as_the_first_arm"] == 4
    assert (found["good"]["sampled"], found["tree"]["sampled"]) == (
        "answered",
        "refused: set temperature to 0",
    )
    assert "bad (not ready)" in found


def test_a_profile_is_summed(tmp_path: Path) -> None:
    found = profile.measure(MODEL, tmp_path, [Arm("linear", dflash(DRAFTER))])["arms"]
    assert found["linear"]["totals_ms_a_step"] == {"kernel": 0.002}


def test_a_run_that_is_cut_off_keeps_its_rounds_and_measures_the_arm_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = [Arm("linear", dflash(DRAFTER)), Arm("tree-15", ddtree(DRAFTER, budget=15))]

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(speed._Measuring, "finish", cut_off)
        speed.measure(MODEL, DRAFTER, tmp_path, arms, tokens=8, minutes=10)
    kept = json.loads((tmp_path / "speed.json").read_text())["arms"]
    for name in ("linear", "tree-15"):
        assert kept[name]["unfinished"] and len(kept[name]["runs"]) >= 15
        assert kept[name]["five"]["tokens_per_second"] > 0
        assert not Results(tmp_path, "speed").has(name)
    again = speed.measure(MODEL, DRAFTER, tmp_path, arms, tokens=8, minutes=10)["arms"]
    assert "unfinished" not in again["linear"]
    assert not list((tmp_path / "servers").iterdir()), "no server is left"


def test_a_server_that_dies_loses_its_arm_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms = [Arm("linear", dflash(DRAFTER)), Arm("dead", ("--dies",)), Arm("tree", ddtree(DRAFTER))]
    found = speed.measure(MODEL, DRAFTER, tmp_path, arms, tokens=8, minutes=10)["arms"]
    assert "dead: LOST: " in capsys.readouterr().out
    assert not Results(tmp_path, "speed").has("dead")
    assert all("unfinished" not in found[name] for name in ("linear", "tree"))


SLEEPERS = """
import subprocess, sys, time
from pathlib import Path
from benchmarks.gpu import leftovers
sleep = "import time; time.sleep(6000)"
child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{sleep}']); {sleep}"
server = subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
time.sleep(0.5)
leftovers.record(Path(sys.argv[1]), server.pid, "left")
print(server.pid, flush=True)
time.sleep(6000)
"""


def test_a_killed_runs_servers_are_ended_with_their_children_and_nobody_elses(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    argv = [sys.executable, "-c", SLEEPERS, str(tmp_path)]
    owner = subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert owner.stdout is not None
    group = int(owner.stdout.readline())
    began = leftovers.started(group)
    assert began is not None
    until = time.monotonic() + 120
    while len(leftovers.members(group, began)) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    assert len(leftovers.members(group, began)) == 2
    assert leftovers.end_earlier(tmp_path) == [], "its benchmark still runs"
    owner.send_signal(signal.SIGKILL)
    owner.wait(60)
    os.kill(group, signal.SIGKILL)  # the launcher alone: its child outlives it, as a scheduler does
    until = time.monotonic() + 120
    while leftovers.started(group) is not None and time.monotonic() < until:
        time.sleep(0.1)
    assert leftovers.end_earlier(tmp_path) == ["left"]
    assert not leftovers.members(group, began)
    assert leftovers.end_earlier(tmp_path) == []


def test_a_number_that_went_to_a_stranger_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(6000)"], start_new_session=True
    )
    try:
        path = leftovers.record(tmp_path, stranger.pid, "old")
        kept = json.loads(path.read_text())
        path.write_text(json.dumps({**kept, "began": kept["began"] - 1, "owner_began": -1}))
        assert leftovers.end_earlier(tmp_path) == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait(60)


def test_arms_are_chosen_by_name() -> None:
    arms = speed.graph_arms(DRAFTER)
    assert [arm.name for arm in chosen(arms, "tree-15-device,linear")] == ["tree-15-device", "linear"]
    assert chosen(arms, None) == arms
    with pytest.raises(SystemExit, match="no arm tree-99; there are autoregressive"):
        chosen(arms, "linear,tree-99")


def test_a_model_that_brings_prompts_is_asked_those(tmp_path: Path) -> None:
    own = [{"prompt": f"Write the Python function f{n}.", "kind": "code"} for n in range(7)]
    (tmp_path / "unseen-prompts.json").write_text(json.dumps({"prompts": own}))
    found = prompts(tmp_path)
    assert (
        found[0].text == "<|im_start|>user\nWrite the Python function f0.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [one.form for one in found] == ["demo"] * 5 + ["known"] * 2
    assert len(prompts(MODEL)) == 66 and "SmolLM" in prompts(MODEL)[0].text
