"""A link that dies without a word, and long silence on one that lives: both ends find out in bounded time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from fleetctl.errors import FleetError
from fleetctl.lab import hosts
from fleetctl.transport import agent as agent_module
from fleetctl.transport import connection
from fleetctl.transport.agent import open_agent
from fleetctl.transport.payload import Payload, pack, sources
from tests.conftest import Lab
from tests.transport.sshd import Sshd, SshSettings, TestHost, wait_for

UNIT = "fleetctl-test-journal.service"


@pytest.fixture
def silence_s() -> float:
    """How long a silence ends the agent."""
    return 2.0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, silence_s: float) -> Payload:
    """An agent that ends after so much silence, and a controller with a heart to match."""
    files = sources()
    serve = files["fleetctl/agent/serve.py"]
    assert b"SILENCE_S = 60.0" in serve
    quick = serve.replace(b"SILENCE_S = 60.0", f"SILENCE_S = {silence_s}".encode())
    packed = pack({**files, "fleetctl/agent/serve.py": quick})
    monkeypatch.setattr(agent_module, "payload", lambda: packed)
    monkeypatch.setattr(agent_module, "HEARTBEAT_S", 0.5)
    return packed


@pytest.mark.parametrize("silence_s", [10.0])
def test_heartbeats_keep_an_idle_agent_alive(sshd: Sshd, impatient: Payload) -> None:
    with open_agent(sshd.host()) as agent:
        time.sleep(12)
        assert agent.call("history") == []


def test_without_heartbeats_the_agent_ends(
    sshd: Sshd, impatient: Payload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "HEARTBEAT_S", 60)
    with open_agent(sshd.host()) as agent, pytest.raises(FleetError, match="lost during logs"):
        agent.call("logs", timeout=60, unit=UNIT, follow=True)


@pytest.fixture
def cut(lab: Lab) -> Iterator[threading.Timer]:
    """Pulls the cable of ct200, 0.5 s after it is started; it is back at the test's end."""
    host = lab.hosts["ct200"]
    timer = threading.Timer(0.5, hosts.link_down, (host,))
    yield timer
    timer.cancel()
    lab.reset()


@pytest.mark.lab
def test_a_pulled_cable_ends_the_call_here_and_the_agent_there(
    lab: Lab, cut: threading.Timer, impatient: Payload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "DEAD_LINK_MS", 2000)
    monkeypatch.setattr(connection, "KEEPALIVE_S", 1)
    ssh = SshSettings(lab.address("ct200"), "root", identity_file=lab.identity, known_hosts=lab.known_hosts)
    with open_agent(TestHost("ct200", ssh)) as agent:
        cut.start()
        begin = time.monotonic()
        with pytest.raises(FleetError, match="link to ct200 lost during logs"):
            agent.call("logs", timeout=None, unit=UNIT, lines=0, follow=True)
        assert time.monotonic() - begin < 60, "TCP alone gives up after a quarter of an hour"
    hosts.link_up(lab.hosts["ct200"])
    count = f"ps -eo args | grep -c '{impatient.digest}.[p]yz serve' || true"
    wait_for(lambda: lab.run("ct200", count).stdout.strip() == "0")
