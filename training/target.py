"""The target: a Llama read from a GGUF file, in plain PyTorch, with the hidden states that DFlash needs.

One set of layers serves four uses (writing text, caching features, drafting's head, verifying a tree); they
differ only in how attention finds its keys, so that is a function the caller passes in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [B, heads, T, hd], k [B, kv, T, hd], v [B, kv, T, hd]) -> [B, heads, T, hd]."""


@dataclass(frozen=True)
class TargetShape:
    """Sizes of a Llama; the defaults are SmolLM2-135M's, as its GGUF metadata has them."""

    layers: int = 30
    width: int = 576
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    mlp: int = 1536
    vocab: int = 49152
    theta: float = 100_000.0
    eps: float = 1e-5


@dataclass
class TargetLayer:
    """Weights of one layer, each [out, in]; q, k, v and gate, up are stacked to halve the launches."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    norm_attn: Tensor
    norm_mlp: Tensor


def rope_tables(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine [B, 1, T, hd] in float32 for positions [B, T]; the halves repeat (Llama's layout)."""
    exponent = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angles = positions[..., None].float() * torch.pow(theta, -exponent)
    angles = torch.cat((angles, angles), -1)[:, None]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x [B, heads, T, hd] by tables of `rope_tables`; computed in the tables' precision."""
    first, second = x.chunk(2, -1)
    return (x * cos + torch.cat((-second, first), -1) * sin).to(x.dtype)


class Target:
    """A frozen Llama with tied embeddings.

    `features` are the hidden states after chosen layers (`hidden_states[id + 1]` in transformers), before
    the final norm; `final` is after the final norm, ready for `head`.
    """

    def __init__(self, shape: TargetShape, embed: Tensor, layers: list[TargetLayer], norm: Tensor) -> None:
        self.shape = shape
        self.embed = embed
        self.layers = layers
        self.norm = norm

    @property
    def device(self) -> torch.device:
        return self.embed.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed.dtype

    def run(
        self, ids: Tensor, positions: Tensor, attend: Attend, feature_layers: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """ids, positions [B, T] -> final [B, T, width], features [B, T, len(feature_layers) * width]."""
        s = self.shape
        batch, count = ids.shape
        cos, sin = rope_tables(positions, s.head_dim, s.theta)
        cos, sin = cos.to(self.dtype), sin.to(self.dtype)
        x = F.embedding(ids, self.embed)
        kept: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            normed = F.rms_norm(x, (s.width,), layer.norm_attn, s.eps)
            qkv = F.linear(normed, layer.qkv).view(batch, count, -1, s.head_dim).transpose(1, 2)
            q, k, v = torch.split(qkv, [s.heads, s.kv_heads, s.kv_heads], 1)
            mixed = attend(index, rotate(q, cos, sin), rotate(k, cos, sin), v)
            x = x + F.linear(mixed.transpose(1, 2).reshape(batch, count, -1), layer.out)
            gate, up = F.linear(F.rms_norm(x, (s.width,), layer.norm_mlp, s.eps), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
            if index in feature_layers:
                kept.append(x)
        return F.rms_norm(x, (s.width,), self.norm, s.eps), torch.cat(kept, -1) if kept else None

    def head(self, final: Tensor) -> Tensor:
        """Logits [..., vocab] of hidden states [..., width]."""
        return F.linear(final, self.embed)

    def read(self, ids: Tensor, feature_layers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """One causal pass over whole texts ids [B, T], padded on the right; returns final and features."""
        positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        final, features = self.run(ids, positions, causal_attention, feature_layers)
        assert features is not None
        return final, features

    def to(self, device: torch.device, dtype: torch.dtype) -> Target:
        """The same weights on another device or in another precision."""
        layers = [
            TargetLayer(**{name: value.to(device, dtype) for name, value in vars(layer).items()})
            for layer in self.layers
        ]
        return Target(self.shape, self.embed.to(device, dtype), layers, self.norm.to(device, dtype))


def causal_attention(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention within the pass itself; no cache."""
    repeat = q.shape[1] // k.shape[1]
    return F.scaled_dot_product_attention(
        q, k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1), is_causal=True
    )


def random_target(shape: TargetShape, seed: int = 0) -> Target:
    """A target with random weights: for tests, and for timing without the real weights."""
    rng = torch.Generator().manual_seed(seed)

    def draw(rows: int, columns: int) -> Tensor:
        weight: Tensor = torch.randn(rows, columns, generator=rng) / math.sqrt(columns)
        return weight

    inner, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    ones = torch.ones(shape.width)
    layers = [
        TargetLayer(
            draw(inner + 2 * kv, shape.width),
            draw(shape.width, inner),
            draw(2 * shape.mlp, shape.width),
            draw(shape.width, shape.mlp),
            ones,
            ones,
        )
        for _ in range(shape.layers)
    ]
    return Target(shape, draw(shape.vocab, shape.width), layers, ones)


def load_gguf(path: Path) -> Target:
    """Read a Llama's GGUF file, de-quantised to float32 on the CPU.

    The file keeps the rows of q and k of a head interleaved (pairs side by side); Llama's own layout, and
    that of a drafter which sees the same positions, keeps the two halves apart, so the rows are put back.
    """
    import gguf

    reader: Any = gguf.GGUFReader(str(path))
    raw = {tensor.name: tensor for tensor in reader.tensors}

    def field(name: str) -> Any:
        return reader.fields[f"llama.{name}"].contents()

    def read(name: str) -> Tensor:
        tensor = raw[name]
        values: Any = gguf.dequantize(tensor.data, tensor.tensor_type)
        weight: Tensor = torch.from_numpy(values.copy()).float()
        return weight

    heads = int(field("attention.head_count"))
    shape = TargetShape(
        layers=int(field("block_count")),
        width=int(field("embedding_length")),
        heads=heads,
        kv_heads=int(field("attention.head_count_kv")),
        head_dim=int(field("embedding_length")) // heads,
        mlp=int(field("feed_forward_length")),
        vocab=int(field("vocab_size")),
        theta=float(field("rope.freq_base")),
        eps=float(field("attention.layer_norm_rms_epsilon")),
    )

    def halves_apart(weight: Tensor) -> Tensor:
        pairs = weight.view(-1, shape.head_dim // 2, 2, weight.shape[1])
        return pairs.transpose(1, 2).reshape(weight.shape)

    layers = []
    for index in range(shape.layers):
        block = f"blk.{index}."
        q = halves_apart(read(block + "attn_q.weight"))
        k = halves_apart(read(block + "attn_k.weight"))
        layers.append(
            TargetLayer(
                qkv=torch.cat((q, k, read(block + "attn_v.weight"))),
                out=read(block + "attn_output.weight"),
                gate_up=torch.cat((read(block + "ffn_gate.weight"), read(block + "ffn_up.weight"))),
                down=read(block + "ffn_down.weight"),
                norm_attn=read(block + "attn_norm.weight"),
                norm_mlp=read(block + "ffn_norm.weight"),
            )
        )
    return Target(shape, read("token_embd.weight"), layers, read("output_norm.weight"))
