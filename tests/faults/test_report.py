"""docs/reliability.md is what its data says, and names only tests that are there."""

from __future__ import annotations

import ast
import json

import yaml

from tests.faults import report
from tests.faults.inject import FAULTS
from tests.faults.points import KINDS, cells


def test_the_page_is_as_generated() -> None:
    assert report.PAGE.read_text() == report.page(), "python -m tests.faults.report writes it"


def test_every_promise_names_tests_that_are_there() -> None:
    promises = yaml.safe_load(report.PROMISES.read_text())["promises"]
    assert len(promises) > 10
    missing = [test for promise in promises for test in promise["tests"] if not _exists(test)]
    assert missing == []
    assert [promise["says"] for promise in promises if not promise["tests"]] == []


def _exists(test: str) -> bool:
    """Whether a node id names a function (or a scenario of that name) of its file."""
    path, _, name = test.partition("::")
    file = report.ROOT / path
    if not file.is_file():
        return False
    name = name.removeprefix("test_scenario[").rstrip("]").partition("[")[0]
    tree = ast.parse(file.read_text())
    return not name or any(isinstance(node, ast.FunctionDef) and node.name == name for node in ast.walk(tree))


def test_every_fault_is_explained_and_no_kept_cell_failed() -> None:
    about = yaml.safe_load(report.PROMISES.read_text())["faults"]
    assert list(about) == list(FAULTS)
    data = json.loads(report.DATA.read_text())
    assert report.failed(data) == []
    known = {
        (fault.name, cell.kind.name, cell.point.name) for fault in FAULTS.values() for cell in cells(*KINDS)
    }
    kept = {(fault, kind, point) for fault, kinds in data.items() for kind in kinds for point in kinds[kind]}
    assert kept <= known
