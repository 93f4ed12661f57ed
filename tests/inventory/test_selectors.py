"""Which hosts a selector means, over hosts that differ in all that can be asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import load_fleet
from fleetctl.inventory.models import Host
from fleetctl.inventory.select import require_apart, select_services
from fleetctl.inventory.selectors import select

GROUPS = {
    "blackwell": ("arch=sm120",),
    "big": ("gpus>=8", "box1"),
    "both": ("@blackwell,@big",),
    "none": ("x*",),
}


def host(name: str, gpus: int, arch: str, *services: str, address: str | None = None) -> Host:
    return Host.model_validate(
        {
            "host": name,
            "ssh": {"hostname": address} if address else {},
            "gpus": {"count": gpus, "arch": arch, "memory_mib": gpus * 1000 or None},
            "slots": {"native": {"gpus": [], "port": 30001}},
            "environments": {"ml": {"path": "/root/ml"}},
            "models": {"m": {"path": "/m"}},
            "services": {
                one: {
                    "slot": "native",
                    "engine": "sglang",
                    "mode": "autoregressive",
                    "environment": "ml",
                    "model": "m",
                }
                for one in services
            },
        }
    )


HOSTS = {
    one.name: one
    for one in (
        host("ct129", 8, "sm120", "dflash"),
        host("ct200", 8, "sm120", "dflash", "ddtree"),
        host("box1", 1, "sm90", "dflash"),
        host("box2", 4, "sm90"),
    )
}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("ct200", "ct200"),
        ("ct200 ct129 ct200", "ct200 ct129"),
        ("ct*", "ct129 ct200"),
        ("@all", "ct129 ct200 box1 box2"),
        ("@blackwell", "ct129 ct200"),
        ("@big", "ct129 ct200 box1"),
        ("@both", "ct129 ct200"),
        ("gpus>=4", "ct129 ct200 box2"),
        ("gpus>4 gpus<2", "ct129 ct200 box1"),
        ("gpus=4", "box2"),
        ("gpus!=8", "box1 box2"),
        ("memory_mib>=4000,arch!=sm120", "box2"),
        ("arch=sm9?", "box1 box2"),
        ("arch==sm120,gpus>=4", "ct129 ct200"),
        ("service=ddtree", "ct200"),
        ("service!=dflash", "box2"),
        ("mode=auto*", "ct129 ct200 box1"),
        ("*,!ct129", "ct200 box1 box2"),
        ("@all !ct129 !box*", "ct200"),
        ("!@blackwell", "box1 box2"),
        ("!box1,!box2", "ct129 ct200"),
        ("!!ct200", "ct200"),
        ("name=box?", "box1 box2"),
    ],
)
def test_what_is_meant(words: str, names: str) -> None:
    assert [one.name for one in select(words.split(), HOSTS, GROUPS)] == names.split()


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        ("ct2OO", "no host ct2OO", "did you mean ct200?"),
        ("@blackwel", "no group blackwel", "did you mean blackwell?"),
        ("blackwell", "no host blackwell, but a group", "write @blackwell"),
        ("gpus", "no host gpus", "the shell's own: 'gpus>=4'"),
        ("gpus>=four", "'four' is no whole number", "gpus>=4"),
        ("gpuz>=4", "hosts have no gpuz", "did you mean gpu"),
        ("arch>=sm90", "arch is a text", "arch=sm90"),
        ("ct200,ct129", "no host is ct200,ct129", "`ct200 ct129` are two hosts"),
        ("@none", "no host is @none", "hosts: box1, box2, ct129, ct200"),
        ("*x", "no host is *x", "hosts: box1, box2, ct129, ct200"),
        ("arch=sm8*", "no host has arch=sm8*", "the hosts' arch: sm120, sm90"),
        (
            "memory_mib>9000",
            "no host has memory_mib>9000",
            "memory_mib: 1000 (box1), 4000 (box2), 8000 (ct129",
        ),
        ("ct200,", "an empty selector", "comma"),
        ("", "an empty selector", "comma"),
        ("!", "an empty selector", "comma"),
        ("gpus>=99", "no host has gpus>=99", "the hosts' gpus: 1 (box1), 4 (box2), 8 (ct129, ct200)"),
    ],
)
def test_what_is_not_meant(words: str, what: str, fix: str) -> None:
    with pytest.raises(FleetError) as caught:
        select([words], HOSTS, GROUPS)
    assert what in caught.value.what and fix in caught.value.fix
    assert caught.value.exit == Exit.INPUT


@given(st.lists(st.text(alphabet="ct129box!@*,?[]gpus<>=.-all \t√", max_size=12), max_size=4))
def test_any_words_are_an_answer_or_an_operators_error(words: list[str]) -> None:
    try:
        found = select(words, HOSTS, GROUPS)
    except FleetError as error:
        assert error.exit == Exit.INPUT and error.what
    else:
        assert found and len({one.name for one in found}) == len(found)


@given(st.sets(st.sampled_from(sorted(HOSTS))), st.sampled_from(["@blackwell", "gpus>=4", "box*"]))
def test_a_selector_and_its_negation_are_all_hosts(named: set[str], term: str) -> None:
    both = {one.name for one in select([term, "!!" + term], HOSTS, GROUPS)}
    rest = {one.name for one in select([f"!{term}"], HOSTS, GROUPS)}
    assert both | rest == set(HOSTS) and not both & rest
    if named and named != set(HOSTS):
        left = select([f"!{name}" for name in named], HOSTS, GROUPS)
        assert {one.name for one in left} == set(HOSTS) - named


def test_groups_of_an_inventory(tmp_path: Path) -> None:
    good = (Path(__file__).parent / "cases/good/alpha.yaml").read_text()
    (tmp_path / "alpha.yaml").write_text(good)
    (tmp_path / "groups.yaml").write_text("# ours\nfirst: [alpha]\nfast: 'gpus>=1'\nfuture: ['z*']\n")
    fleet = load_fleet(tmp_path, ".")
    assert fleet.groups == {"first": ("alpha",), "fast": ("gpus>=1",), "future": ("z*",)}
    assert list(fleet.hosts) == ["alpha"]
    (tmp_path / "groups.yaml").write_text(
        "first: [alhpa]\nround: ['@and']\nand: ['@round']\nall: [alpha]\nodd: {alpha: 1}\n-x: [alpha]\n"
    )
    with pytest.raises(FleetError) as caught:
        load_fleet(tmp_path, ".")
    said = "\n".join(caught.value.evidence)
    assert "groups.yaml:1: the group first: no host alhpa; did you mean alpha?" in said
    assert "groups.yaml:2: the group round: the group round is within itself: round > and > round" in said
    assert "groups.yaml:4: the group all is every host already" in said
    assert "groups.yaml:5: the group odd is no list" in said
    assert "groups.yaml:6: '-x' cannot be a group's name" in said


def test_one_machine_under_two_names_is_refused() -> None:
    with pytest.raises(FleetError, match=r"a and b are one machine, 10.0.0.1:22"):
        require_apart([host("a", 1, "", address="10.0.0.1"), host("b", 1, "", address="10.0.0.1")])
    require_apart([host("a", 1, "", address="10.0.0.1"), host("b", 1, "", address="10.0.0.2")])


def test_hosts_without_the_service_are_named_all_at_once() -> None:
    with pytest.raises(FleetError) as caught:
        select_services(list(HOSTS.values()), service="ddtree")
    assert caught.value.what.startswith("3 of 4 hosts do not have")
    assert caught.value.fix == "narrow the selector, such as '@all,service=ddtree'"
    assert [line.split(":")[0] for line in caught.value.evidence] == ["ct129", "box1", "box2"]
