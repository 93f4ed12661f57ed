"""Which host, slot and service is meant; the fleet is the lab's, with changes where a case needs them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet, load_fleet
from fleetctl.inventory.models import Host
from fleetctl.inventory.select import select_host, select_service, select_slot, select_swap

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return load_fleet(REPOSITORY, "inventories/lab")


@pytest.fixture(scope="module")
def host(fleet: Fleet) -> Host:
    return fleet.hosts["ct200"]


def alone(fleet: Fleet, name: str) -> Fleet:
    """The fleet with one host."""
    return replace(fleet, hosts={name: fleet.hosts[name]})


def test_a_named_host_is_taken(fleet: Fleet) -> None:
    assert select_host(fleet, "ct129").name == "ct129"


def test_the_only_host_needs_no_name(fleet: Fleet) -> None:
    assert select_host(alone(fleet, "ct129"), None).name == "ct129"


@pytest.mark.parametrize(
    ("asked", "host"),
    [
        ({"mode": "tree"}, "ct200"),
        ({"service": "shadow"}, "ct200"),
        ({"slot": "wrapper"}, "ct200"),
    ],
)
def test_the_only_host_that_fits_needs_no_name(fleet: Fleet, asked: dict[str, str], host: str) -> None:
    assert select_host(fleet, None, **asked).name == host


@pytest.mark.parametrize(
    ("name", "asked", "what", "fix"),
    [
        ("ct20", {}, "no host ct20", "did you mean ct200? (hosts: ct129, ct200)"),
        ("@all", {}, "one host is taken here, by its name; @all is a selector", "hosts: ct129, ct200"),
        ("gpus>=4", {}, "one host is taken here, by its name; gpus>=4 is a selector", "hosts: ct129, ct200"),
        (None, {}, "which host? 2 fit: ct129, ct200", "name one of them"),
        (None, {"mode": "linear"}, "which host? 2 fit: ct129, ct200", "name one of them"),
        (None, {"service": "dtree"}, "no host has a service dtree", "did you mean ddtree?"),
        (None, {"slot": "wraper"}, "no host has a slot wraper", "did you mean wrapper?"),
        (None, {"mode": "trees"}, "no mode trees", "did you mean tree?"),
        (None, {"mode": "ddtree"}, "ddtree is no mode but a service", "--service ddtree"),
        (
            None,
            {"mode": "shadow", "slot": "wrapper"},
            "no host has a service with the mode shadow and the slot wrapper",
            "fleetctl hosts",
        ),
    ],
)
def test_a_host_that_is_not_clear_is_an_error_with_the_candidates(
    fleet: Fleet, name: str | None, asked: dict[str, str], what: str, fix: str
) -> None:
    with pytest.raises(FleetError) as caught:
        select_host(fleet, name, **asked)
    assert caught.value.what == what
    assert fix in caught.value.fix
    assert caught.value.exit == Exit.INPUT


def test_a_group_is_no_host(fleet: Fleet) -> None:
    with pytest.raises(FleetError, match="one host is taken here, by its name; big is a group"):
        select_host(replace(fleet, groups={"big": ("ct*",)}), "big")


@pytest.mark.parametrize(
    ("asked", "service"),
    [
        ({"service": "wrapper"}, "wrapper"),
        ({"mode": "linear"}, "dflash"),
        ({"mode": "tree"}, "ddtree"),
        ({"mode": "tree", "slot": "wrapper"}, "wrapper"),
        ({"slot": "wrapper"}, "wrapper"),
        ({"service": "dflash", "mode": "linear", "slot": "native"}, "dflash"),
    ],
)
def test_one_service_fits(host: Host, asked: dict[str, str], service: str) -> None:
    assert select_service(host, **asked) == service


@pytest.mark.parametrize(
    ("asked", "what", "fix"),
    [
        ({"service": "ddtre"}, "no service ddtre on ct200", "did you mean ddtree?"),
        ({"slot": "natve"}, "no slot natve on ct200", "did you mean native?"),
        ({"mode": "treee"}, "no mode treee", "did you mean tree?"),
        (
            {},
            "which service of ct200? 4 fit: autoregressive (autoregressive, slot native), dflash",
            "--service",
        ),
        (
            {"mode": "linear", "slot": "wrapper"},
            "no service in slot wrapper of ct200 has the mode linear",
            "--service",
        ),
        (
            {"service": "dflash", "mode": "tree"},
            "the service dflash of ct200 has the mode linear and the slot native, not what was asked for",
            "--service dflash alone",
        ),
    ],
)
def test_a_service_that_is_not_clear_is_an_error(
    host: Host, asked: dict[str, str], what: str, fix: str
) -> None:
    with pytest.raises(FleetError) as caught:
        select_service(host, **asked)
    assert caught.value.what.startswith(what)
    assert fix in caught.value.fix
    assert caught.value.exit == Exit.INPUT


def test_a_mode_that_no_service_has_is_answered_with_those_there_are(fleet: Fleet) -> None:
    with pytest.raises(FleetError) as caught:
        select_service(fleet.hosts["ct129"], mode="tree")
    assert caught.value.what == (
        "no service on ct129 has the mode tree; "
        "it has autoregressive (autoregressive, slot native), dflash (linear, slot native)"
    )


def test_without_a_default_slot_a_mode_in_two_slots_is_ambiguous(host: Host) -> None:
    with pytest.raises(FleetError, match=r"which service of ct200\? 2 fit: ddtree .*, wrapper"):
        select_service(host.model_copy(update={"default_slot": None}), mode="tree")


def test_the_slot_is_named_the_default_or_the_only_one(fleet: Fleet, host: Host) -> None:
    assert select_slot(host, "wrapper") == "wrapper"
    assert select_slot(host, None) == "native"
    without = {"default_slot": None}
    assert select_slot(fleet.hosts["ct129"].model_copy(update=without), None) == "native"
    with pytest.raises(FleetError, match=r"which slot of ct200\? It has wrapper, native"):
        select_slot(host.model_copy(update=without), None)


def test_a_swap_finds_the_only_host_that_has_both(fleet: Fleet) -> None:
    assert select_swap(fleet, "dflash", "ddtree").name == "ct200"
    assert select_swap(fleet, "autoregressive", "dflash", "ct129").name == "ct129"


@pytest.mark.parametrize(
    ("old", "new", "on", "what", "fix"),
    [
        (
            "autoregressive",
            "dflash",
            None,
            "which host? ct129, ct200 have both autoregressive and dflash",
            "--host",
        ),
        ("dflash", "ddtre", None, "no host has a service ddtre", "did you mean ddtree?"),
        ("dflash", "ddtree", "ct129", "no service ddtree on ct129", "services: autoregressive, dflash"),
        ("dflash", "ddtree", "ct130", "no host ct130", "hosts: ct129, ct200"),
        ("dflash", "dflash", None, "dflash cannot be swapped for itself", "fleetctl deploy"),
        (
            "ddtree",
            "wrapper",
            None,
            "ddtree and wrapper share no slot on ct200: ddtree stands in native, wrapper in wrapper",
            "fleetctl deploy ct200 --service wrapper",
        ),
    ],
)
def test_a_swap_that_cannot_be_is_an_error(
    fleet: Fleet, old: str, new: str, on: str | None, what: str, fix: str
) -> None:
    with pytest.raises(FleetError) as caught:
        select_swap(fleet, old, new, on)
    assert caught.value.what == what
    assert fix in caught.value.fix
    assert caught.value.exit == Exit.INPUT


def test_services_on_different_hosts_only_cannot_be_swapped(fleet: Fleet, host: Host) -> None:
    lone = host.model_copy(update={"services": {"ddtree": host.services["ddtree"]}})
    apart = replace(fleet, hosts={"ct129": fleet.hosts["ct129"], "ct200": lone})
    with pytest.raises(FleetError) as caught:
        select_swap(apart, "dflash", "ddtree")
    assert caught.value.what == "no host has both dflash and ddtree"
    assert caught.value.fix == "dflash is on ct129; ddtree is on ct200"
