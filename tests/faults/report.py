"""docs/reliability.md: each promise with the tests that prove it, and the matrix as its last whole run saw it.

``python -m tests.faults.report`` writes the page from docs/reliability.json and promises.yaml.
``--take`` first takes over what ``make faults`` has left in .fleetctl/faults.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from tests.faults.inject import FAULTS
from tests.faults.matrix import Verdict
from tests.faults.points import KINDS, Kind

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".fleetctl/faults"
DATA = ROOT / "docs/reliability.json"
PAGE = ROOT / "docs/reliability.md"
PROMISES = Path(__file__).with_name("promises.yaml")
SHORT = {"done": "new", "rolled-back": "old", "aborted": "old", "refused": "untouched", "superseded": "left"}


def keep(verdicts: Sequence[Verdict]) -> None:
    """Keep what a batch came to, for :func:`take`."""
    KEPT.mkdir(parents=True, exist_ok=True)
    day = time.strftime("%Y-%m-%d")
    path = KEPT / f"{time.time_ns()}.json"
    path.write_text(json.dumps([{**asdict(one), "day": day} for one in verdicts]))


def take() -> None:
    """Put the kept cells into the data, each in the place of an older one."""
    data: Json = json.loads(DATA.read_text()) if DATA.exists() else {}
    for path in sorted(KEPT.glob("*.json")):
        for cell in json.loads(path.read_text()):
            points = data.setdefault(cell["fault"], {}).setdefault(cell["kind"], {})
            points[cell["point"]] = {key: cell[key] for key in ("outcome", "problems", "day")}
        path.unlink()
    text = json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False)
    cell_a_line = re.sub(r"\{[^{}]+\}", lambda cell: " ".join(cell.group().split()), text)
    DATA.write_text(cell_a_line + "\n")


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
        lines += _table(data, kind)
    return "\n".join(lines) + "\n"


def _totals(data: Json, about: dict[str, str]) -> list[str]:
    lines = ["| fault | what happens | survived | taken |", "|---|---|---|---|"]
    for fault, words in about.items():
        cells = [cell for points in data.get(fault, {}).values() for cell in points.values()]
        whole = sum(len(kind.points) for kind in KINDS)
        survived = sum(not cell["problems"] for cell in cells)
        result = (
            f"{survived} of {len(cells)} taken, of {whole}"
            if len(cells) < whole
            else f"{survived} of {whole}"
        )
        lines.append(f"| {fault} | {words} | {result} | {max((cell['day'] for cell in cells), default='')} |")
    return lines


def _table(data: Json, kind: Kind) -> list[str]:
    faults = [name for name in FAULTS if kind.name in data.get(name, {})]
    lines = ["| at | " + " | ".join(faults) + " |", "|---|" + "---|" * len(faults)]
    for point in kind.points:
        cells = [data[fault][kind.name].get(point.name) for fault in faults]
        if any(cells):
            shown = (_cell(cell, kind) for cell in cells)
            lines.append(f"| {point.name} | " + " | ".join(shown) + " |")
    return lines


def _cell(cell: Json | None, kind: Kind) -> str:
    if cell is None:
        return ""
    if cell["problems"]:
        return "**failed**"
    short = SHORT.get(cell["outcome"], cell["outcome"])
    return "empty" if (short == "new" and kind.empties) or (short == "old" and not kind.has_old) else short


def failed(data: Json) -> list[str]:
    """The cells that were not survived."""
    return [
        f"{fault}, {kind}, {point}: {cell['problems']}"
        for fault, kinds in data.items()
        for kind, points in kinds.items()
        for point, cell in points.items()
        if cell["problems"]
    ]


if __name__ == "__main__":
    if "--take" in sys.argv:
        take()
    PAGE.write_text(page())
    print(f"{PAGE.relative_to(ROOT)}: {len(failed(json.loads(DATA.read_text())))} cells failed")
