"""Doctor never crashes: any JSON in place of any part of the facts, the BOM or a service ends in findings."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fleetctl.doctor.rules  # noqa: F401  registers the rules
from fleetctl.cli.doctor_screen import lines
from fleetctl.doctor.diagnosis import Diagnosis, diagnose, document
from fleetctl.doctor.markdown import markdown
from fleetctl.doctor.rule import Context
from fleetctl.doctor.subjects import contexts, subjects_of_facts
from tests.doctor import builders

Json = Any
texts = st.one_of(
    st.text(max_size=8), st.sampled_from(["12.0", "nan", "0x", "[N/A]", "-1", "1.2.3", "\x1b[31m", "\ud800"])
)
odd = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


def places(value: Json, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, by its keys and indexes; of long lists the first three."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, one in value.items():
            found += places(one, (*path, key))
    elif isinstance(value, list):
        for index, one in enumerate(value[:3]):
            found += places(one, (*path, index))
    return found


def put(value: Json, path: tuple[Any, ...], new: Json) -> None:
    """Replace what is at a place; where another change took that away, nothing happens."""
    with contextlib.suppress(KeyError, IndexError, TypeError):
        for key in path[:-1]:
            value = value[key]
        if isinstance(value, dict | list):
            value[path[-1]] = new


FACTS = builders.facts({"apps": [{"pid": 1, "name": "python", "used_mib": 4, "gpu": 0, "unit": None}]})
FACTS["kernel_log"]["xid"] = [{"time": "", "bus_id": "0000:81:00", "code": 79, "line": "Xid"}]
FACTS["slots"] = {
    "native": {"state": None, "locked_by": None, "health": {"status": 200}, "environment_there": True}
}
FACTS["units"] = {"sglang-dflash.service": {"ActiveState": "active", "NRestarts": 0, "text": "[Service]\n"}}
FACTS["environments"] = {builders.ENVIRONMENT: builders.bom()}
PLACES = places(FACTS)


def check(found: Diagnosis) -> None:
    """Every form of the output can be written."""
    json.dumps(document({"ct200": found}))
    assert all(isinstance(text, str) for _, parts in lines(found) for text, _ in parts)
    assert markdown([found])


@pytest.mark.parametrize("with_service", [False, True])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(PLACES), odd), min_size=1, max_size=6))
def test_odd_facts_end_in_findings(with_service: bool, changes: list[tuple[tuple[Any, ...], Json]]) -> None:
    facts = json.loads(json.dumps(FACTS))
    for path, new in changes:
        put(facts, path, new)
    known = contexts(facts, subjects_of_facts(facts))
    if with_service:
        known = [(label, Context(facts, one.bom, builders.service())) for label, one in known]
    check(diagnose("ct200", known))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(FACTS)), odd))
def test_facts_that_are_nothing_like_facts(facts: dict[str, Json]) -> None:
    check(diagnose("ct200", contexts(facts, subjects_of_facts(facts))))
