"""What the tests of faults change of this process, put back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleetctl.transport import agent


@pytest.fixture(autouse=True)
def plain_agent() -> Iterator[None]:
    """Other tests send the agent as it is deployed."""
    plain = agent.payload
    yield
    agent.payload = plain
