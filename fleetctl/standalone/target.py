"""The target: a Llama model whose pass takes any tree of tokens behind a cached prefix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

from fleetctl.standalone.config import TargetConfig
from fleetctl.standalone.layers import FeedForward, KVCache, Linear, RotaryTable, attend, qkv_weight, rms_norm
from fleetctl.standalone.weights import Weights


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass leaves: ``hidden`` [m, hidden] (normed, for the head) and the captured ``features``.

    ``features`` [m, captured layers * hidden] are the states after the layers that the drafter reads.
    """

    hidden: torch.Tensor
    features: torch.Tensor


class _Layer:
    def __init__(self, weights: Weights, index: int, config: TargetConfig) -> None:
        shape = config.shape
        prefix = f"model.layers.{index}"
        self._index = index
        self._shape = shape
        self._norm = weights.get(f"{prefix}.input_layernorm.weight", shape.hidden)
        self._qkv = Linear(qkv_weight(weights, prefix, shape))
        width = shape.heads * shape.head_dim
        self._out = Linear(weights.get(f"{prefix}.self_attn.o_proj.weight", shape.hidden, width))
        self._feed_forward = FeedForward(weights, prefix, shape)

    def __call__(
        self,
        x: torch.Tensor,
        start: int,
        rotary: RotaryTable,
        angles: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
        cache: KVCache,
    ) -> torch.Tensor:
        shape = self._shape
        rows = x.shape[0]
        projected = self._qkv(rms_norm(x, self._norm, shape.norm_eps)).view(rows, -1, shape.head_dim)
        turned = rotary.rotate(projected[:, : shape.heads + shape.kv_heads], angles)
        cache.write(
            self._index, start, turned[:, shape.heads :], projected[:, shape.heads + shape.kv_heads :]
        )
        stop = start + rows
        keys, values = cache.keys[self._index, :, :stop], cache.values[self._index, :, :stop]
        x = x + self._out(attend(turned[:, : shape.heads], keys, values, mask))
        return self._feed_forward(x)


class Target:
    """The model in ``folder``, with a cache for one sequence of up to ``slots`` tokens and draft nodes."""

    def __init__(
        self, folder: Path, config: TargetConfig, slots: int, capture: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        weights = Weights(folder, dtype)
        shape = config.shape
        self.config = config
        self._capture = frozenset(capture)
        self._embedding = weights.get("model.embed_tokens.weight", config.vocabulary, shape.hidden)
        self._layers = [_Layer(weights, i, config) for i in range(shape.layers)]
        self._norm = weights.get("model.norm.weight", shape.hidden)
        self._head = Linear(
            self._embedding
            if config.tied_head
            else weights.get("lm_head.weight", config.vocabulary, shape.hidden)
        )
        self._rotary = RotaryTable(shape, slots, dtype)
        self.cache = KVCache(shape, slots, dtype)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """int64 [m] -> [m, hidden]."""
        return functional.embedding(tokens, self._embedding)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The final head on ``hidden`` [m, hidden]: [m, vocabulary]."""
        return self._head(hidden)

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, start: int, visible: torch.Tensor | None
    ) -> Pass:
        """One pass over ``tokens`` [m] written to slots ``start`` …, behind a prefix of ``start`` tokens.

        Every row sees the whole prefix; of the pass's own rows, row i sees j where ``visible`` [m, m] is
        true, and only itself and all before it where ``visible`` is None.
        """
        rows = tokens.shape[0]
        mask = None
        if rows > 1:
            if visible is None:
                visible = torch.ones(rows, rows, dtype=torch.bool).tril_()
            group = self.config.shape.heads // self.config.shape.kv_heads
            mask = torch.zeros(rows, start + rows, dtype=self._embedding.dtype)
            mask[:, start:].masked_fill_(~visible, float("-inf"))
            mask = mask.repeat(group, 1)
        angles = self._rotary.at(positions)
        x = self.embed(tokens)
        captured = []
        for index, layer in enumerate(self._layers):
            x = layer(x, start, self._rotary, angles, mask, self.cache)
            if index in self._capture:
                captured.append(x)
        features = torch.cat(captured, dim=-1) if captured else x.new_empty(rows, 0)
        return Pass(rms_norm(x, self._norm, self.config.shape.norm_eps), features)
