"""Finding servers: command lines, units, secrets, interpreters, and a real process on a real port."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.agent import secrets
from fleetctl.agent.host import interpreters, servers, serving
from fleetctl.agent.model import modelpaths
from fleetctl.agent.units import unitfile
from tests.transport.sshd import free_port

SERVER = """
import http.server, json, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, flush=True)
        self.send_response(200); self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": "smol"}]}).encode())
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), H)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.mark.parametrize(
    ("line", "engine", "port"),
    [
        ("/v/bin/python -m sglang.launch_server --port 30001", "sglang", 30001),
        ("python3.12 -u -X dev -m sglang.launch_server --port=7", "sglang", 7),
        ("/v/bin/python /v/bin/sglang serve --model-path /m", "sglang", 30000),
        ("/v/bin/sglang serve", "sglang", 30000),
        ("python /src/python/sglang/launch_server.py", "sglang", 30000),
        ("/v/bin/python -m fleetctl.standalone --model /m", "standalone", 30000),
        ("/v/bin/python /v/bin/vllm serve /m --port 8100", "vllm", 8100),
        ("python -m vllm.entrypoints.openai.api_server --port 99999", "vllm", None),
        ("/usr/bin/llama-server --port 8080", "other", 8080),
        ("/usr/bin/llama-server", "other", None),
    ],
)
def test_command_lines_that_serve(line: str, engine: str, port: int | None) -> None:
    found = serving.command(line.split())
    assert found is not None
    assert (found["engine"], serving.port_of(found)) == (engine, port)


@pytest.mark.parametrize(
    "line",
    [
        "python train.py sglang",
        "bash -c sglang",
        "sglang",
        "python -m sglang.bench_serving",
        "vim sglang/x",
        "",
    ],
)
def test_command_lines_that_do_not(line: str) -> None:
    assert serving.command(line.split()) is None


def test_a_server_behind_other_programs() -> None:
    found = serving.command_within(
        ["/usr/bin/env", "A=1", "numactl", "-N", "0", "/v/bin/python", "-m", "sglang.launch_server"]
    )
    assert found is not None
    assert found["program"] == "/v/bin/python"


def test_a_units_settings() -> None:
    text = """
[Service]
# a comment \\
Environment="A=1 2" B=%%x
ExecStart=/old
ExecStart=
ExecStart=-/v/bin/python -m sglang.launch_server \\
  # a comment within
  --port ${P} --x $ARGS --name "%i"
"""
    found = unitfile.settings([text, "[Service]\nEnvironment=P=7 'ARGS=1 2'\n"])
    known = unitfile.variables(found)
    assert known == {"A": "1 2", "B": "%x", "P": "7", "ARGS": "1 2"}
    (line,) = found["ExecStart"]
    assert unitfile.exec_words(line, "s@two.service", known)[3:] == [
        "--port",
        "7",
        "--x",
        "1",
        "2",
        "--name",
        "two",
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Environment=HF_TOKEN=abcd A=1", ["HF_TOKEN"]),
        ("Environment='OPENAI_API_KEY=x y'", ["OPENAI_API_KEY"]),
        ("ExecStart=/x --api-key abcdefgh --port 1", ["--api-key"]),
        ("Environment=HTTPS_PROXY=http://me:secret@proxy:1", ["HTTPS_PROXY"]),
        ("ExecStart=/x --tokenizer-path /t --max-total-tokens 5 --skip-tokenizer-init", []),
        ("Environment=TOKENIZERS_PARALLELISM=false HF_HOME=/x", []),
    ],
)
def test_secrets_in_a_unit(text: str, names: list[str]) -> None:
    assert secrets.within(text) == names


def test_secrets_in_a_command_line() -> None:
    words = ["--api-key", "abcdefgh", "--hf-token=zzzzzz", "--port", "1", "--x", '{"api_key": "abcd"}']
    assert secrets.without(words) == (
        ["--api-key", None, "--hf-token", None, "--port", "1", "--x", None],
        ["--api-key", "--hf-token", "--x"],
    )


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A venv as far as files go."""
    folder = tmp_path / "env"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.3\n")
    return folder


@pytest.mark.parametrize(
    ("program", "script", "variables", "origin"),
    [
        ("{env}/bin/python", None, {}, "its command line"),
        ("env/bin/python", None, {}, "its command line"),
        ("python", None, {"PATH": "/nowhere:{env}/bin"}, "its command line"),
        ("/usr/bin/python3", "{env}/bin/sglang", {}, "its script"),
        ("/usr/bin/python3", None, {"VIRTUAL_ENV": "{env}"}, "VIRTUAL_ENV"),
    ],
)
def test_the_environment_of_a_process(
    venv: Path, program: str, script: str | None, variables: dict[str, str], origin: str
) -> None:
    filled = {name: value.format(env=venv) for name, value in variables.items()}
    found = interpreters.environment(
        program.format(env=venv),
        script and script.format(env=venv),
        filled,
        str(venv.parent),
        "/usr/bin/python3.12",
    )
    expected = {"path": str(venv), "kind": "venv", "version": "3.12.3", "from": origin, "python": True}
    assert found == expected


def test_no_environment_at_all() -> None:
    assert interpreters.environment("/no/bin/python", None, {}, "/", "/no/bin/python3 (deleted)") is None


def test_a_model_that_was_downloaded(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub/models--org--Tiny/snapshots/abc"
    snapshot.mkdir(parents=True)
    found = modelpaths.described(["--model", "org/Tiny", "--x", "/none"], "/", {"HF_HOME": str(tmp_path)})
    assert found["hub"] == {"org/Tiny": str(snapshot)}
    assert found["paths"]["/none"]["exists"] is False


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A server whose command line names its port: port and the paths it was asked for."""
    log = tmp_path / "log"
    script = tmp_path / "serve.py"
    with log.open("w") as out:
        script.write_text(SERVER.replace("0), H", "int(sys.argv[2])), H"))
        port = free_port()
        child = subprocess.Popen([sys.executable, str(script), "--port", str(port)], stdout=out)
        while not log.read_text():
            time.sleep(0.02)
        yield port, log
        child.kill()
        child.wait()


def test_an_unknown_server_is_found_by_its_answer(
    process: tuple[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "ASK_S", 60.0)
    port, log = process
    found = servers.find({}, lambda event: None)
    (server,) = [one for one in found["servers"] if one["port"] == port]
    assert (server["engine"], server["answer"]["models"]) == ("other", ["smol"])
    assert log.read_text().split()[1:] == ["/v1/models"]


def test_a_distributed_jobs_port_is_never_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    code = SERVER.replace("0), H", "int(sys.argv[2])), H")
    with (tmp_path / "log").open("w") as out:
        child = subprocess.Popen(
            [sys.executable, "-c", code, "--port", str(port)],
            stdout=out,
            env={"MASTER_PORT": str(port)},
        )
        try:
            while not (tmp_path / "log").read_text():
                time.sleep(0.02)
            found = servers.find({}, lambda event: None)
        finally:
            child.kill()
            child.wait()
    assert port in found["unasked"]
    assert len((tmp_path / "log").read_text().split()) == 1
