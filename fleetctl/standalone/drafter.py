"""The DFlash drafter: fills one block of masked tokens in one pass, conditioned on the target's states."""

from __future__ import annotations

from pathlib import Path

import torch

from fleetctl.standalone.config import DrafterConfig
from fleetctl.standalone.layers import FeedForward, KVCache, Linear, RotaryTable, attend, qkv_weight, rms_norm
from fleetctl.standalone.target import Target
from fleetctl.standalone.weights import Weights


class _Layer:
    def __init__(self, weights: Weights, index: int, config: DrafterConfig) -> None:
        shape = config.shape
        prefix = f"layers.{index}"
        self._index = index
        self._shape = shape
        self._norm = weights.get(f"{prefix}.input_layernorm.weight", shape.hidden)
        fused = qkv_weight(weights, prefix, shape)
        self.kv_weight = fused[shape.heads * shape.head_dim :]
        self._qkv = Linear(fused)
        self._q_norm = weights.get(f"{prefix}.self_attn.q_norm.weight", shape.head_dim)
        self.k_norm = weights.get(f"{prefix}.self_attn.k_norm.weight", shape.head_dim)
        width = shape.heads * shape.head_dim
        self._out = Linear(weights.get(f"{prefix}.self_attn.o_proj.weight", shape.hidden, width))
        self._feed_forward = FeedForward(weights, prefix, shape)

    def __call__(
        self,
        x: torch.Tensor,
        start: int,
        rotary: RotaryTable,
        angles: tuple[torch.Tensor, torch.Tensor],
        cache: KVCache,
    ) -> torch.Tensor:
        shape = self._shape
        rows = x.shape[0]
        projected = self._qkv(rms_norm(x, self._norm, shape.norm_eps)).view(rows, -1, shape.head_dim)
        parts = torch.split(projected, [shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
        queries, keys, values = parts
        queries = rotary.rotate(rms_norm(queries, self._q_norm, shape.norm_eps), angles)
        keys = rotary.rotate(rms_norm(keys, self.k_norm, shape.norm_eps), angles)
        cache.write(self._index, start, keys, values)
        stop = start + rows
        mixed = attend(queries, cache.keys[self._index, :, :stop], cache.values[self._index, :, :stop], None)
        return self._feed_forward(x + self._out(mixed))


class Drafter:
    """The drafter in ``folder`` for ``target``, with the context's keys and values of one sequence cached."""

    def __init__(
        self, folder: Path, config: DrafterConfig, target: Target, slots: int, dtype: torch.dtype
    ) -> None:
        weights = Weights(folder, dtype)
        shape = config.shape
        self.config = config
        self._target = target
        self._layers = [_Layer(weights, i, config) for i in range(shape.layers)]
        self._fc = Linear(
            weights.get("fc.weight", shape.hidden, len(config.target_layers) * target.config.shape.hidden)
        )
        self._hidden_norm = weights.get("hidden_norm.weight", shape.hidden)
        self._norm = weights.get("norm.weight", shape.hidden)
        self._context_kv = Linear(torch.cat([layer.kv_weight for layer in self._layers]))
        self._rotary = RotaryTable(shape, slots, dtype)
        self._cache = KVCache(shape, slots, dtype)

    def extend(self, features: torch.Tensor, start: int) -> None:
        """Add committed tokens at positions ``start`` … to the context, from the target's ``features``.

        ``features`` is [m, captured layers * hidden], as ``Target.forward`` leaves it.
        """
        shape = self.config.shape
        rows = features.shape[0]
        states = rms_norm(self._fc(features), self._hidden_norm, shape.norm_eps)
        projected = self._context_kv(states).view(rows, shape.layers, 2, shape.kv_heads, shape.head_dim)
        angles = self._rotary.at(torch.arange(start, start + rows))
        for index, layer in enumerate(self._layers):
            keys = rms_norm(projected[:, index, 0], layer.k_norm, shape.norm_eps)
            self._cache.write(index, start, self._rotary.rotate(keys, angles), projected[:, index, 1])

    def draft(self, last_token: int, start: int) -> torch.Tensor:
        """Logits [block_size - 1, vocabulary] of the tokens that follow ``last_token`` at position ``start``.

        The context must hold the ``start`` tokens before it. The block's own keys and values are written
        behind the context and overwritten by the next ``extend``.
        """
        size = self.config.block_size
        tokens = torch.full((size,), self.config.mask_token)
        tokens[0] = last_token
        x = self._target.embed(tokens)
        angles = self._rotary.at(torch.arange(start, start + size))
        for layer in self._layers:
            x = layer(x, start, self._rotary, angles, self._cache)
        return self._target.logits(rms_norm(x[1:], self._norm, self.config.shape.norm_eps))
