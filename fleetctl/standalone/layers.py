"""The parts that target and drafter share: projections, norms, rotary positions, attention over a cache.

Shapes: ``m`` rows are the tokens of one pass, one sequence at a time. A layer's keys and values lie in
``KVCache`` by slot; slot = position for committed tokens.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from fleetctl.standalone.config import LayerShape
from fleetctl.standalone.weights import Weights

# oneDNN lays a weight out for a number of rows; the layout for a tree's pass suits one row and a chain's 16 too.
PACKED_ROWS = 33


class Linear:
    """``x @ weight.T`` for ``weight`` [out, in], without bias.

    A float32 weight is kept in oneDNN's own layout alone: a pass over 16 or 33 rows then takes about two thirds
    of the time, and one over a single row no longer than before.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self._packed = weight.dtype == torch.float32 and torch._C._has_mkldnn
        self._weight = weight.contiguous()
        if self._packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(self._weight, PACKED_ROWS)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[m, in] -> [m, out]."""
        if not self._packed:
            return functional.linear(x, self._weight)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")
        return product


class RotaryTable:
    """Rotary embedding in halves (HF's order) for positions 0 to ``length`` - 1."""

    def __init__(self, shape: LayerShape, length: int, dtype: torch.dtype) -> None:
        half = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
        angles = torch.outer(torch.arange(length, dtype=torch.float32), shape.rope_theta**-half)
        cos, sin = angles.cos(), angles.sin()
        self._cos = torch.cat([cos, cos], dim=-1).to(dtype).unsqueeze(1)
        self._sin = torch.cat([-sin, sin], dim=-1).to(dtype).unsqueeze(1)
        self._half = shape.head_dim // 2

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines [m, 1, head_dim] for ``positions`` [m]."""
        return self._cos[positions], self._sin[positions]

    def rotate(self, heads: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """``heads`` [m, any, head_dim] turned by their rows' angles."""
        cos, sin = table
        return (heads * cos).addcmul_(heads.roll(self._half, -1), sin)


class KVCache:
    """Keys and values of every layer, [layers, kv_heads, slots, head_dim] each; memory is touched as used."""

    def __init__(self, shape: LayerShape, slots: int, dtype: torch.dtype) -> None:
        size = (shape.layers, shape.kv_heads, slots, shape.head_dim)
        self.keys = torch.empty(size, dtype=dtype)
        self.values = torch.empty(size, dtype=dtype)

    def write(self, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put [m, kv_heads, head_dim] each into slots ``start``, ``start + 1``, …"""
        stop = start + keys.shape[0]
        self.keys[layer, :, start:stop] = keys.transpose(0, 1)
        self.values[layer, :, start:stop] = values.transpose(0, 1)

    def compact(self, start: int, slots: torch.Tensor) -> None:
        """Move ``slots`` [k] to ``start`` … ``start + k - 1`` in every layer."""
        stop = start + slots.shape[0]
        self.keys[:, :, start:stop] = self.keys[:, :, slots]
        self.values[:, :, start:stop] = self.values[:, :, slots]


def attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Grouped-query attention of ``queries`` [m, heads, head_dim] over s cached tokens.

    ``keys`` and ``values`` are [kv_heads, s, head_dim].
    ``mask`` [heads / kv_heads * m, s] is added to the scores, its rows repeating for each head of a group.
    Returns [m, heads * head_dim].
    """
    rows, heads, head_dim = queries.shape
    kv_heads = keys.shape[0]
    group = heads // kv_heads
    grouped = queries.view(rows, kv_heads, group, head_dim).permute(1, 2, 0, 3)
    scores = torch.bmm(grouped.reshape(kv_heads, group * rows, head_dim), keys.transpose(1, 2))
    scores.mul_(head_dim**-0.5)
    if mask is not None:
        scores += mask
    mixed = torch.bmm(scores.softmax(-1), values)
    return mixed.view(kv_heads, group, rows, head_dim).permute(2, 0, 1, 3).reshape(rows, heads * head_dim)


class FeedForward:
    """SwiGLU with its norm: ``x + down(silu(gate(n)) * up(n))`` of ``n = norm(x)``."""

    def __init__(self, weights: Weights, prefix: str, shape: LayerShape) -> None:
        hidden, inner = shape.hidden, shape.intermediate
        self._norm = weights.get(f"{prefix}.post_attention_layernorm.weight", hidden)
        self._eps = shape.norm_eps
        gate = weights.get(f"{prefix}.mlp.gate_proj.weight", inner, hidden)
        self._gate_up = Linear(torch.cat([gate, weights.get(f"{prefix}.mlp.up_proj.weight", inner, hidden)]))
        self._down = Linear(weights.get(f"{prefix}.mlp.down_proj.weight", hidden, inner))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[m, hidden] -> [m, hidden]."""
        gate, up = self._gate_up(rms_norm(x, self._norm, self._eps)).chunk(2, dim=-1)
        return x + self._down(functional.silu(gate).mul_(up))


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root-mean-square norm over the last dimension."""
    return functional.rms_norm(x, weight.shape, weight, eps)


def qkv_weight(weights: Weights, prefix: str, shape: LayerShape) -> torch.Tensor:
    """The rows of q, k and v of one layer as one matrix [(heads + 2 * kv_heads) * head_dim, hidden]."""
    sizes = {"q": shape.heads, "k": shape.kv_heads, "v": shape.kv_heads}
    return torch.cat(
        [
            weights.get(f"{prefix}.self_attn.{part}_proj.weight", heads * shape.head_dim, shape.hidden)
            for part, heads in sizes.items()
        ]
    )
