"""What target and drafter are made of: packed linear layers, RMS norm, rotary positions, attention over a cache."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# The layout that oneDNN picks for a few dozen rows suits 1 row and 16 as well.
_PACKED_ROWS = 33


class Linear:
    """``x @ weight.T`` for [rows, in] with few rows, without bias.

    In float32 the weight is kept in oneDNN's own layout alone: a pass over 16 or 33 tokens then takes about two thirds
    of the time, and one over a single token no longer than before. ``weight``: [out, in].
    """

    def __init__(self, weight: Tensor) -> None:
        self.packed = weight.dtype == torch.float32 and torch._C._has_mkldnn
        self.weight = (
            torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACKED_ROWS)
            if self.packed
            else weight.contiguous()
        )

    def __call__(self, x: Tensor) -> Tensor:
        if not self.packed:
            return F.linear(x, self.weight)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, None, "none", [], "")
        return y


class Rotary:
    """Rotary position embedding, halves rotated (Llama's layout). ``cos`` and ``sin``: [positions, head size / 2]."""

    def __init__(self, head_size: int, theta: float, positions: int, dtype: torch.dtype) -> None:
        inverse = theta ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
        angles = torch.outer(torch.arange(positions, dtype=torch.float64), inverse)
        self.cos = angles.cos().to(dtype)
        self.sin = angles.sin().to(dtype)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """``x``: [rows, heads, head size]; ``positions``: [rows]."""
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm over the last dimension."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Grouped-query attention of one sequence: [rows, heads * head size].

    ``query``: [rows, heads, size]; ``key``, ``value``: [kv heads, positions, size]; ``mask``: additive [rows,
    positions] or None. The queries that share a key head are laid out as rows of one product.
    """
    rows, heads, size = query.shape
    groups = key.shape[0]
    shared = heads // groups
    q = query.view(rows, groups, shared, size).permute(1, 2, 0, 3).reshape(1, groups, shared * rows, size)
    if mask is not None:
        mask = mask.repeat(shared, 1)
    out = F.scaled_dot_product_attention(q, key.unsqueeze(0), value.unsqueeze(0), attn_mask=mask)
    return out.view(groups, shared, rows, size).permute(2, 0, 1, 3).reshape(rows, heads * size)


def gated(gate_up: Tensor) -> Tensor:
    """SwiGLU's product of its two halves: [rows, 2 * inner] → [rows, inner]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up
