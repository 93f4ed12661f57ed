"""The rollout's small parts that need no systemd."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from fleetctl.agent.errors import AgentError
from fleetctl.agent.host import facts
from fleetctl.agent.rollout import before, control, probes, record
from fleetctl.agent.rollout.ladder import Failed, Ladder
from fleetctl.agent.rollout.probes import Answer
from fleetctl.agent.rollout.signatures import Signatures
from fleetctl.agent.rollout.watch import Interrupt, Watch
from fleetctl.agent.units import systemd

METRICS = """# HELP x:running requests that run
# TYPE x:running gauge
x:running{model="m",rank="0"} 2
x:running{model="m",rank="1"} 1.0
x:running_total 40
x:queued 4 1700000000
x:odd{model="a b"} NaN?
"""


def test_sums_the_named_series_whatever_their_labels() -> None:
    assert [facts.metric_sum(METRICS, name) for name in ("x:running", "x:queued")] == [3, 4]
    assert [facts.metric_sum(METRICS, name) for name in ("x:odd", "x:none")] == [None, None]


def gpu(index: int, used: int | None) -> dict[str, Any]:
    return {"index": index, "memory_used_mib": used}


def app(index: int, pid: int, used: int | None) -> dict[str, Any]:
    return {"gpu": index, "pid": pid, "used_mib": used}


@pytest.mark.parametrize(
    ("gpus", "apps", "expected"),
    [
        ([gpu(0, 90000), gpu(1, 50)], [app(0, 7, 89000)], {"0": 1000}),
        ([gpu(0, 90000)], [app(0, 7, None)], {"0": before.CONTEXT_MIB}),
        ([gpu(0, 90000)], [app(0, 8, 89000)], {"0": before.CONTEXT_MIB}),
        ([gpu(0, 300)], [], {"0": 300}),
        ([gpu(0, None)], [], {}),
    ],
    ids=["known", "untold", "another's", "idle", "dead"],
)
def test_the_baseline_is_what_the_leaving_processes_leave(
    gpus: list[dict[str, Any]], apps: list[dict[str, Any]], expected: dict[str, int]
) -> None:
    assert before.baseline([0], {"gpus": gpus, "apps": apps}, [7]) == expected


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("a.service:3: Unknown key 'X' in section [Service], ignoring.", False),
        ("a.service: Command /no is not executable: No such file or directory", False),
        ("/lib/systemd/system/snapd.service:23: Unknown key name 'RestartMode'", True),
        ('b.service points to "b.old" which is not a valid unit name: Invalid cross-device link', True),
        ("multi-user.target: Cannot add dependency job", True),
        ("Failed to prepare filename: Invalid argument", False),
    ],
)
def test_lines_of_verify_about_other_units_are_theirs(line: str, other: bool) -> None:
    assert systemd._of_another(line, "a.service") is other


def plan_in(folder: Path) -> Path:
    (folder / "plan.json").write_text(json.dumps({"slot": "s", "port": 1, "deadlines": {}}))
    return folder


def test_a_torn_event_is_left_out_and_the_next_one_is_whole(tmp_path: Path) -> None:
    kept = record.Record(plan_in(tmp_path))
    kept.begin("lock", "slot s")
    kept.ok("locked")
    with (tmp_path / "events.jsonl").open("a") as events:
        events.write('{"seq": 3, "st')
    later = record.Record(tmp_path)
    assert [event["seq"] for event in later.past] == [1, 2]
    later.begin("recover", "again")
    assert [event["step"] for event in record.read_events(tmp_path)] == ["lock", "lock", "recover"]
    assert record.begun(list(record.read_events(tmp_path))) == {"lock", "recover"}


def test_the_first_failure_names_the_step_and_a_restore_does_not(tmp_path: Path) -> None:
    kept = record.Record(plan_in(tmp_path))
    kept.begin("health", "GET /health")
    kept.fail("not ready")
    kept.begin("restore-stop", "stop")
    kept.fail("hangs")
    result = kept.result({"outcome": "not-restored"})
    assert result["failed_step"] == "health"
    assert set(result["seconds"]) == {"health", "restore-stop"}
    assert json.loads((tmp_path / "result.json").read_text()) == result


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".hidden", None, "a" * 101])
def test_no_name_leads_out_of_the_records(name: object) -> None:
    with pytest.raises(AgentError):
        record.folder_of(name)


def test_a_plan_that_lacks_something_is_refused_by_name() -> None:
    with pytest.raises(AgentError, match=r"deadlines\.drain.*new\.unit"):
        control.checked(
            {"schema": 1, "id": "x", "slot": "s", "port": 1, "gpus": [], "new": {}, "deadlines": {}}
        )
    with pytest.raises(AgentError, match="schema"):
        control.checked({"schema": 2})


def test_the_tail_gives_whole_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = control._Tail(path)
    assert tail.new() == []
    path.write_text('{"seq": 1}\n{"seq"')
    assert tail.new() == [{"seq": 1}]
    with path.open("a") as events:
        events.write(": 2}\n")
    assert tail.new() == [{"seq": 2}]


def test_one_that_is_only_being_started_is_not_left_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "ROLLOUTS", tmp_path)
    folder = tmp_path / "r1"
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps({"slot": "s"}))
    with record.being_started(folder):
        assert record.unfinished("s") == []
    assert record.unfinished("s") == [folder]


class Quiet(Watch):
    """Nothing ever happens to the unit."""

    def __init__(self) -> None:
        self.lines, self.fatal, self.ended, self.poked = [], None, False, False

    def poll(self, seconds: float) -> bool:
        time.sleep(seconds)
        return False

    def settle(self) -> None:
        pass


def test_a_question_that_the_deadline_cuts_short_does_not_hide_the_answer_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = {"ready": 1, "generate": 1}
    (tmp_path / "plan.json").write_text(json.dumps({"port": 1, "deadlines": ready}))
    answers = iter([Answer(False, "GET /health: 503 loading", body="503 loading")])

    def health(port: int, timeout: float) -> Answer:
        time.sleep(0 if (answer := next(answers, None)) else timeout)
        return answer or Answer(False, f"GET /health: no answer within {timeout:g} s")

    monkeypatch.setattr(probes, "health", health)
    monkeypatch.setattr(systemd, "show", lambda units: {unit: {"ActiveState": "active"} for unit in units})
    kept, interrupt = record.Record(tmp_path), Interrupt()
    ladder = Ladder(kept, interrupt, {"unit": "u.service"}, Quiet(), Signatures([]), "before")
    with pytest.raises(Failed) as failed:
        ladder.climb(["health"])
    assert failed.value.reason == "not within 1 s: GET /health: 503 loading"
    assert "last answer: 503 loading" in failed.value.evidence
