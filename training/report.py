"""Tables of an evaluation: accepted length by tokens and as a mean over prompts, for all and by group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]


def accepted(rows: Sequence[Row], budget: int) -> tuple[float, float]:
    """Accepted length by tokens (all tokens / all passes) and as the mean of the prompts' own."""
    counts = [row["passes"][str(budget)] for row in rows]
    counts = [(tokens, passes) for tokens, passes in counts if passes]
    if not counts:
        return 0.0, 0.0
    by_tokens = sum(tokens for tokens, _ in counts) / sum(passes for _, passes in counts)
    return by_tokens, sum(tokens / passes for tokens, passes in counts) / len(counts)


def groups(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """The parts that are reported: all but the demo prompts, loops apart, by form, by kind, each demo."""
    measured = [row for row in rows if row["form"] != "demo"]
    parts: list[tuple[str, Callable[[Row], bool]]] = [
        ("all", lambda _: True),
        ("texts without a loop", lambda row: not row["loops"]),
        ("texts with a loop", lambda row: bool(row["loops"])),
        ("known forms", lambda row: row["form"] == "known"),
        ("new forms", lambda row: row["form"] == "new"),
    ]
    found = [(name, [row for row in measured if test(row)]) for name, test in parts]
    for kind in sorted({row["kind"] for row in measured}):
        found.append((kind, [row for row in measured if row["kind"] == kind]))
    found += [(f"demo: {row['name']}", [row]) for row in rows if row["form"] == "demo"]
    return found


def tables(result: dict[str, Any]) -> str:
    """Markdown: one line a group, one column a budget, `by tokens / mean over prompts`."""
    budgets: list[int] = result["budgets"]
    names = ["linear" if budget == 0 else f"tree {budget}" for budget in budgets]
    lines = ["| | prompts | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for name, rows in groups(result["prompts"]):
        if not rows:
            continue
        cells = ["{:.2f} / {:.2f}".format(*accepted(rows, budget)) for budget in budgets]
        lines.append(f"| {name} | {len(rows)} | " + " | ".join(cells) + " |")
    same = [sum(row["same"][str(budget)] for row in result["prompts"]) for budget in budgets]
    total = len(result["prompts"])
    lines.append(f"| texts equal to plain decoding | {total} | " + " | ".join(map(str, same)) + " |")
    return "\n".join(lines)
