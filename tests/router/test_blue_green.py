"""Blue-green swaps under load, on a real HAProxy: not one request fails, whatever becomes of the new service."""

from __future__ import annotations

import pytest

from tests.router.conftest import Site
from tests.router.load import Load

pytestmark = pytest.mark.lab


def serving(site: Site) -> Load:
    """One and two behind a router; one serves, under load."""
    site.routed()
    site.service("one")
    site.service("two")
    site.run("deploy", "ct200", "--service", "one")
    site.run("deploy", "ct200", "--service", f"{site.slot}-front")
    return Load(site.address(), site.port).start()


def test_no_request_fails_when_the_service_is_swapped_again_and_again(site: Site) -> None:
    load = serving(site)
    site.run("swap", "one", "two", "--blue-green")
    load.more(200)
    assert site.status()["service"] == "two"
    assert site.active(f"{site.slot}-one.service") == "inactive"
    assert site.active(f"{site.slot}-two-spare.service") == "active"
    site.run("rollback", "ct200", "--slot", site.slot)
    load.more(200)
    site.run("swap", "one", "two", "--blue-green")
    load.more(1000)
    load.stop()
    assert load.failed == []
    assert load.refused == 0
    assert load.answers["one"] > 500
    assert load.answers["two"] > 500
