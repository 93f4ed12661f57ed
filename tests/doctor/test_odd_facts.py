"""Rules of libraries, GPU code, packages and the driver on facts and BOMs that are not as they should be."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetctl.doctor.rules  # noqa: F401  registers the rules
from fleetctl.doctor.rule import RULES, Context, examine
from tests.doctor import builders

OURS = {id: rule for id, rule in RULES.items() if rule.family in ("ABI", "ARCH", "PKG", "DRV")}
ODD: list[Any] = [None, "", "[N/A]", "x", [], {}, 0, -1, 3.5, True, ["x", None], {"x": None}]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything within a document."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value[:3])
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


FACTS = builders.facts()
BOMS = [builders.bom(), builders.bom({"from": "training"})]
FACT_PLACES = sorted(set(places(FACTS)), key=str)
BOM_PLACES = sorted({place for bom in BOMS for place in places(bom)}, key=str)


def put(document: Any, place: tuple[Any, ...], value: Any) -> None:
    """Replace what is at a place, where there is one."""
    for key in place[:-1]:
        document = document[key] if isinstance(document, (dict, list)) and _has(document, key) else None
    if isinstance(document, (dict, list)) and _has(document, place[-1]):
        document[place[-1]] = value


def _has(document: Any, key: Any) -> bool:
    return key in document if isinstance(document, dict) else isinstance(key, int) and key < len(document)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(FACT_PLACES), st.sampled_from(ODD)), max_size=4),
    st.lists(st.tuples(st.sampled_from(BOM_PLACES), st.sampled_from(ODD)), max_size=4),
    st.sampled_from([0, 1]),
    st.booleans(),
)
def test_no_rule_fails(
    in_facts: list[tuple[tuple[Any, ...], Any]],
    in_bom: list[tuple[tuple[Any, ...], Any]],
    which: int,
    serving: bool,
) -> None:
    facts, bom = copy.deepcopy(FACTS), copy.deepcopy(BOMS[which])
    for place, value in in_facts:
        put(facts, place, value)
    for place, value in in_bom:
        put(bom, place, value)
    service = builders.service() if serving else None
    assert examine(Context(facts, bom, service), OURS).not_made == {}


@pytest.mark.parametrize("facts", [{}, {"gpus": None}, {"gpus": {"gpus": [None, "x"]}}, {"errors": ["x"]}])
@pytest.mark.parametrize(
    "bom", [None, {}, {"error": "it is gone"}, {"distributions": [{}], "extensions": [{}]}]
)
def test_little_is_known(facts: dict[str, Any], bom: dict[str, Any] | None) -> None:
    assert examine(Context(facts, bom), OURS).not_made == {}
    assert examine(Context(facts, bom, builders.service()), OURS).not_made == {}
