"""Muon: momentum whose matrix updates are orthogonalised (Jordan et al. 2024), batched by shape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration that drives singular values towards 1 in five steps."""


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """Roughly the nearest orthogonal matrices to a stack [n, rows, columns], in bf16 on a GPU."""
    a, b, c = NEWTON_SCHULZ
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    result: Tensor = x.mT if tall else x
    return result.to(matrices.dtype)


class Muon:
    """The optimiser for 2-D weights; the caller sets `rate` as it goes."""

    def __init__(self, weights: Iterable[torch.nn.Parameter], rate: float, momentum: float = 0.95) -> None:
        self.rate = rate
        self.momentum = momentum
        by_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
        for weight in weights:
            by_shape[weight.shape].append(weight)
        self.groups = list(by_shape.values())
        self.averages = [torch.stack([torch.zeros_like(w) for w in group]) for group in self.groups]

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients that the weights hold."""
        for group, average in zip(self.groups, self.averages, strict=True):
            gradient = torch.stack([w.grad for w in group if w.grad is not None])
            average.mul_(self.momentum).add_(gradient)
            update = orthogonalise(gradient.add_(average, alpha=self.momentum))
            rows, columns = group[0].shape
            scale = self.rate * max(1.0, rows / columns) ** 0.5
            torch._foreach_sub_([w.data for w in group], list((update * scale).unbind()))
