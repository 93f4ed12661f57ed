"""Facts of the machine the tests run on, and of a real HTTP server: what is there, and what is not."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fleetctl.agent.host import facts

METRICS = """# HELP fleet_running requests
# TYPE fleet_running gauge
fleet_running 2.0
fleet_running_total 99
fleet_queued{model="a",lane="x y"} 1
fleet_queued{model="b"} 3 1700000000000
"""


def ask(**args: Any) -> dict[str, Any]:
    return facts.facts(args, lambda event: None)


class Service(BaseHTTPRequestHandler):
    """A model server's answers, by path."""

    answers: ClassVar[dict[str, tuple[int, str, float]]] = {}

    def do_GET(self) -> None:
        status, body, delay = self.answers.get(self.path, (404, "", 0))
        time.sleep(delay)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: Any) -> None:
        return


@pytest.fixture
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Service.answers = {
        "/health": (200, "", 0),
        "/v1/models": (200, json.dumps({"data": [{"id": "smol"}]}), 0),
        "/metrics": (200, METRICS, 0),
    }
    yield server.server_port
    server.shutdown()
    server.server_close()


def health(port: int, **slot: Any) -> dict[str, Any]:
    answer: dict[str, Any] = ask(slots={"a": {"port": port, **slot}})["slots"]["a"]["health"]
    return answer


def test_the_contracts_keys() -> None:
    found = ask()
    assert set(found) == {
        *("hostname", "time", "boot_id", "os", "arch", "kernel", "glibc", "python", "gpus", "units"),
        *("ports", "slots", "paths", "disk", "errors"),
    }
    assert found["disk"]["free_bytes"] > 0
    assert found["glibc"].count(".") == 1
    assert json.loads(json.dumps(found)) == found


def test_health_models_and_load(port: int) -> None:
    metrics = {"running": "fleet_running", "queued": "fleet_queued"}
    expected = {"status": 200, "models": ["smol"], "running": 2.0, "queued": 4.0, "error": None}
    assert health(port, metrics=metrics) == expected
    assert health(port)["running"] is None
    assert health(port, metrics={"running": "nothing", "queued": "such"})["queued"] is None


def test_metrics_named_by_the_slots_own_state(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "STATE", tmp_path)
    (tmp_path / "slots").mkdir()
    state = {
        "service": "wrapper",
        "unit": "w.service",
        "metrics": {"running": "fleet_running", "queued": "fleet_queued"},
    }
    (tmp_path / "slots" / "a.json").write_text(json.dumps(state))
    slot = ask(slots={"a": {"port": port}})["slots"]["a"]
    assert slot["state"] == state
    assert slot["health"]["queued"] == 4.0


def test_a_service_that_is_not_ready_says_why(port: int) -> None:
    Service.answers["/health"] = (503, "loading the model", 0)
    found = health(port)
    assert found["status"] == 503
    assert found["error"] == "loading the model"
    assert found["models"] == ["smol"]


def test_a_busy_service_that_answers_late_is_ready(port: int) -> None:
    Service.answers["/health"] = (200, "", 2)
    assert health(port)["status"] == 200


def test_a_service_that_hangs_is_waited_for_so_long_and_no_more(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "HEALTH_S", 1.0)
    Service.answers["/health"] = (200, "", 8)
    begin = time.monotonic()
    found = health(port)
    assert time.monotonic() - begin < 7
    assert found["status"] is None
    assert "no answer within 1 s" in found["error"]


def test_models_that_are_no_models(port: int) -> None:
    Service.answers["/v1/models"] = (200, "<html>", 0)
    found = health(port)
    assert (found["status"], found["models"]) == (200, [])
    assert "<html>" in found["error"]


def test_who_holds_the_port(port: int) -> None:
    found = ask(slots={"a": {"port": port}, "b": {"port": 1}})
    assert "pytest" in found["ports"][str(port)]["command"]
    assert found["ports"]["1"] is None


def test_paths(tmp_path: Path) -> None:
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "one").write_bytes(b"x" * 10)
    (tmp_path / "folder" / "deep" / "two").write_bytes(b"x" * 100)
    (tmp_path / "dangling").symlink_to("nowhere")
    names = [tmp_path / name for name in ("folder", "folder/one", "dangling", "none")]
    found = ask(paths=[str(name) for name in names])["paths"]
    assert [found[str(name)] for name in names] == [
        {"exists": True, "kind": "folder", "bytes": 10},
        {"exists": True, "kind": "file", "bytes": 10},
        {"exists": False, "kind": None, "bytes": 0},
        {"exists": False, "kind": None, "bytes": 0},
    ]


def test_a_part_that_fails_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "STATE", tmp_path)
    (tmp_path / "slots").mkdir()
    (tmp_path / "slots" / "a.json").write_text("{torn")
    found = ask(slots={"a": {"port": 1}}, paths=["/" + "x" * 5000])
    assert found["slots"]["a"]["state"] is None
    assert "slots/a.json is damaged" in found["errors"]["slots.a"]
    assert found["paths"] == {}
    assert "OSError" in found["errors"]["paths"]
    assert found["hostname"]


@pytest.mark.parametrize("text", ["{torn", "[]", "{}"])
def test_a_damaged_state_hides_no_health(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(facts, "STATE", tmp_path)
    (tmp_path / "slots").mkdir()
    (tmp_path / "slots" / "a.json").write_text(text)
    found = ask(slots={"a": {"port": port}})
    assert found["slots"]["a"]["health"]["status"] == 200
    assert "is damaged" in found["errors"]["slots.a"]


def test_a_rollout_that_only_ends_is_not_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "LOCKS", tmp_path)
    monkeypatch.setattr(facts, "STATE", tmp_path)
    with (tmp_path / "a.lock").open("w") as lock:
        lock.write('{"rollout": "r1"}')
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert facts.locked_by("a") is not None
        (tmp_path / "rollouts/r1").mkdir(parents=True)
        (tmp_path / "rollouts/r1/result.json").write_text("{}")
        assert facts.locked_by("a") is None


def test_looking_at_a_lock_never_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "LOCKS", tmp_path)
    assert facts.locked_by("a") is None
    with (tmp_path / "a.lock").open("w") as lock:
        lock.write('{"rollout": "20260101T000000-a-0001", "operator": "me"}')
        lock.flush()
        assert facts.locked_by("a") is None
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert facts.locked_by("a") == {
            "rollout": "20260101T000000-a-0001",
            "operator": "me",
            "pid": os.getpid(),
        }
        lock.truncate(5)
        assert facts.locked_by("a") == {"pid": os.getpid()}
    assert facts.locked_by("a") is None
