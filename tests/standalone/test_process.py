"""The server's process: ports, broken folders, SIGTERM."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.standalone.conftest import DRAFTER, ROOT, Server, Start
from tests.transport.sshd import free_port, wait_for

pytestmark = pytest.mark.model


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """Run a server that is to end by itself."""
    command = [sys.executable, "-m", "fleetctl.standalone", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=ROOT)


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


LOADS_LATE = """
import sys, time
from pathlib import Path
from fleetctl.standalone import __main__ as program
loader = program._loader

def late(given):
    load = loader(given)

    def loads():
        while not Path(sys.argv[1]).exists():
            time.sleep(0.02)
        return load()

    return loads

program._loader = late
program.main(sys.argv[2:])
"""


def test_it_is_not_ready_before_it_has_loaded(model_folder: Path, tmp_path: Path) -> None:
    port, gate = free_port(), tmp_path / "gate"
    options = [
        "--model",
        str(model_folder),
        "--mode",
        "autoregressive",
        "--threads",
        "1",
        "--port",
        str(port),
    ]
    command = [sys.executable, "-c", LOADS_LATE, str(gate), *options]
    (tmp_path / "log").touch()
    with subprocess.Popen(command, text=True, cwd=ROOT) as process:
        try:
            server = Server(process, f"http://127.0.0.1:{port}", tmp_path / "log")
            server.wait_for_health(503)
            assert server.get("/health").status_code == 503
            gate.touch()
            server.wait_ready()
        finally:
            process.kill()


def test_a_mode_that_drafts_needs_a_drafter(model_folder: Path) -> None:
    done = run("--model", str(model_folder), "--mode", "tree", "--port", "0")
    assert done.returncode == 2
    assert "--drafter" in done.stderr


def test_a_budget_below_one_is_refused(model_folder: Path) -> None:
    done = run("--model", str(model_folder), "--drafter", str(DRAFTER), "--budget", "0")
    assert done.returncode == 2
    assert "--budget" in done.stderr


def test_sigterm_lets_a_request_in_flight_finish_and_takes_no_other(start: Start) -> None:
    server = start("--drain-timeout", "280")
    server.wait_ready()
    name = server.get("/v1/models").json()["data"][0]["id"]
    asked = {
        "model": name,
        "prompt": "Once upon a time",
        "max_tokens": 30,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with httpx.stream(
        "POST", f"{server.url}/v1/completions", json=asked, timeout=280, trust_env=False
    ) as answer:
        lines = answer.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: refuses(server))
        *_, usage, done = [line for line in lines if line]
    assert done == "data: [DONE]"
    assert json.loads(usage.removeprefix("data: "))["usage"]["completion_tokens"] == 30
    assert server.process.wait(120) == 0


def refuses(server: Server) -> bool:
    """Whether it takes no connection any more."""
    try:
        server.get("/health")
    except httpx.ConnectError:
        return True
    except httpx.TransportError:
        return False
    return False


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
        "POST", f"{server.url}/v1/completions", json=asked, timeout=280, trust_env=False
    ) as answer:
        lines = answer.iter_lines()  # kept: a dropped iterator closes the connection
        next(lines)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0
        assert time.monotonic() - began < 60


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
