"""doctor.facts of the machine the tests run on: its keys, and a part that hangs beside the others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fleetctl.agent.host import cards, doctor, facts, toolkits
from tests.agent.pythons import pythons

ROOT = Path(__file__).parents[2]

KEYS = {
    *(
        "schema",
        "hostname",
        "time",
        "os",
        "kernel",
        "arch",
        "glibc",
        "glibcxx",
        "python",
        "uptime_s",
        "gpus",
        "driver",
    ),
    *(
        "toolkits",
        "topology",
        "environments",
        "ptxas",
        "ninja",
        "models",
        "kernel_log",
        "disks",
        "shm",
        "memory",
        "cpus",
    ),
    *("numa_nodes", "limits", "libraries", "units", "ports", "slots", "paths", "deep", "errors", "seconds"),
}


def ask(**args: Any) -> dict[str, Any]:
    return doctor.facts(args, lambda event: None)


def test_the_contracts_keys() -> None:
    found = ask(slots={"a": {"port": 1}}, paths=["/", "/" + "x" * 5000])
    assert set(found) == KEYS
    assert json.loads(json.dumps(found)) == found
    assert found["libraries"]["libstdc++.so.6"] is True
    assert found["glibcxx"].startswith("3.4.")
    assert found["disks"][0]["mount"] == "/"
    assert found["paths"]["/"]["exists"] is True and found["paths"]["/" + "x" * 5000]["error"]
    assert found["slots"]["a"]["health"]["status"] is None
    assert found["limits"]["agent"]["nofile"] > 0


def test_an_environment_and_what_is_none(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    found = ask(environments=[str(venv), str(tmp_path / "none")])["environments"]
    assert found[str(venv)]["kind"] == "venv"
    assert set(found[str(tmp_path / "none")]) == {"error"}


def test_a_slots_state_names_what_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "STATE", tmp_path)
    (tmp_path / "slots").mkdir()
    state = {"unit": "u.service", "environment": str(tmp_path), "model_paths": [str(tmp_path / "model")]}
    (tmp_path / "slots/a.json").write_text(json.dumps(state))
    found = ask(slots={"a": {"port": 1}})
    assert (list(found["environments"]), list(found["models"])) == (
        [str(tmp_path)],
        [str(tmp_path / "model")],
    )


def test_a_hanging_tool_holds_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexec sleep 600\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(cards, "SMI_S", -0.5)
    begin = time.monotonic()
    found = ask()
    assert time.monotonic() - begin < 60
    assert found["gpus"]["error"] == "no answer within 0.5 s"
    assert (found["gpus"]["gpus"], found["topology"]["links"], found["driver"]["cuda"]) == ([], {}, None)
    assert {"gpus", "cuda", "topology"} <= set(found["errors"])
    assert found["memory"]["total"] > 0


@pytest.mark.parametrize("python", pythons())
def test_every_python_that_an_agent_runs_on(python: str) -> None:
    code = "import json; from fleetctl.agent.host import doctor; print(json.dumps(doctor.facts({'deep': True}, print)))"
    done = subprocess.run(
        [python, "-c", code],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == KEYS


def test_ninja_is_looked_for_where_a_unit_looks(tmp_path: Path) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    (ours / "bin").mkdir(parents=True)
    (ours / "bin/ninja").touch(mode=0o755)
    of_the_host = shutil.which("ninja", path=toolkits.UNIT_PATH)
    assert toolkits.ninja([str(ours), str(other)]) == {
        str(ours): str(ours / "bin/ninja"),
        str(other): of_the_host,
    }
    assert toolkits.UNIT_PATH in (ROOT / "templates/systemd/sglang.service.j2").read_text()
