"""How the target chooses a token from its logits: the best one, or a sample by temperature and top_p."""

from __future__ import annotations

import torch

from fleetctl.standalone.contract import Sampling


class Chooser:
    """Chooses tokens for one request; one random number a sampled token, so a seed repeats its text.

    The numbers do not depend on what the drafter proposed: with one seed every mode writes the same text.
    """

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = torch.Generator()
        if sampling.seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(sampling.seed)

    @property
    def greedy(self) -> bool:
        """Whether ``choose`` is the argmax."""
        return self._sampling.temperature == 0

    def choose(self, logits: torch.Tensor) -> int:
        """A token from ``logits`` [vocabulary]."""
        if self.greedy:
            return int(logits.argmax())
        probabilities = torch.softmax(logits.double() / self._sampling.temperature, dim=-1)
        order = None
        if self._sampling.top_p < 1:
            probabilities, order = probabilities.sort(descending=True)
            before = probabilities.cumsum(0) - probabilities
            probabilities = probabilities.where(before < self._sampling.top_p, 0.0)
        cumulated = probabilities.cumsum(0)
        point = torch.rand((), generator=self._random, dtype=torch.float64) * cumulated[-1]
        index = int(torch.searchsorted(cumulated, point, right=True).clamp_(max=len(cumulated) - 1))
        return index if order is None else int(order[index])
