"""The generated page is current, and each rule says all that an operator may ask of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.doctor.document import document, examples
from fleetctl.doctor.rule import RULES
from fleetctl.doctor.signatures import SIGNATURES

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"


def test_the_page_is_what_the_rules_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), "make docs"


def test_the_page_has_every_rule_and_every_fatal_signature() -> None:
    page = document()
    for rule in RULES.values():
        assert f"### {rule.id}\n" in page
        assert rule.source in page
    for signature in SIGNATURES:
        assert signature.verdict == "harmless" or f"| {signature.id} |" in page


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_has_a_reason_a_source_and_an_example(rule: str) -> None:
    assert len(RULES[rule].reason.split()) > 5
    assert RULES[rule].source
    first = examples(rule)[0]
    assert "expect: no" not in first.read_text(), "a fault is shown, not a healthy twin"
