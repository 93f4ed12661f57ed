"""Replicas behind a router, swapped one by one under load: not one request fails."""

from __future__ import annotations

import pytest

from tests.router.conftest import Site
from tests.router.load import Load

pytestmark = pytest.mark.lab


def test_replicas_are_swapped_one_by_one_and_no_request_fails(site: Site) -> None:
    site.service("one", slow=0.02)
    site.service("two", slow=0.02)
    site.replicated(2)
    site.run("deploy", "ct200", "--service", f"{site.slot}-front")
    site.run("deploy", "ct200", "--service", "one")
    load = Load(site.address(), site.port).start()
    load.more(60)
    said = site.run("swap", "one", "two", "--host", "ct200")
    assert said.index(f"slot {site.slot} is two") < said.index(f"slot {site.slot}-2 is locked")
    assert "requests fail until" not in said
    load.more(100)
    site.service("bad", tokens=1, more={"replicas": [f"{site.slot}-2"]})
    site.run("swap", "two", "bad", expect=6)
    load.more(100)
    assert "requests fail" not in site.run("stop", "ct200", "--slot", f"{site.slot}-2")
    assert site.status(slot=f"{site.slot}-2")["health"] == "empty"
    load.more(100)
    site.run("deploy", "ct200", "--service", f"two.{site.slot}-2")
    load.more(50)
    load.stop()
    assert load.failed == []
    assert load.refused == 0
    assert load.answers["one"] > 50
    assert load.answers["two"] > 50
    assert site.status(slot=f"{site.slot}-2")["service"] == f"two.{site.slot}-2"
    assert site.status()["service"] == "two"
    assert "nothing to do" in site.run("deploy", "ct200", "--service", "two")
    assert "two is stopped" in site.run("stop", "ct200", "--service", "two")
    assert [site.active(f"{site.slot}-two{more}.service") for more in ("", f"-{site.slot}-2")] == [
        "inactive"
    ] * 2
