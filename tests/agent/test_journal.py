"""A unit's journal on a real host, as the agent streams it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fleetctl.agent.units.journal import entry
from fleetctl.errors import Exit, FleetError
from fleetctl.transport.agent import Agent, open_agent
from tests.conftest import Lab
from tests.transport.sshd import SshSettings, TestHost, wait_for

pytestmark = pytest.mark.lab
UNIT = "fleetctl-test-journal.service"


@pytest.fixture
def agent(lab: Lab) -> Iterator[Agent]:
    ssh = SshSettings(lab.address("ct200"), "root", identity_file=lab.identity, known_hosts=lab.known_hosts)
    with open_agent(TestHost("ct200", ssh)) as opened:
        yield opened


def say(lab: Lab, *lines: str) -> None:
    words = " ".join(f"'{line}'" for line in lines)
    lab.run(
        "ct200", f"systemd-run -q --wait --collect --unit={UNIT} printf '%s\\n' {words}; journalctl --sync"
    )


def lines(agent: Agent, **args: Any) -> list[str]:
    found: list[dict[str, Any]] = []
    result = agent.call("logs", on_event=found.append, unit=UNIT, **args)
    assert result == {"lines": len(found)}
    assert [line["time"] for line in found] == sorted(line["time"] for line in found)
    return [line["line"] for line in found if not line["line"].startswith(("Started", UNIT))]


def test_the_last_lines_of_a_unit(lab: Lab, agent: Agent) -> None:
    say(lab, "<3>one is an error", "zwei ✓", "three")
    assert lines(agent)[-3:] == ["one is an error", "zwei ✓", "three"]
    # systemd's own two lines about the unit can be among the last ones too.
    assert "three" in lines(agent, lines=4, since="-1h")
    assert "one is an error" not in lines(agent, lines=2, since="-1h")
    assert lines(agent, since="+1h") == []
    events: list[dict[str, Any]] = []
    agent.call("logs", on_event=events.append, unit=UNIT)
    assert {event["line"]: event["priority"] for event in events}["one is an error"] == 3


def test_following_shows_what_comes_and_does_not_block_other_calls(lab: Lab, agent: Agent) -> None:
    seen: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def follow() -> None:
        with pytest.raises(FleetError, match="lost during logs"):
            agent.call("logs", on_event=seen.put, timeout=None, unit=UNIT, lines=0, follow=True)

    thread = threading.Thread(target=follow)
    thread.start()
    assert agent.call("history", limit=1) is not None
    while seen.empty():
        say(lab, "does it follow yet?")
    for word in ("first", "second"):
        say(lab, word)
        while seen.get(timeout=120)["line"] != word:
            continue
    agent.close()
    thread.join(120)
    assert not thread.is_alive()
    followers = "ps -eo args | grep '[j]ournalctl.*follow'; true"
    wait_for(lambda: not lab.run("ct200", followers).stdout)


def test_a_unit_that_never_was(agent: Agent) -> None:
    with pytest.raises(FleetError, match=r"no unit nothing\.service") as caught:
        agent.call("logs", unit="nothing.service")
    assert caught.value.exit == Exit.INPUT
    assert caught.value.where == "ct200: nothing.service"


def test_a_time_that_is_none(agent: Agent) -> None:
    with pytest.raises(FleetError, match="journalctl failed") as caught:
        agent.call("logs", unit=UNIT, since="soonish")
    assert any("soonish" in line for line in caught.value.evidence)


def test_lines_that_are_no_text() -> None:
    assert entry(b"{") is None
    assert entry(b"{}") is None
    raw = entry(b'{"__REALTIME_TIMESTAMP": "1700000000000000", "MESSAGE": [104, 105, 255], "PRIORITY": "4"}')
    assert raw == {"line": "hi�", "time": "2023-11-14T22:13:20.000+00:00", "priority": 4}
    empty = entry(b'{"__REALTIME_TIMESTAMP": "1700000000000000", "MESSAGE": null}')
    assert empty is not None
    assert (empty["line"], empty["priority"]) == ("", 6)
