"""The state leak of hybrid models, shown and gone: accepted length and equality by budget, unsafe and fork.

Needs a hybrid target and a drafter that predicts it; a random one accepts nothing and shows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.arms import commits, ddtree
from benchmarks.gpu.lossless import measure as lossless
from benchmarks.gpu.server import Arm

HYBRID = ("--disable-radix-cache", "--max-mamba-cache-size", "32", "--mm-attention-backend", "triton_attn")


def arms(drafter: Path, budgets: tuple[int, ...]) -> list[Arm]:
    """A tree of each budget with states in order (the leak), besides the forked ones."""
    return [
        Arm(f"unsafe-{budget}", ddtree(drafter, budget=budget, topk=8, hybrid="unsafe")) for budget in budgets
    ]


def measure(
    model: Path,
    drafter: Path,
    out: Path,
    *,
    dtype: str = "float32",
    budgets: tuple[int, ...] = (8, 15, 16, 32, 64),
    count: int = 20,
    tokens: int = 128,
    flags: Sequence[str] = HYBRID,
    deadline_s: float = 400,
    minutes: float = 8.0,
    only: Sequence[str] = (),
) -> dict[str, Any]:
    """As ``lossless``, into ``hybrid/``: ``tree-N`` fork, ``unsafe-N`` do not."""
    return lossless(
        model,
        drafter,
        out / "hybrid",
        dtype=dtype,
        budgets=budgets,
        count=count,
        tokens=tokens,
        deadline_s=deadline_s,
        minutes=minutes,
        extra=[*commits(drafter, 15), *arms(drafter, budgets)],
        only=only,
        flags=tuple(flags),
    )
