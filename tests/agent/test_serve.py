"""The packed agent as a process, on every Python that is here: its lines in and out, its errors, its end."""

from __future__ import annotations

import ast
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fleetctl.agent
from fleetctl.agent import __main__ as program
from fleetctl.agent.calls import CALLS, find
from fleetctl.transport.payload import payload
from tests.agent.pythons import pythons
from tests.agent.test_child import is_running
from tests.transport.sshd import wait_for

PYTHONS = pythons()
NOW_S = 30.0
"""Half of the silence after which an agent ends in any case."""
SOURCES = sorted(Path(fleetctl.agent.__file__).parent.rglob("*.py"))


AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from fleetctl.agent import calls, serve
from fleetctl.agent.environment import specs
if os.getuid() == 0:
    os.setuid(65534)
sys.argv = ["agent", "serve"]
serve.serve()
"""


class Served:
    """A running agent, asked by lines."""

    def __init__(self, python: str, program: Path) -> None:
        self.process = subprocess.Popen(
            [python, "-I", "-S", str(program), "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.hello = self.read()["hello"]

    def read(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def write(self, line: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def ask(self, call: str, **args: Any) -> Any:
        self.write(json.dumps({"id": 1, "call": call, "args": args}).encode())
        return self.read()


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    path = tmp_path / f"{payload().digest}.pyz"
    path.write_bytes(payload().data)
    return path


@pytest.fixture
def served(packed: Path) -> Iterator[Served]:
    agent = Served(sys.executable, packed)
    yield agent
    agent.process.kill()
    agent.process.wait()


def test_there_is_a_python_to_test_with() -> None:
    assert PYTHONS


@pytest.mark.parametrize("python", PYTHONS)
def test_facts_on_every_python(python: str, packed: Path) -> None:
    agent = Served(python, packed)
    assert agent.hello["agent"] == payload().digest
    facts = agent.ask("facts", slots={"a": {"port": 1}}, units=["ssh.service"], paths=["/etc"])["result"]
    assert facts["python"]["version"] == agent.hello["python"]
    assert facts["paths"]["/etc"]["kind"] == "folder"
    assert facts["slots"]["a"]["health"]["status"] is None
    assert agent.ask("history")["result"] == []
    assert agent.process.stdin
    agent.process.stdin.close()
    agent.process.wait(NOW_S)


@pytest.mark.parametrize("python", PYTHONS)
def test_every_module_compiles_on_every_python(python: str, tmp_path: Path) -> None:
    program = "import sys; [compile(open(p).read(), p, 'exec') for p in sys.argv[1:]]"
    subprocess.run([python, "-W", "error", "-c", program, *map(str, SOURCES)], check=True)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_agent_imports_only_itself_the_abi_reader_and_the_standard_library(source: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(source.read_text(), feature_version=(3, 9))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    strangers = {
        name
        for name in imported
        if name.split(".")[0] not in sys.stdlib_module_names
        and not name.startswith(("fleetctl.agent", "fleetctl.abi"))
    }
    assert strangers == set()


@pytest.mark.parametrize("name", CALLS)
def test_every_call_of_the_table_is_there(name: str) -> None:
    assert list(inspect.signature(find(name)).parameters) == ["args", "emit"]


def test_an_old_python_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ast.parse(Path(program.__file__).read_text(), feature_version=(3, 5))
    monkeypatch.setattr(sys, "version_info", (3, 8, 10, "final", 0))
    monkeypatch.setattr(sys, "version", "3.8.10 (default)")
    monkeypatch.setenv("PATH", "/nowhere")
    assert program.main() == 3
    assert capsys.readouterr().out == f"fleetctl-agent old-python {sys.executable} 3.8.10\n"


def test_a_newer_python_beside_an_old_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("python3.8", "python3.10", "python3.9", "python3"):
        (tmp_path / name).touch(0o755)
    (tmp_path / "python3.12").touch(0o644)
    monkeypatch.setenv("PATH", f"/nowhere:{tmp_path}")
    assert program.newer_python() == f"{tmp_path}/python3.10"


@pytest.mark.parametrize("line", [b"{", b"[]", b'"x"', b"{}", b'{"id": 1}', b"\xff"])
def test_a_line_that_is_no_call_gets_an_error_and_the_next_one_an_answer(served: Served, line: bytes) -> None:
    served.write(line)
    error = served.read()["error"]
    assert error["exit"] == 2
    assert "not a call" in error["what"]
    assert served.ask("history") == {"id": 1, "result": []}


def test_an_unknown_call_names_the_known_ones(served: Served) -> None:
    assert "facts" in served.ask("fact")["error"]["fix"]


def test_a_bug_is_an_error_with_its_traceback_and_not_the_end(served: Served) -> None:
    error = served.ask("logs")["error"]
    assert error["exit"] == 1
    assert "KeyError" in error["what"]
    assert error["evidence"][0].startswith("Traceback")
    assert served.ask("history")["result"] == []


def test_what_needs_root_is_an_error_with_its_path_and_no_bug(packed: Path) -> None:
    argv = [sys.executable, "-I", "-S", "-c", AS_NOBODY, str(packed)]
    agent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdin and agent.stdout
    call = {"id": 1, "call": "environment.remember", "args": {"root": "/fleetctl-none", "path": "/x"}}
    call["args"] |= {"name": "a", "key": "b"}  # type: ignore[operator]
    agent.stdin.write(json.dumps(call).encode() + b"\n")
    agent.stdin.flush()
    agent.stdout.readline()
    error = json.loads(agent.stdout.readline())["error"]
    agent.stdin.close()
    agent.wait(NOW_S)
    assert (error["exit"], error["where"]) == (5, "/fleetctl-none")
    assert error["what"].startswith("needs root: Permission denied for user ")
    assert "ssh: {user: root}" in error["fix"]


def test_a_line_in_pieces_and_several_in_one(served: Served) -> None:
    assert served.process.stdin
    for piece in (b'{"id": 7, "ca', b'll": "hist', b'ory"}\n\n\n{"id": 8, "call": "history"}\n'):
        served.process.stdin.write(piece)
        served.process.stdin.flush()
        time.sleep(0.05)
    assert sorted(served.read()["id"] for _ in range(2)) == [7, 8]


def test_the_end_of_stdin_ends_the_agent_and_its_children(tmp_path: Path, packed: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 3000\n")
    (tools / "nvidia-smi").chmod(0o755)
    agent = subprocess.Popen(
        [sys.executable, str(packed), "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        start_new_session=True,
    )
    assert agent.stdin and agent.stdout
    agent.stdout.readline()
    agent.stdin.write(b'{"id": 1, "call": "facts"}\n')
    agent.stdin.flush()
    end = time.monotonic() + 120
    pids: list[int] = []
    while not pids and time.monotonic() < end:
        for children in Path(f"/proc/{agent.pid}/task").glob("*/children"):
            with suppress(OSError):
                pids += [int(pid) for pid in children.read_text().split()]
    assert pids
    agent.stdin.close()
    agent.wait(NOW_S)
    wait_for(lambda: not any(is_running(pid) for pid in pids))


def test_a_silent_controller_ends_the_agent(packed: Path) -> None:
    code = (
        "import sys; sys.argv = ['agent', 'serve']; sys.path.insert(0, %r)\n"
        "from fleetctl.agent import serve\nserve.SILENCE_S = 7\nserve.serve()"
    )
    agent = subprocess.Popen(
        [sys.executable, "-I", "-c", code % str(packed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert agent.stdin and agent.stdout
    agent.stdout.readline()
    for _ in range(9):
        time.sleep(1)
        agent.stdin.write(b"\n")
        agent.stdin.flush()
    assert agent.poll() is None
    assert agent.wait(60) == -signal.SIGKILL
