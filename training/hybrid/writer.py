"""Lets the hybrid model write: many rows at once, prompts padded on the left, one pass a token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.hybrid.model import Hybrid
from training.hybrid.recipe import STOP

LOOK_EVERY = 32


@torch.no_grad()
def write(
    model: Hybrid,
    prompts: Sequence[Sequence[int]],
    count: int,
    sampled: Sequence[int] | None = None,
    temperature: float = 0.8,
) -> list[list[int]]:
    """Answers of at most ``count`` tokens, the end token included where a row reaches it; greedy, but for the
    first ``sampled`` tokens of each row, which are drawn at ``temperature``."""
    device = model.embed_tokens.weight.device
    width = max(map(len, prompts))
    ids = torch.tensor([[STOP] * (width - len(p)) + list(p) for p in prompts], device=device)
    padding = torch.tensor([width - len(p) for p in prompts], device=device)[:, None]
    drawn = torch.tensor(list(sampled or [0] * len(prompts)), device=device)
    memory = model.memory(len(prompts), width + count)
    column = torch.arange(width + count, device=device)
    memory.seen = column >= padding
    valid = memory.seen[:, :width]
    final, _ = model(ids, (column[:width] - padding).clamp(min=0), valid, memory)
    written, ended = [], torch.zeros(len(prompts), dtype=torch.bool, device=device)
    for index in range(count):
        token = _chosen(model.lm_head(final[:, -1]).float(), drawn > index, temperature)
        written.append(token)
        ended |= token == STOP
        if index + 1 == count or (index % LOOK_EVERY == LOOK_EVERY - 1 and bool(ended.all())):
            break
        final, _ = model(token[:, None], memory.column - padding, None, memory)
    rows: list[list[int]] = torch.stack(written, 1).tolist()
    return [row[: row.index(STOP) + 1] if STOP in row else row for row in rows]


def _chosen(logits: Tensor, draws: Tensor, temperature: float) -> Tensor:
    noise = torch.empty_like(logits).exponential_().clamp_(min=1e-20).log_()
    return (logits - torch.where(draws, temperature, 0.0)[:, None] * noise).argmax(-1)
