"""The target's choice at a position: its argmax, or a sample at a temperature within a nucleus."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Sampler:
    """Chooses tokens from the target's logits.

    ``temperature`` 0 is greedy. Exactly one random number is drawn for each committed token, so that with one seed
    all modes choose alike.
    """

    def __init__(self, temperature: float = 0.0, top_p: float = 1.0, seed: int | None = None) -> None:
        self.temperature = temperature
        self.top_p = top_p
        self._random = torch.Generator()
        if seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(seed)

    def choose(self, logits: Tensor) -> int:
        """The choice for ``logits`` [vocabulary]."""
        if self.temperature == 0:
            return int(logits.argmax())
        probabilities = torch.softmax(logits.double() / self.temperature, dim=-1)
        ordered, tokens = probabilities.sort(descending=True)
        cumulative = ordered.cumsum(dim=-1)
        kept = int((cumulative - ordered < self.top_p).sum()) if self.top_p < 1 else len(tokens)
        point = torch.rand(1, generator=self._random, dtype=torch.float64) * cumulative[kept - 1]
        rank = int(torch.searchsorted(cumulative[:kept], point))
        return int(tokens[min(rank, kept - 1)])

    def chooser(self, logits: Tensor) -> Callable[[int], int]:
        """The choice by row of ``logits`` [rows, vocabulary]."""
        if self.temperature == 0:
            return logits.argmax(dim=-1).tolist().__getitem__
        return lambda row: self.choose(logits[row])
