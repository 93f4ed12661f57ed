"""docs/reliability.md: each promise with the tests that prove it, and the matrix as its last whole run saw it.

``python -m tests.faults.report`` writes the page from docs/reliability.json and promises.yaml.
``--take`` first takes over what ``make faults`` has left in .fleetctl/faults.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from tests.faults.matrix import Verdict
from tests.faults.points import KINDS

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".fleetctl/faults"
DATA = ROOT / "docs/reliability.json"
PAGE = ROOT / "docs/reliability.md"
PROMISES = Path(__file__).with_name("promises.yaml")
SHORT = {"done": "new", "rolled-back": "old", "aborted": "old", "refused": "untouched", "superseded": "left"}


def keep(verdicts: Sequence[Verdict]) -> None:
    """Keep what a batch of the whole run came to."""
    KEPT.mkdir(parents=True, exist_ok=True)
    first = verdicts[0]
    path = KEPT / f"{first.fault}.{first.kind.replace(' ', '-')}.json"
    path.write_text(
        json.dumps({"day": time.strftime("%Y-%m-%d"), "cells": [asdict(one) for one in verdicts]})
    )


def take() -> None:
    """Put the kept batches into the data, each in the place of an older one."""
    data: Json = json.loads(DATA.read_text()) if DATA.exists() else {"batches": {}}
    for path in sorted(KEPT.glob("*.json")):
        batch = json.loads(path.read_text())
        cells = {cell["point"]: [cell["outcome"], cell["problems"]] for cell in batch["cells"]}
        first = batch["cells"][0]
        data["batches"].setdefault(first["fault"], {})[first["kind"]] = {"day": batch["day"], "cells": cells}
    DATA.write_text(json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def page() -> str:
    """The page's text."""
    data: Json = json.loads(DATA.read_text())
    promises: Json = yaml.safe_load(PROMISES.read_text())
    lines = ["# Reliability", "", *promises["about"].strip().splitlines(), ""]
    lines += ["## Promises", "", "| what is promised | proven by |", "|---|---|"]
    for promise in promises["promises"]:
        tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in promise["tests"])
        lines.append(f"| {promise['says']} | {tests} |")
    lines += ["", "## Faults × steps", "", *promises["matrix"].strip().splitlines(), ""]
    lines += _totals(data, promises["faults"])
    for kind in KINDS:
        lines += ["", f"### {kind.name.capitalize()}", ""]
        lines += _table(data, kind.name, [point.name for point in kind.points])
    return "\n".join(lines) + "\n"


def _totals(data: Json, about: dict[str, str]) -> list[str]:
    lines = ["| fault | what happens | survived | taken |", "|---|---|---|---|"]
    for fault, words in about.items():
        batches = data["batches"].get(fault, {}).values()
        cells = [cell for batch in batches for cell in batch["cells"].values()]
        survived = sum(not problems for _, problems in cells)
        days = sorted({batch["day"] for batch in batches})
        result = f"{survived} of {len(cells)}" if cells else "not yet run"
        lines.append(f"| {fault} | {words} | {result} | {days[-1] if days else ''} |")
    return lines


def _table(data: Json, kind: str, points: list[str]) -> list[str]:
    faults = [fault for fault, batches in data["batches"].items() if kind in batches]
    lines = ["| at | " + " | ".join(faults) + " |", "|---|" + "---|" * len(faults)]
    for point in points:
        cells = [data["batches"][fault][kind]["cells"].get(point) for fault in faults]
        lines.append(f"| {point} | " + " | ".join(_cell(cell) for cell in cells) + " |")
    return lines


def _cell(cell: list[Any] | None) -> str:
    if cell is None:
        return ""
    outcome, problems = cell
    return "**failed**" if problems else SHORT.get(outcome, outcome)


def failed(data: Json) -> Counter[str]:
    """How many cells of each fault did not survive."""
    return Counter(
        fault
        for fault, batches in data["batches"].items()
        for batch in batches.values()
        for _, problems in batch["cells"].values()
        if problems
    )


if __name__ == "__main__":
    if "--take" in sys.argv:
        take()
    PAGE.write_text(page())
    print(f"{PAGE.relative_to(ROOT)}: {sum(failed(json.loads(DATA.read_text())).values())} cells failed")
