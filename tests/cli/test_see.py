"""``status``, ``logs`` and ``history`` against the lab's hosts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from fleetctl.cli.history import history
from fleetctl.cli.logs import logs
from fleetctl.cli.status import status
from fleetctl.errors import Exit, FleetError
from tests.conftest import LAB_INVENTORY, Lab

pytestmark = pytest.mark.lab
STRANGER = "fleetctl-test-stranger.service"
SERVER = (
    "import http.server, json\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        self.send_response(200); self.end_headers()\n"
    '        self.wfile.write(json.dumps({"data": [{"id": "smol"}]}).encode())\n'
    'print("serving smol", flush=True)\n'
    'http.server.HTTPServer(("127.0.0.1", 30001), H).serve_forever()\n'
)
Fleetctl = Callable[..., Result]


@pytest.fixture
def fleetctl(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Fleetctl:
    """Run a command on the lab's inventory."""
    monkeypatch.setenv("FLEETCTL_FLEET", str(LAB_INVENTORY.parents[1]))
    monkeypatch.setenv("FLEETCTL_INVENTORY", "inventories/lab")
    app = typer.Typer()
    for command in (status, logs, history):
        app.command()(command)
    return lambda *words: CliRunner().invoke(app, words)


@pytest.fixture
def stranger(lab: Lab) -> Iterator[str]:
    """A unit that fleetctl did not make holds port 30001 of ct200."""
    program = f"--unit={STRANGER} -p Restart=no /usr/bin/python3 -c {shlex.quote(SERVER)}"
    lab.run(
        "ct200", f"systemd-run -q --collect {program}; until ss -ltn | grep -q :30001; do sleep 0.05; done"
    )
    yield STRANGER
    lab.run("ct200", f"systemctl stop {STRANGER}")


@pytest.fixture
def records(lab: Lab) -> Iterator[None]:
    """A rollout's record on each host."""
    plan = {"kind": "swap", "slot": "native", "created": "2026-11-29T17:05:01+00:00", "operator": "me"}
    plan |= {"new": {"service": "ddtree", "mode": "tree"}, "old": {"service": "dflash", "mode": "linear"}}
    result = {
        "outcome": "rolled-back",
        "exit": 6,
        "reason": "died at start",
        "seconds": {"stop": 1, "start": 0.5},
    }
    for name, second in (("ct200", "1"), ("ct129", "2")):
        folder = f"/var/lib/fleetctl/rollouts/20261129T17050{second}-native-test"
        lab.run(name, f"mkdir -p {folder}")
        for file, content in (("plan", plan), ("result", result)):
            lab.run(name, f"echo {shlex.quote(json.dumps(content))} >{folder}/{file}.json")
    yield
    for name in ("ct200", "ct129"):
        lab.run(name, "rm -r /var/lib/fleetctl/rollouts/*-native-test")


def slots(result: Result) -> dict[tuple[str, str], dict[str, Any]]:
    document = json.loads(result.stdout)
    return {(host["host"], slot["slot"]): slot for host in document["hosts"] for slot in host["slots"]}


def test_status_of_all_hosts_shows_whose_port_it_is(fleetctl: Fleetctl, stranger: str) -> None:
    result = fleetctl("status", "--json")
    assert result.exit_code == 0
    found = slots(result)
    assert set(found) == {("ct129", "native"), ("ct200", "wrapper"), ("ct200", "native")}
    held = found["ct200", "native"]
    assert (held["unit"], held["unit_state"], held["health"]) == (stranger, "active (running)", "ready")
    assert held["models"] == ["smol"]
    assert held["notes"] == [f"not managed by fleetctl: port 30001 is held by {stranger}"]
    assert found["ct129", "native"]["health"] == "empty"


def test_status_fits_a_screen_and_names_each_slot(fleetctl: Fleetctl, stranger: str) -> None:
    result = fleetctl("status", "ct200")
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    assert lines[0].split()[:3] == ["HOST", "SLOT", "SERVICE"]
    assert any("native" in line and stranger in line for line in lines)


def test_status_of_a_host_that_is_cut_off_is_a_row_and_exit_8(fleetctl: Fleetctl, lab: Lab) -> None:
    lab.run("ct129", "systemctl stop ssh.socket ssh.service 2>/dev/null; true", check=False)
    try:
        result = fleetctl("status")
        assert result.exit_code == Exit.PARTIAL
        assert "refuses connections" in next(line for line in result.stdout.splitlines() if "ct129" in line)
        assert sum("ct200" in line for line in result.stdout.splitlines()) == 2
        assert "198.18.0.12:22" in result.stderr
        result = fleetctl("status", "ct129", "--json")
        assert result.exit_code == Exit.UNREACHABLE
        assert json.loads(result.stdout)["hosts"][0]["error"]["exit"] == Exit.UNREACHABLE
    finally:
        lab.reset()


def test_status_of_a_host_nobody_knows(fleetctl: Fleetctl) -> None:
    result = fleetctl("status", "ct201")
    assert isinstance(result.exception, FleetError)
    assert "ct200" in result.exception.fix


def test_logs_of_what_fills_the_slot(fleetctl: Fleetctl, stranger: str) -> None:
    result = fleetctl("logs", "ct200", "-n", "50")
    assert result.exit_code == 0, result.exception
    assert any(line.endswith(" serving smol") for line in result.stdout.splitlines())
    document = json.loads(fleetctl("logs", "ct200", "--slot", "native", "--json").stdout)
    assert document["unit"] == stranger
    assert "serving smol" in [line["line"] for line in document["lines"]]


def test_logs_of_an_empty_slot_and_of_a_service_that_never_ran(fleetctl: Fleetctl) -> None:
    empty = fleetctl("logs", "ct129").exception
    assert isinstance(empty, FleetError)
    assert "nothing fills slot native" in empty.what
    never = fleetctl("logs", "ct129", "dflash").exception
    assert isinstance(never, FleetError)
    assert "no unit" in never.what


def test_a_lone_word_of_logs_may_be_a_service(fleetctl: Fleetctl) -> None:
    which = fleetctl("logs", "dflash").exception
    assert isinstance(which, FleetError)
    assert "which host?" in which.what
    neither = fleetctl("logs", "dflas").exception
    assert isinstance(neither, FleetError)
    assert "no host dflas" in neither.what


def test_history_of_all_hosts_newest_first(fleetctl: Fleetctl, records: None) -> None:
    document = json.loads(fleetctl("history", "--json", "-n", "1000").stdout)
    ours = [entry for entry in document["rollouts"] if entry["id"].endswith("-native-test")]
    assert [(entry["host"], entry["outcome"]) for entry in ours] == [
        ("ct129", "rolled-back"),
        ("ct200", "rolled-back"),
    ]
    assert document["errors"] == {}
    lines = fleetctl("history", "ct200", "--slot", "native").stdout.splitlines()
    row = next(line for line in lines if "-native-test" in line)
    for word in ("ct200", "swap", "dflash", "ddtree", "rolled-back", "1.5 s", "died at start"):
        assert word in row
    assert not any(
        "-native-test" in line for line in fleetctl("history", "--slot", "wrapper").stdout.splitlines()
    )
