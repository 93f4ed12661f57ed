"""The server's process: ports, broken folders, SIGTERM."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.standalone.conftest import DRAFTER, ROOT, Server, Start, free_port

pytestmark = pytest.mark.model


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """Run a server that is to end by itself."""
    command = [sys.executable, "-m", "fleetctl.standalone", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)


def test_a_port_that_is_taken_is_said_at_once(model_folder: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        done = run("--model", str(model_folder), "--mode", "autoregressive", "--port", port)
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "loaded" not in done.stdout


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_or_broken_file_is_named_in_one_line(model_folder: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder, copy_function=_link)
    for content in (None, b"not what it was"):
        (folder / name).unlink(missing_ok=True)
        if content:
            (folder / name).write_bytes(content)
        done = run("--model", str(folder), "--mode", "autoregressive", "--port", "0")
        assert done.returncode == 2, done.stderr
        assert str(folder / name) in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_mode_that_drafts_needs_a_drafter(model_folder: Path) -> None:
    done = run("--model", str(model_folder), "--mode", "tree", "--port", "0")
    assert done.returncode == 2
    assert "--drafter" in done.stderr


def test_a_budget_below_one_is_refused(model_folder: Path) -> None:
    done = run("--model", str(model_folder), "--drafter", str(DRAFTER), "--budget", "0")
    assert done.returncode == 2
    assert "--budget" in done.stderr


def test_sigterm_lets_a_request_in_flight_finish_and_takes_no_other(start: Start) -> None:
    server = start()
    server.wait_ready()
    name = server.get("/v1/models").json()["data"][0]["id"]
    answers: list[httpx.Response] = []
    asked = {
        "model": name,
        "prompt": "Once upon a time",
        "max_tokens": 30,
        "temperature": 0,
        "ignore_eos": True,
    }
    client = threading.Thread(target=lambda: answers.append(server.ask("completions", **asked)))
    client.start()
    server.wait_for("fleetctl_requests_running", 1)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    with pytest.raises(httpx.ConnectError):
        server.get("/health")
    client.join(60)
    assert answers[0].json()["usage"]["completion_tokens"] == 30
    assert server.process.wait(20) == 0


def test_the_drain_is_bounded(start: Start) -> None:
    server = start("--drain-timeout", "1")
    server.wait_ready()
    name = server.get("/v1/models").json()["data"][0]["id"]
    asked = {
        "model": name,
        "prompt": "Once upon a time",
        "max_tokens": 4000,
        "stream": True,
        "ignore_eos": True,
    }
    with httpx.stream(
        "POST", f"{server.url}/v1/completions", json=asked, timeout=30, trust_env=False
    ) as answer:
        lines = answer.iter_lines()  # kept: a dropped iterator closes the connection
        next(lines)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
        assert time.monotonic() - began < 10


def _link(source: str, target: str) -> str:
    Path(target).hardlink_to(source)
    return target


def test_a_log_that_nobody_takes_any_more_stops_no_answer(model_folder: Path, tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "fleetctl.standalone", "--model", str(model_folder), "--threads", "1"]
    command += ["--mode", "autoregressive", "--port", str(port)]
    (tmp_path / "log").touch()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            server = Server(process, f"http://127.0.0.1:{port}", tmp_path / "log")
            server.wait_ready()
            assert process.stdout is not None
            process.stdout.close()
            for _ in range(2):
                answer = server.ask("completions", model=model_folder.name, prompt="One", max_tokens=2)
                assert answer.json()["usage"]["completion_tokens"] == 2
            assert server.get("/health").status_code == 200
        finally:
            process.kill()
