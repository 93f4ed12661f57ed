"""Environment and models need room together where they share a file system."""

from __future__ import annotations

import pytest

from fleetctl.environment.room import Want, require_room, shortages
from fleetctl.errors import Exit, FleetError
from tests.rollout.test_status import HOST

ENVIRONMENT = Want("/envs/a", 600, 1000, 1)
MODEL = Want("/models/m", 500, 1000, 1)


def test_each_fits_and_both_do_not() -> None:
    assert shortages([ENVIRONMENT]) == shortages([MODEL]) == shortages([]) == []
    (found,) = shortages([ENVIRONMENT, MODEL])
    assert (found["severity"], found["where"]) == ("error", "/envs/a, /models/m")
    assert "1,100 bytes needed, 1,000 free" in found["what"]
    with pytest.raises(FleetError, match="too full") as caught:
        require_room(HOST, [ENVIRONMENT, MODEL])
    assert caught.value.exit == Exit.PREFLIGHT


def test_two_file_systems_are_two_rooms() -> None:
    assert shortages([ENVIRONMENT, Want("/data/m", 500, 1000, 2)]) == []
    assert shortages([Want("/data/m", 0, 0, 2)]) == []
