"""A key/value cache of fixed size that a whole batch shares, for writing and for verifying."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from training.target import Attend


def attention_bias(mask: Tensor, heads: int, kv_heads: int, dtype: torch.dtype) -> Tensor:
    """What `grouped_attention` adds to scores, [B, kv, heads / kv x T, S], from a boolean mask [B, T, S]."""
    batch, count, size = mask.shape
    group = heads // kv_heads
    bias = torch.zeros(mask.shape, device=mask.device, dtype=dtype).masked_fill_(~mask, float("-inf"))
    bias = bias[:, None].expand(batch, group, count, size).reshape(batch, 1, group * count, size)
    return bias.expand(batch, kv_heads, group * count, size)


def grouped_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Attention of q [B, heads, T, hd] over k, v [B, kv, S, hd] with a bias from `attention_bias`.

    The query heads that share one key head are laid out as further rows, so keys and values are read once.
    """
    rows = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
    return F.scaled_dot_product_attention(rows, k, v, attn_mask=bias).reshape(q.shape)


class KVCache:
    """Keys and values of all layers, [layers, B, kv, size, hd]."""

    def __init__(
        self,
        layers: int,
        batch: int,
        kv_heads: int,
        size: int,
        head_dim: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.size = size
        shape = (layers, batch, kv_heads, size, head_dim)
        self.k = torch.zeros(shape, device=device, dtype=dtype)
        self.v = torch.zeros(shape, device=device, dtype=dtype)
        self.rows = torch.arange(batch, device=device)[:, None]

    def part(self, rows: slice) -> KVCache:
        """Some of the rows, sharing this cache's memory."""
        other = KVCache.__new__(KVCache)
        other.size = self.size
        other.k, other.v = self.k[:, rows], self.v[:, rows]
        other.rows = torch.arange(other.k.shape[1], device=self.k.device)[:, None]
        return other

    def write(self, layer: int, columns: Tensor, k: Tensor, v: Tensor) -> None:
        """Store k, v [B, kv, T, hd] at `columns`: [T] for all rows alike, or [B, T] for each its own."""
        if columns.dim() == 1:
            self.k[layer].index_copy_(2, columns, k)
            self.v[layer].index_copy_(2, columns, v)
        else:
            self.k[layer][self.rows, :, columns] = k.transpose(1, 2)
            self.v[layer][self.rows, :, columns] = v.transpose(1, 2)

    def attend(self, columns: Tensor, mask: Tensor) -> Attend:
        """Attention that first writes at `columns`, then sees the columns that mask [B, T, S] allows."""
        view = mask.shape[2]
        bias: Tensor | None = None

        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            nonlocal bias
            self.write(layer, columns, k, v)
            if bias is None:
                bias = attention_bias(mask, q.shape[1], k.shape[1], q.dtype)
            return grouped_attention(q, self.k[layer, :, :, :view], self.v[layer, :, :, :view], bias)

        return attention

    def move(self, source: Tensor, destination: Tensor) -> None:
        """Copy columns source [B, T] to destination [B, T] in every layer (keep a verified path)."""
        for store in (self.k, self.v):
            store[:, self.rows, :, destination] = store[:, self.rows, :, source]
