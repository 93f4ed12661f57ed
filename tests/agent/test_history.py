"""The record of rollouts: what ended, what runs, what a crash left."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from fleetctl.agent.host import facts
from fleetctl.agent.rollout import history

Record = dict[str, Any]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host's folders, of the test's own."""
    monkeypatch.setattr(history, "STATE", tmp_path)
    monkeypatch.setattr(facts, "LOCKS", tmp_path)
    return tmp_path


def record(host: Path, name: str, slot: str, result: Record | None) -> None:
    folder = host / "rollouts" / name
    folder.mkdir(parents=True)
    target = {"service": "ddtree", "mode": "tree", "unit": "tree.service", "unit_text": "x" * 1000}
    plan = {"kind": "swap", "slot": slot, "created": "2026", "operator": "me", "new": target, "old": None}
    (folder / "plan.json").write_text(json.dumps(plan))
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))


def ask(**args: Any) -> list[Record]:
    return history.history(args, lambda event: None)


def test_nothing_yet(host: Path) -> None:
    assert ask() == []


def test_newest_first_by_slot_and_limited(host: Path) -> None:
    record(host, "20260101T000000-a-0001", "a", {"outcome": "done", "exit": 0})
    record(host, "20260103T000000-a-0003", "a", {"outcome": "rolled-back", "exit": 6})
    record(host, "20260102T000000-b-0002", "b", {"outcome": "done", "exit": 0})
    assert [entry["id"][-4:] for entry in ask()] == ["0003", "0002", "0001"]
    assert [entry["id"][-4:] for entry in ask(slot="a")] == ["0003", "0001"]
    assert [entry["id"][-4:] for entry in ask(slot="a", limit=1)] == ["0003"]
    newest = ask()[0]
    assert newest["outcome"] == "rolled-back"
    assert newest["new"]["service"] == "ddtree"
    assert "unit_text" not in newest["new"]


def test_a_rollout_without_a_result_runs_or_crashed(host: Path) -> None:
    record(host, "20260101T000000-a-0001", "a", None)
    record(host, "20260102T000000-a-0002", "a", None)
    lock = (host / "a.lock").open("w")
    lock.write('{"rollout": "20260102T000000-a-0002"}')
    lock.flush()
    assert [entry["outcome"] for entry in ask()] == ["crashed", "crashed"], "an unlocked file holds nobody"
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert [entry["outcome"] for entry in ask()] == ["running", "crashed"]
    lock.close()
    assert [entry["outcome"] for entry in ask()] == ["crashed", "crashed"]


@pytest.mark.parametrize("plan", ["", "{", "[]", "{}", '{"kind": 1}'])
def test_a_torn_record_is_shown_as_such(host: Path, plan: str) -> None:
    record(host, "20260102T000000-a-0002", "a", {"outcome": "done"})
    record(host, "20260101T000000-a-0001", "a", {"outcome": "done"})
    (host / "rollouts" / "20260102T000000-a-0002" / "plan.json").write_text(plan)
    torn, whole = ask()
    assert torn["outcome"] == "unreadable"
    assert torn["reason"]
    assert whole["outcome"] == "done"
