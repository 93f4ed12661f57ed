"""The main job with the real model: build, deploy in tree mode, swap, break, roll back, on real systemd."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from fleetctl.bench.client import measure
from fleetctl.standalone.convert import convert
from tests.conftest import Lab

pytestmark = [pytest.mark.lab, pytest.mark.model, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
UNITS = (
    "systemctl stop 'fleetctl-*.service'; rm -rf /var/lib/fleetctl/slots/{native,wrapper}.json; "
    "rm -f /etc/systemd/system/{,multi-user.target.wants/}fleetctl-*; systemctl daemon-reload"
)


@pytest.fixture
def clean_host(lab: Lab) -> Iterator[Lab]:
    """ct200 with the inventory's slots empty before and after."""
    convert(ROOT / ".fleetctl/models/smollm2-135m")
    lab.run("ct200", UNITS, check=False)
    yield lab
    lab.run("ct200", UNITS, check=False)


def fleetctl(*words: str, expect: int = 0, inventory: str = "inventories/lab") -> str:
    env = {**os.environ, "FLEETCTL_FLEET": str(ROOT), "FLEETCTL_INVENTORY": inventory}
    command = [sys.executable, "-m", "fleetctl", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=560)
    assert done.returncode == expect, (
        f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return done.stdout


def test_deploy_in_tree_mode_swap_break_and_roll_back(clean_host: Lab, tmp_path: Path) -> None:
    fleetctl("deploy", "ct200", "--mode", "tree")
    assert "nothing to do" in fleetctl("deploy", "ct200", "--mode", "tree")
    assert _status()["service"] == "ddtree"
    tree = _answer(clean_host)
    assert tree[1] > 1.5

    fleetctl("swap", "ddtree", "dflash")
    status = _status()
    assert (status["service"], status["health"], status["mode"]) == ("dflash", "ready", "linear")
    linear = _answer(clean_host)
    assert linear[0] == tree[0]

    inventory = yaml.safe_load((ROOT / "inventories/lab/ct200.yaml").read_text())
    inventory["services"]["broken"] = {**inventory["services"]["ddtree"], "args": {"budget": 0}}
    (tmp_path / "ct200.yaml").write_text(yaml.safe_dump(inventory))
    fleetctl("deploy", "ct200", "--service", "broken", expect=6, inventory=str(tmp_path))
    assert _status()["service"] == "dflash"
    assert _answer(clean_host)[0] == tree[0]

    fleetctl("rollback", "ct200")
    assert _status()["service"] == "ddtree"
    outcomes = [
        entry["outcome"] for entry in json.loads(fleetctl("history", "ct200", "--json"))["rollouts"][:4]
    ]
    assert outcomes == ["done", "rolled-back", "done", "done"]


def test_a_swap_answers_the_request_that_is_in_flight(clean_host: Lab) -> None:
    fleetctl("deploy", "ct200", "--service", "dflash")
    body = json.dumps(
        {"model": "smollm2-135m", "prompt": "Once upon a time", "max_tokens": 96, "ignore_eos": True}
    )
    url = f"http://{clean_host.address('ct200')}:30001"
    ask = ["curl", "-s", "-m", "500", "-d", body, "-H", "Content-Type: application/json"]
    flying = subprocess.Popen(
        [*ask, f"{url}/v1/completions"],
        stdout=subprocess.PIPE,
        text=True,
    )
    while "fleetctl_requests_running 1" not in httpx.get(f"{url}/metrics", timeout=60, trust_env=False).text:
        assert flying.poll() is None, "it was answered before the swap could begin"
    fleetctl("swap", "dflash", "autoregressive", "--host", "ct200")
    answer, _ = flying.communicate(timeout=500)
    assert json.loads(answer)["usage"]["completion_tokens"] == 96


def _status() -> dict[str, str]:
    slots = json.loads(fleetctl("status", "ct200", "--json"))["hosts"][0]["slots"]
    return next(slot for slot in slots if slot["slot"] == "native")


def _answer(lab: Lab) -> tuple[str, float]:
    """A greedy answer's text and accepted length."""
    url = f"http://{lab.address('ct200')}:30001"
    answer = asyncio.run(measure(url, "smollm2-135m", "Write a Python function that adds two numbers.", 48))
    assert answer.error is None and answer.accepted is not None
    return answer.text, answer.accepted.length
