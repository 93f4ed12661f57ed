"""Every case of ``tests/doctor/cases/<rule>/<name>.yaml``: a fault that doctor must name, or a healthy twin.

    source: sglang#29317                 where the fault was seen
    facts: {gpus: ["12.0"]}              laid over a healthy host's (tests/doctor/builders.py); may be {}
    bom: {distributions: {torch: …}}     laid over the reference environment; left out: none is examined
    service: {arguments: {…}}            laid over a healthy SGLang service; left out: none is examined
    log: |                               diagnosed besides, with the facts where there are any
      ImportError: …
    expect: none                         the folder's rule says nothing (and no rule: ``nothing``)
    expect:
      rule: abi-torch-symbol             left out: the folder's
      severity: error                    left out: not compared
      what: text or [texts]              each in the finding's ``what``; so with ``where``, ``evidence`` (lines)
      remedy:
        text: text or [texts]
        arguments: {attention-backend: triton}    all of these, and no others; so with ``variables``
        packages: [xgrammar==0.1.32]     each among them; so with ``commands`` (a part of one)
      not: text or [texts]               in no part of the finding (may hold ``cause``: never said by the remedy)
      first: true                        no worse finding stands before it; of a log it is the very first

A log alone is only diagnosed; with ``facts``, ``bom`` or ``service`` alone the rules are asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import fleetctl.doctor.rules  # noqa: F401  registers the rules
from fleetctl.doctor.finding import SEVERITIES, Finding
from fleetctl.doctor.rule import RULES, Context, examine
from fleetctl.doctor.signatures import SIGNATURES
from tests.doctor.builders import context
from tests.doctor.diagnose import diagnose

FOLDER = Path(__file__).parent / "cases"
CASES = sorted(FOLDER.glob("*/*.yaml"))
PARTS = {"source", "facts", "bom", "service", "log", "expect"}
WANTED = {"rule", "severity", "what", "where", "evidence", "remedy", "not", "first"}
SILENT = ("none", "nothing")


@cache
def load(path: Path) -> dict[str, Any]:
    """One case."""
    case: dict[str, Any] = yaml.safe_load(path.read_text())
    return case


def name(path: Path) -> str:
    """``rule/name``."""
    return f"{path.parent.name}/{path.stem}"


def known_rules() -> set[str]:
    """Ids of rules and of signatures."""
    return {*RULES, *(signature.id for signature in SIGNATURES)}


@pytest.mark.parametrize("path", CASES, ids=name)
def test_case(path: Path) -> None:
    case, rule = load(path), path.parent.name
    expect = case["expect"]
    assert rule in known_rules(), f"{path.parent} is named after no rule or signature"
    findings = said(case)
    if expect in SILENT:
        wrong = [
            one for one in findings if (expect == "nothing" and one.severity != "info") or one.rule == rule
        ]
        assert not wrong, "\n".join(show(wrong))
        return
    wanted = expect.get("rule", rule)
    named = [one for one in findings if one.rule == wanted]
    assert named, f"{wanted} is not among:\n" + "\n".join(show(findings))
    reasons = [list(differences(one, expect)) for one in named]
    assert [] in reasons, "\n".join([*map(str, reasons), *show(named)])
    if expect.get("first", True):
        found = named[reasons.index([])]
        before = findings[: findings.index(found)]
        if "log" in case and context(case) is None:
            assert not before, "before it:\n" + "\n".join(show(before))
        worse = [one for one in before if SEVERITIES.index(one.severity) < SEVERITIES.index(found.severity)]
        assert not worse, "worse than it:\n" + "\n".join(show(worse))


@pytest.mark.parametrize("path", CASES, ids=name)
def test_a_case_says_only_what_is_compared(path: Path) -> None:
    case = load(path)
    assert set(case) <= PARTS
    assert {"expect", "source"} <= case.keys(), "what is expected, and where the fault is from"
    assert case.keys() & (PARTS - {"source", "expect"})
    expect = case["expect"]
    assert expect in SILENT or (isinstance(expect, dict) and set(expect) <= WANTED), expect


@pytest.mark.parametrize("rule", sorted({*RULES, *(path.parent.name for path in CASES)}))
def test_each_rule_has_a_fault_and_a_healthy_twin(rule: str) -> None:
    assert rule in known_rules(), f"no rule and no signature {rule}"
    expected = [load(path)["expect"] for path in CASES if path.parent.name == rule]
    assert [one for one in expected if one in SILENT], f"{rule} has no healthy twin in {FOLDER / rule}"
    assert [one for one in expected if one not in SILENT], f"{rule} has no fault in {FOLDER / rule}"


def said(case: dict[str, Any]) -> list[Finding]:
    """What doctor says of a case: the log's findings first, then the rules'."""
    known = context(case)
    findings = diagnose(case["log"], known) if "log" in case else []
    if known is not None:
        assert_plain(known)
        findings += examine(known).findings
    return findings


def assert_plain(known: Context) -> None:
    """A case's facts are what JSON can carry."""
    assert json.loads(json.dumps(known.facts)) == known.facts


def differences(found: Finding, expect: dict[str, Any]) -> Iterable[str]:
    """Why a finding is not the expected one."""
    remedy = expect.get("remedy") or {}
    if expect.get("severity", found.severity) != found.severity:
        yield f"severity is {found.severity}"
    for part, text in (
        ("what", found.what),
        ("where", found.where),
        ("evidence", "\n".join(found.evidence)),
    ):
        yield from (f"{part} lacks {one!r}" for one in texts(expect.get(part)) if not holds(text, one))
    yield from (
        f"remedy lacks {one!r}" for one in texts(remedy.get("text")) if not holds(found.remedy.text, one)
    )
    for part in ("arguments", "variables"):
        given = dict(getattr(found.remedy, part))
        if part in remedy and given != remedy[part]:
            yield f"remedy's {part}: {given}"
    for part in ("packages", "commands"):
        given_texts = "\n".join(getattr(found.remedy, part))
        yield from (
            f"remedy's {part} lack {one!r}" for one in texts(remedy.get(part)) if one not in given_texts
        )
    whole = json.dumps(found.to_dict(), ensure_ascii=False)
    yield from (f"says {one!r}" for one in texts(expect.get("not")) if holds(whole, one))


def texts(value: Any) -> list[str]:
    """A text, or a list of them, as a list."""
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def holds(text: str, part: str) -> bool:
    """Whether ``part`` is in ``text``, whatever the case of its letters."""
    return part.lower() in text.lower()


def show(findings: Iterable[Finding]) -> list[str]:
    """A line a finding."""
    return [
        f"  {one.severity} {one.rule}: {one.what} [{one.remedy.text}] {list(one.evidence)}"
        for one in findings
    ]
