"""A service over two hosts whose nodes really meet: started, proven and rolled back as one."""

from __future__ import annotations

import json

import pytest

from tests.router.conftest import Site

pytestmark = pytest.mark.lab

BOTH = ["ct200", "ct129"]


def generates(site: Site) -> str:
    """Which service answers on the first node."""
    body = json.dumps({"prompt": "x", "max_tokens": 2})
    ask = f"curl -s -m 5 -d '{body}' 127.0.0.1:{site.port}/v1/completions"
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
