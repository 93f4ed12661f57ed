"""The shipped environment, for real: torch and all, from the indexes to a host that has no internet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetctl.environment.ship import ensure_environment
from fleetctl.environment.spec import load_spec
from fleetctl.inventory.loader import load_fleet
from fleetctl.transport.agent import open_agent
from tests.conftest import Lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[2]


def test_standalone_cpu_is_built_and_found_again(lab: Lab) -> None:
    host = load_fleet(REPOSITORY, "inventories/lab").hosts["ct129"]
    spec = load_spec(REPOSITORY, "standalone-cpu")
    events: list[dict[str, Any]] = []
    with open_agent(host) as agent:
        made = ensure_environment(agent, host, spec, REPOSITORY, events.append)
    assert lab.run(
        host.name, f"{made.path}/bin/python -c 'import torch; print(torch.__version__)'"
    ).stdout == ("2.13.0+cpu\n")
    with open_agent(host) as agent:
        facts = agent.call("facts")
        again = ensure_environment(agent, host, spec, REPOSITORY, events.append, facts)
    assert (again.path, again.built) == (made.path, False)
