"""Both lab hosts with an agent session each, and the scenarios of this folder run side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Lab
from tests.rollout_host.host import Host
from tests.rollout_host.scenarios import Runner


@pytest.fixture(scope="session")
def hosts(lab: Lab) -> Iterator[list[Host]]:
    """An agent session on each lab host."""
    found = [Host(name, lab.address(name), lab.identity, lab.known_hosts) for name in sorted(lab.hosts)]
    yield found
    for host in found:
        host.clean()
        host.close()


@pytest.fixture(scope="session")
def runner(hosts: list[Host], request: pytest.FixtureRequest) -> Iterator[Runner]:
    """The scenarios of the tests that were selected, already under way."""
    chosen = [
        item.callspec.params["name"]
        for item in request.session.items
        if hasattr(item, "callspec") and "name" in item.callspec.params and "rollout_host" in item.nodeid
    ]
    started = Runner(hosts, chosen)
    yield started
    started.close()
