"""The GPU measurements, run against a server that stands in for sglang: what they ask, conclude and keep."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from benchmarks.gpu import lossless, plumbing, profile, server, speed
from benchmarks.gpu.arms import ddtree, dflash
from benchmarks.gpu.server import Arm

STANDIN = Path(__file__).parent / "standin"
MODEL, DRAFTER = Path("/model"), Path("/drafter")


@pytest.fixture(autouse=True)
def standin(monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m sglang.launch_server`` is the stand-in, at ports that are free."""
    monkeypatch.setenv("PYTHONPATH", str(STANDIN))
    made = server.Server.__init__

    def at_a_free_port(self: server.Server, arm: Arm, model: Path, port: int, *rest: object) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            made(self, arm, model, probe.getsockname()[1], *rest)  # type: ignore[arg-type]

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
    first = speed.measure(MODEL, DRAFTER, tmp_path, arms[:1], tokens=8, minutes=0.02)
    kept = first["arms"]["linear"]
    again = speed.measure(MODEL, DRAFTER, tmp_path, arms, tokens=8, minutes=0.02)["arms"]
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
