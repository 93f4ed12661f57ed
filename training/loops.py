"""Finds where a text falls into a loop; small models do so often, and loops flatter a drafter."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LONGEST_PERIOD = 64
SHORTEST_RUN = 24


def loop_starts(texts: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> list[int]:
    """For each text the index of the token at which it has been repeating itself for long enough, or -1.

    Long enough: for some period p up to 64 tokens, the last max(24, 2p) tokens each equal the one p tokens
    before, so a passage of p tokens stands there three times.
    """
    if not texts:
        return []
    width = max(map(len, texts))
    rows = torch.full((len(texts), width), -1, dtype=torch.int32)
    for index, text in enumerate(texts):
        rows[index, : len(text)] = torch.tensor(text, dtype=torch.int32)
    rows = rows.to(device)
    first = torch.full((len(texts),), width, device=device)
    for period in range(1, min(LONGEST_PERIOD, width // 3) + 1):
        first = torch.minimum(first, _first_run(rows, period, width))
    return [index if index < width else -1 for index in first.tolist()]


def _first_run(rows: Tensor, period: int, none: int) -> Tensor:
    """Index [n] of the first token that ends a long enough run of this period; `none` where there is none."""
    index = torch.arange(period, rows.shape[1], device=rows.device)
    same = (rows[:, period:] == rows[:, :-period]) & (rows[:, period:] >= 0)
    broken = torch.where(same, period - 1, index).cummax(1).values
    long_enough = same & (index - broken >= max(SHORTEST_RUN, 2 * period))
    return torch.where(long_enough, index, none).amin(1)
