"""Remedies beneath a service's own words: which go in, which are offered, which stand against what it says itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fleetctl.doctor.execstart import unit_arguments
from fleetctl.doctor.finding import Remedy
from fleetctl.doctor.remedies import Applied, added, package_line, prescribe
from fleetctl.doctor.rule import Context, Found, Rule
from fleetctl.inventory.models import Service
from tests.doctor.builders import bom, facts, service

BACKEND = Remedy("triton", arguments={"attention-backend": "triton"})
GRAMMAR = Remedy("none", arguments={"grammar-backend": "none"}, packages=("xgrammar==0.1.32",))
PEERS = Remedy("no P2P", variables={"NCCL_P2P_DISABLE": "1"})


def always(id: str, remedy: Remedy, *, after: str = "", severity: Any = "error") -> Rule:
    """A rule that finds its fault as long as its remedy is not there; ``after``: not before that argument is."""

    def check(context: Context) -> Iterator[Found]:
        view = context.service
        assert view is not None
        if after and after not in view.arguments:
            return
        if any(view.arguments.get(name) != value for name, value in remedy.arguments.items()) or any(
            view.variables.get(name) != value for name, value in remedy.variables.items()
        ):
            yield Found(f"{id} is wrong")

    return Rule(id, severity, "", "", remedy, check)


def rules(*made: Rule) -> dict[str, Rule]:
    return {one.id: one for one in made}


def own(**changes: Any) -> Service:
    given = {"slot": "s", "engine": "sglang", "mode": "linear", "environment": "e", "model": "m", **changes}
    return Service.model_validate(given)


def context(given: Service) -> Context:
    view = service({"arguments": {"attention-backend": None, **given.args}, "variables": dict(given.env)})
    return Context(facts(), bom(), view)


def test_all_remedies_of_errors_go_in_where_all_are_accepted_those_of_warnings_never() -> None:
    made = rules(
        always("arch-x", BACKEND), always("gpu-x", PEERS), always("cfg-x", GRAMMAR, severity="warning")
    )
    found = prescribe(context(own()), own(), None, made)
    assert {one.words for one in found.applied} == {
        "arch-x: --attention-backend triton",
        "gpu-x: NCCL_P2P_DISABLE=1",
    }
    assert found.service.args == {"attention-backend": "triton"}
    assert found.service.env == {"NCCL_P2P_DISABLE": "1"}
    assert not found.errors
    assert [one.rule for one in found.findings] == ["cfg-x"]


def test_without_consent_they_are_offered_and_what_is_in_force_stays() -> None:
    made = rules(always("arch-x", BACKEND), always("pkg-x", GRAMMAR))
    kept = [Applied("pkg-x", {"grammar-backend": "none"})]
    found = prescribe(context(own()), own(), kept, made)
    assert found.applied == tuple(kept)
    assert [one.rule for one in found.offered] == ["arch-x"]
    assert [one.rule for one in found.errors] == ["arch-x"]


def test_a_remedy_that_uncovers_another_fault_brings_the_second_remedy_too() -> None:
    made = rules(always("arch-x", BACKEND), always("pkg-x", GRAMMAR, after="attention-backend"))
    found = prescribe(context(own()), own(), None, made)
    assert [one.rule for one in found.applied] == ["arch-x", "pkg-x"]


def test_the_services_own_words_stand_and_the_contradiction_is_said() -> None:
    given = own(args={"attention-backend": "flashinfer"})
    found = prescribe(context(given), given, None, rules(always("arch-x", BACKEND)))
    assert found.service.args == {"attention-backend": "flashinfer"}
    assert [one.rule for one in found.errors] == ["arch-x"]
    assert found.notes == (
        "arch-x: the service's own --attention-backend flashinfer stands against --attention-backend triton",
    )


def test_rules_of_cards_wait_for_an_environment_that_uses_cuda() -> None:
    made = rules(always("gpu-x", PEERS), always("cfg-x", GRAMMAR))
    on_cpu = Context(facts(), bom({"abi": {"cuda": None}}), context(own()).service)
    assert [one.rule for one in prescribe(on_cpu, own(), None, made).applied] == ["cfg-x"]


def test_faults_of_the_host_are_told_and_forbid_nothing() -> None:
    found = prescribe(
        context(own()), own(), None, rules(always("sys-disk-full", Remedy("", commands=("df",))))
    )
    assert [one.severity for one in found.findings] == []
    lasting = Rule(
        "sys-disk-full", "error", "", "", Remedy("free some"), lambda known: iter([Found("/ is full")])
    )
    found = prescribe(context(own()), own(), None, rules(lasting))
    assert [one.severity for one in found.findings] == ["warning"]


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        ({"a": True, "b": 2}, {"C": "d"}, "--a, --b 2, C=d"),
        ({"a": False}, {}, "no --a"),
        ({"a": ["x", "y"]}, {}, "--a x y"),
    ],
)
def test_words(arguments: dict[str, Any], variables: dict[str, str], words: str) -> None:
    assert added(arguments, variables) == words


def test_a_package_is_said_with_the_line_that_brings_it() -> None:
    assert "envs/serving.yaml" in package_line(["xgrammar==0.1.32"], "serving")
    assert "env overlay" in package_line(["xgrammar==0.1.32"], None)
    assert package_line([], "serving") == ""


def test_arguments_are_read_from_a_unit_that_fleetctl_does_not_make() -> None:
    line = "ExecStart=/v/bin/python -m sglang.launch_server --tp 2 \\\n  --page-size=16 --disable-radix-cache"
    given = unit_arguments(f"[Service]\n{line}\n", "sglang")
    assert given == {"tp-size": 2, "page-size": 16, "disable-radix-cache": True}
    assert unit_arguments('ExecStart=/bin/x "', "sglang") == {}
    assert unit_arguments("", "sglang") == {}
