"""Both lab hosts with an agent session each, and the scenarios of this folder run side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Lab
from tests.rollout_host.host import Host


@pytest.fixture(scope="session")
def sites(lab: Lab) -> Iterator[list[Host]]:
    """An agent session on each lab host."""
    hosts = [Host(name, lab.address(name), lab.identity, lab.known_hosts) for name in sorted(lab.hosts)]
    yield hosts
    for host in hosts:
        host.close()
