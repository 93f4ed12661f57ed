"""The DFlash drafter: fills a block of positions in one pass, from the target's hidden states before it.

Module names are those of the weights file that SGLang's `DFlashDraftModel` reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from training.cache import attention_bias, grouped_attention
from training.target import TargetShape, rope_tables, rotate

ContextKV = Sequence[tuple[Tensor, Tensor]]
"""For each layer the context's keys and values, [B, kv, S, hd] each, keys normed and rotated."""


@dataclass(frozen=True)
class DrafterShape:
    """Sizes of a drafter. `theta` is 1e6 because SGLang 0.5.11 uses that whatever the file says."""

    target: TargetShape
    layers: int = 5
    mlp: int = 1536
    block: int = 16
    mask_token: int = 3
    feature_layers: tuple[int, ...] = (1, 8, 15, 22, 28)
    theta: float = 1_000_000.0


class Matrix(nn.Module):
    """A linear map without bias, applied in the input's precision; the weight stays as it is stored."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns) * columns**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype))


class Norm(nn.Module):
    """RMS norm over the last axis."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    """Grouped attention of the block over the context and itself, q and k normed per head."""

    def __init__(self, shape: TargetShape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.q_proj = Matrix(shape.heads * shape.head_dim, shape.width)
        self.k_proj = Matrix(shape.kv_heads * shape.head_dim, shape.width)
        self.v_proj = Matrix(shape.kv_heads * shape.head_dim, shape.width)
        self.o_proj = Matrix(shape.width, shape.heads * shape.head_dim)
        self.q_norm = Norm(shape.head_dim, shape.eps)
        self.k_norm = Norm(shape.head_dim, shape.eps)
        nn.init.zeros_(self.o_proj.weight)

    def heads(self, x: Tensor) -> Tensor:
        """[B, T, n * hd] -> [B, T, n, hd]."""
        return x.view(*x.shape[:2], -1, self.head_dim)

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, kv, T, hd] of the context's features or of the block's states [B, T, width]."""
        k = self.k_norm(self.heads(self.k_proj(x))).transpose(1, 2)
        return rotate(k, cos, sin), self.heads(self.v_proj(x)).transpose(1, 2)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, context: tuple[Tensor, Tensor], bias: Tensor
    ) -> Tensor:
        q = rotate(self.q_norm(self.heads(self.q_proj(x))).transpose(1, 2), cos, sin)
        k, v = self.keys_values(x, cos, sin)
        mixed = grouped_attention(q, torch.cat((context[0], k), 2), torch.cat((context[1], v), 2), bias)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out


class SwiGLU(nn.Module):
    """The gated MLP."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = Matrix(inner, width)
        self.up_proj = Matrix(inner, width)
        self.down_proj = Matrix(width, inner)
        nn.init.zeros_(self.down_proj.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DraftLayer(nn.Module):
    """One layer; attention's and the MLP's last maps start at zero, so an untrained layer passes through."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        t = shape.target
        self.input_layernorm = Norm(t.width, t.eps)
        self.post_attention_layernorm = Norm(t.width, t.eps)
        self.self_attn = Attention(t)
        self.mlp = SwiGLU(t.width, shape.mlp)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, context: tuple[Tensor, Tensor], bias: Tensor
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, context, bias)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Drafter(nn.Module):
    """Context features and a block's embeddings in, hidden states for the target's own head out."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.shape = shape
        t = shape.target
        self.fc = Matrix(t.width, len(shape.feature_layers) * t.width)
        self.hidden_norm = Norm(t.width, t.eps)
        self.layers = nn.ModuleList(DraftLayer(shape) for _ in range(shape.layers))
        self.norm = Norm(t.width, t.eps)

    def context(self, features: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Every layer's keys and values for features [B, S, K * width] at positions [B, S]."""
        cos, sin = self._tables(positions)
        x = self.hidden_norm(self.fc(features))
        return [layer.self_attn.keys_values(x, cos, sin) for layer in self._layers()]

    def forward(self, x: Tensor, positions: Tensor, context: ContextKV, mask: Tensor) -> Tensor:
        """Embeddings x [B, T, width] at positions [B, T] -> normed hidden states [B, T, width].

        mask [B, T, S + T] says what each block position sees of the S context columns and the T of x.
        """
        cos, sin = self._tables(positions)
        bias = attention_bias(mask, self.shape.target.heads, self.shape.target.kv_heads, x.dtype)
        for layer, layer_context in zip(self._layers(), context, strict=True):
            x = layer(x, cos, sin, layer_context, bias)
        hidden: Tensor = self.norm(x)
        return hidden

    def _layers(self) -> list[DraftLayer]:
        return [layer for layer in self.layers if isinstance(layer, DraftLayer)]

    def _tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rope_tables(positions, self.shape.target.head_dim, self.shape.theta)


def drafter_config(shape: DrafterShape) -> dict[str, object]:
    """The `config.json` that SGLang's drafter class reads."""
    t = shape.target
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": t.width,
        "intermediate_size": shape.mlp,
        "num_attention_heads": t.heads,
        "num_key_value_heads": t.kv_heads,
        "head_dim": t.head_dim,
        "num_hidden_layers": shape.layers,
        "num_target_layers": t.layers,
        "block_size": shape.block,
        "hidden_act": "silu",
        "attention_bias": False,
        "rms_norm_eps": t.eps,
        "rope_theta": shape.theta,
        "max_position_embeddings": 8192,
        "vocab_size": t.vocab,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "dtype": "bfloat16",
        "layer_types": ["full_attention"] * shape.layers,
        "dflash_config": {
            "mask_token_id": shape.mask_token,
            "target_layer_ids": list(shape.feature_layers),
        },
    }


def save_drafter(drafter: Drafter, channel_size: Tensor, folder: Path) -> None:
    """Write config.json and model.safetensors (bf16); `channel_size` [K * width] is folded into `fc`."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().float().cpu() for name, value in drafter.state_dict().items()}
    weights["fc.weight"] = weights["fc.weight"] / channel_size.float().cpu()
    save_file(
        {name: value.to(torch.bfloat16).contiguous() for name, value in weights.items()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(drafter_config(drafter.shape), indent=1) + "\n")


def load_drafter(folder: Path, target: TargetShape) -> Drafter:
    """A saved drafter in float32 on the CPU."""
    config = json.loads((folder / "config.json").read_text())
    shape = DrafterShape(
        target=target,
        layers=config["num_hidden_layers"],
        mlp=config["intermediate_size"],
        block=config["block_size"],
        mask_token=config["dflash_config"]["mask_token_id"],
        feature_layers=tuple(config["dflash_config"]["target_layer_ids"]),
        theta=config["rope_theta"],
    )
    drafter = Drafter(shape)
    drafter.load_state_dict({k: v.float() for k, v in load_file(folder / "model.safetensors").items()})
    return drafter.eval()
