"""A service over two hosts whose nodes really meet: started, proven and rolled back as one."""

from __future__ import annotations

import json

import pytest

from tests.router.conftest import Site
from tests.transport.sshd import wait_for

pytestmark = pytest.mark.lab

BOTH = ["ct200", "ct129"]


def generates(site: Site) -> str:
    """Which service answers on the first node."""
    body = json.dumps({"prompt": "x", "max_tokens": 2})
    ask = f"curl -s -m 40 -d '{body}' 127.0.0.1:{site.port}/v1/completions"
    said = site.lab.run("ct200", ask, check=False).stdout
    return str(json.loads(said)["choices"][0]["text"]) if said else ""


def active(site: Site, name: str) -> list[str]:
    """The hosts where the service's unit is active."""
    return [host for host in BOTH if site.active(f"{site.slot}-{name}.service", host) == "active"]


def test_two_hosts_start_are_proven_and_go_back_as_one(site: Site) -> None:
    site.spanning("big", BOTH)
    said = site.run("deploy", "ct200", "--service", "big", "--plan", expect=10)
    assert "ct129: start" in said
    site.run("deploy", "ct200", "--service", "big")
    assert generates(site) == "big"
    assert active(site, "big") == BOTH
    assert "nothing to do" in site.run("deploy", "ct200", "--service", "big")
    assert (site.status("ct129")["service"], site.status("ct129")["health"]) == ("big", "node")

    site.spanning("other", BOTH, lost=1)
    site.hosts["ct200"]["services"]["other"]["deadlines"] = {"drain": 3, "stop": 3, "ready": 4, "generate": 3}
    said = site.run("swap", "big", "other", expect=6)
    assert "ct129" in said
    assert generates(site) == "big", "a rank that never joins is felt, and the old service is back on both"
    assert active(site, "big") == BOTH
    assert active(site, "other") == []

    site.spanning("other", BOTH)
    site.run("swap", "big", "other")
    assert generates(site) == "other"
    site.run("rollback", "ct200", "--slot", site.slot)
    assert generates(site) == "big"
    assert active(site, "big") == BOTH
    assert "which ct200 leads" in site.run("stop", "ct129", "--slot", site.slot, expect=5)
    site.run("stop", "ct200", "--slot", site.slot)
    assert active(site, "big") == []
    assert {site.status(host)["health"] for host in BOTH} == {"empty"}
    site.run("rollback", "ct200", "--slot", site.slot)
    assert generates(site) == "big"
    assert active(site, "big") == BOTH


def test_a_smaller_service_leaves_no_node_behind_and_gives_them_back(site: Site) -> None:
    site.spanning("big", BOTH)
    site.service("small")
    site.run("deploy", "ct200", "--service", "big")
    pid = site.lab.run("ct129", f"systemctl show -P MainPID {site.slot}-big.service").stdout
    refused = site.run("deploy", "ct129", "--service", "big", expect=2)
    assert "no service big" in refused
    site.hosts["ct129"]["services"] = {}
    site.service("mine", "ct129")
    assert "which ct200 leads" in site.run("deploy", "ct129", "--service", "mine", expect=5)
    assert site.lab.run("ct129", f"systemctl show -P MainPID {site.slot}-big.service").stdout == pid

    site.service("small", tokens=1)
    said = site.run("swap", "big", "small", expect=6)
    assert "1 of 8 tokens" in said
    assert generates(site) == "big"

    site.service("small")
    site.run("swap", "big", "small")
    assert generates(site) == "small"
    assert active(site, "big") == []
    assert (site.status("ct129")["service"], site.status("ct129")["health"]) == (None, "empty")
    site.run("rollback", "ct200", "--slot", site.slot)
    assert generates(site) == "big"
    assert active(site, "big") == BOTH


@pytest.mark.faults
def test_where_the_controller_is_lost_all_nodes_are_as_they_were(site: Site) -> None:
    site.service("small")
    site.run("deploy", "ct200", "--service", "small")
    deadlines = {"drain": 3, "stop": 3, "free": 5, "ready": 6, "generate": 3}
    site.spanning("big", BOTH, load=4)
    site.hosts["ct200"]["services"]["big"]["deadlines"] = deadlines
    command = site.start("swap", "small", "big", "--host", "ct200")
    site.until(command, "ct200 start:")
    command.kill()
    command.communicate()
    ended = f"while systemctl is-active -q fleetctl-rollout-{site.slot}.service; do sleep 0.2; done"
    for host in BOTH:
        site.lab.run(host, ended, timeout=150)
    assert generates(site) == "small"
    assert active(site, "big") == []


def at_the_last_gate(site: Site, host: str) -> bool:
    """Whether a host's rollout waits for the others with its new service proven."""
    events = site.lab.state(host).glob(f"rollouts/*-{site.slot}-*/events.jsonl")
    return any('"hold-commit"' in path.read_text() for path in events)


def freeze_ssh(site: Site, host: str, seconds: int) -> None:
    """Nobody reaches a host for so long, and no connection is reset; its services go on."""
    script = f"pkill -STOP ^sshd; sleep {seconds}; pkill -CONT ^sshd"
    site.lab.run(
        host, f"systemd-run -q --collect --on-active=1 --timer-property=AccuracySec=100ms sh -c '{script}'"
    )


@pytest.mark.faults
@pytest.mark.parametrize(("seconds", "expected"), [(14, 0), (50, 6)], ids=["for-a-while", "too-long"])
def test_a_node_that_is_lost_at_the_last_gate(site: Site, seconds: int, expected: int) -> None:
    site.service("small")
    site.run("deploy", "ct200", "--service", "small")
    site.spanning("big", BOTH, load=6)
    deadlines = {"drain": 10, "stop": 4, "free": 5, "ready": 30, "generate": 10}
    site.hosts["ct200"]["services"]["big"]["deadlines"] = deadlines
    command = site.start("swap", "small", "big", "--host", "ct200")
    wait_for(lambda: at_the_last_gate(site, "ct129"), 60)
    freeze_ssh(site, "ct129", seconds)
    out, err = command.communicate(timeout=200)
    assert command.returncode == expected, out + err
    left, both = ("big", BOTH) if expected == 0 else ("small", [])
    assert generates(site) == left
    assert active(site, "big") == both
