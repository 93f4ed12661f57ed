"""Routers, spare places, replicas and nodes: any data is checked without a crash, and sides are each other's."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.inventory.check import check_host
from fleetctl.inventory.loader import load_fleet
from fleetctl.services.sides import as_recorded, is_spare, on_spare, other_side, routing
from fleetctl.services.unit import render_unit

CASES = Path(__file__).parent / "cases"
REPOSITORY = Path(__file__).parents[2]
LEAF = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["a", "b", "a.b"])
KEYS = [
    "slots",
    "spare",
    "port",
    "gpus",
    "routers",
    "services",
    "slot",
    "replicas",
    "nodes",
    "unit",
    "host",
    "a",
    "b",
]
DATA = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            name: st.dictionaries(st.sampled_from(["a", "b"]), DATA, max_size=2) | DATA
            for name in ("slots", "routers", "services", "host", "gpus")
        }
    )
)
def test_any_data_is_checked_without_a_crash(data: dict[str, Any]) -> None:
    for problem in check_host(data):
        assert problem.what and problem.key


def test_each_side_has_the_other_ones_port_gpus_and_unit_nowhere() -> None:
    fleet = load_fleet(CASES / "routers-good", ".")
    own = fleet.hosts["alpha"]
    spare = on_spare(own, "native")
    assert (own.slots["native"].port, spare.slots["native"].port) == (30001, 30002)
    assert (own.slots["native"].gpus, spare.slots["native"].gpus) == ([0], [1])
    assert spare.services["plain"].unit == "fleetctl-plain-spare.service"
    assert spare.services["many"].unit == own.services["many"].unit, "another slot's service"
    assert other_side(own, own, "native").slots == spare.slots
    assert other_side(own, spare, "native") is own
    assert is_spare(as_recorded(own, "native", {"port": 30002}), "native")
    assert not is_spare(as_recorded(own, "native", {"port": 1}), "native")
    assert not is_spare(as_recorded(own, "native", None), "native")
    told = routing(spare, own, "native")
    assert told is not None
    assert told["other_port"] == 30001
    assert (told["new"], told["old"], told["port"], told["alone"]) == ("native-spare", "native", 30000, True)


def test_a_routers_unit_has_a_server_for_each_place_whichever_is_in_use() -> None:
    fleet = replace(load_fleet(CASES / "routers-good", "."), root=REPOSITORY)
    own = fleet.hosts["alpha"]
    units = {name: render_unit(fleet, own, name, "").text for name in ("front", "fan")}
    assert render_unit(fleet, on_spare(own, "native"), "front", "").text == units["front"]
    assert "server native 127.0.0.1:30001 check" in units["front"]
    assert "server native-spare 127.0.0.1:30002 check" in units["front"]
    assert "bind :30000" in units["front"]
    assert [line.split()[1] for line in units["fan"].splitlines() if "=server " in line] == [
        "first",
        "second",
    ]
    assert "balance roundrobin" in units["fan"]


def test_haproxy_takes_the_configuration_in_a_routers_unit() -> None:
    fleet = replace(load_fleet(CASES / "routers-good", "."), root=REPOSITORY)
    for name in ("front", "fan"):
        text = render_unit(fleet, fleet.hosts["alpha"], name, "").text
        lines = [
            line.partition("=")[2] for line in text.splitlines() if line.startswith("StandardInputText=")
        ]
        checked = subprocess.run(
            ["/usr/sbin/haproxy", "-c", "-f", "/dev/stdin"],
            input="\n".join(lines) + "\n",
            text=True,
            capture_output=True,
            timeout=240,
        )
        assert checked.returncode == 0, checked.stderr
