"""The hybrid model as the frozen target that the drafter's training knows."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from training.hybrid.checkpoint import WIDE
from training.hybrid.model import Hybrid
from training.target import Attend, Target


class HybridTarget(Target):
    """A ``Target`` that reads whole texts by a :class:`Hybrid`; its attention cannot be passed in."""

    def __init__(self, model: Hybrid, dtype: torch.dtype) -> None:
        self.model = copy.deepcopy(model).to(dtype).eval().requires_grad_(False)
        for name, weight in model.named_parameters():
            if name.endswith(WIDE):
                self.model.get_parameter(name).data = weight.detach().clone()  # as the checkpoint has it
        self.shape = model.shape.as_target
        self.embed = self.model.embed_tokens.weight
        self.layers = []
        self.norm = (1 + model.norm.weight.detach().float()).to(dtype)

    def head(self, final: Tensor) -> Tensor:
        """Logits [..., vocab] of hidden states [..., width]."""
        return F.linear(final, self.model.lm_head.weight)

    def read(self, ids: Tensor, feature_layers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """One causal pass over whole texts ids [B, T], padded on the right; returns final and features."""
        with torch.no_grad():
            final, features = self.model(ids, feature_layers=feature_layers)
        assert features is not None
        return final, features

    def run(
        self, ids: Tensor, positions: Tensor, attend: Attend, feature_layers: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        raise NotImplementedError("a recurrent layer has no keys that another attention could choose")
