"""The target: a Llama on the CPU for one sequence, its cache open to tree verification.

Shapes follow the checkpoint's config (SmolLM2-135M: 30 layers, width 576, 9 heads and 3 key heads of 64).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fleetctl.ddtree.tree import compact
from fleetctl.standalone.layers import Linear, Rotary, attend, gated, rms_norm
from fleetctl.standalone.weights import Folder, rope_theta


@dataclass(frozen=True)
class _Layer:
    input_norm: Tensor
    qkv: Linear
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class Target:
    """A Llama for one sequence of at most ``positions`` tokens.

    ``capture``: layers after which the hidden state is kept for a drafter, in that order; may be empty.
    """

    def __init__(self, folder: Folder, positions: int, capture: list[int]) -> None:
        config = folder.config
        self.heads = int(config["num_attention_heads"])
        self.key_heads = int(config["num_key_value_heads"])
        self.width = int(config["hidden_size"])
        self.head_size = int(config.get("head_dim") or self.width // self.heads)
        self.eps = float(config["rms_norm_eps"])
        self.vocabulary = int(config["vocab_size"])
        self.positions = positions
        self.capture = capture
        self.embedding = folder.tensor("model.embed_tokens.weight")
        self.dtype = self.embedding.dtype
        tied = config.get("tie_word_embeddings", False)
        self.head = Linear(self.embedding if tied else folder.tensor("lm_head.weight"))
        self.norm = folder.tensor("model.norm.weight")
        self.layers = [_layer(folder, index) for index in range(int(config["num_hidden_layers"]))]
        self.rotary = Rotary(self.head_size, rope_theta(config), positions, self.dtype)
        shape = (len(self.layers), self.key_heads, positions, self.head_size)
        self.keys = torch.zeros(shape, dtype=self.dtype)
        self.values = torch.zeros(shape, dtype=self.dtype)

    def prefill(self, tokens: list[int], start: int) -> tuple[Tensor, Tensor]:
        """Cache a stretch of the prompt behind ``start`` tokens.

        Returns the last token's normed hidden state [1, width], for ``head``, and the features
        [rows, captured * width] of all.
        """
        rows = len(tokens)
        causal = torch.ones(rows, rows, dtype=torch.bool).tril_()
        hidden, features = self._pass(tokens, list(range(rows)), start, causal)
        return hidden[-1:], features

    def verify(self, tokens: list[int], depths: list[int], start: int, mask: Tensor) -> tuple[Tensor, Tensor]:
        """One pass over a draft tree behind ``start`` cached tokens; the first token is the tree's root.

        ``mask``: bool [rows, rows], who sees whom in the tree. Returns logits [rows, vocabulary] and features
        [rows, captured * width].
        """
        hidden, features = self._pass(tokens, depths, start, mask)
        return self.head(hidden), features

    def commit(self, start: int, path: list[int]) -> None:
        """Keep the rows of the accepted ``path`` of the last pass, which began at ``start``."""
        compact(self.keys, start, path)
        compact(self.values, start, path)

    def _pass(self, tokens: list[int], depths: list[int], start: int, mask: Tensor) -> tuple[Tensor, Tensor]:
        rows = len(tokens)
        end = start + rows
        positions = torch.tensor(depths) + start
        x = self.embedding[torch.tensor(tokens)]
        seen: Tensor | None = None
        if rows > 1:
            seen = torch.zeros(rows, end, dtype=self.dtype)
            seen[:, start:].masked_fill_(~mask, float("-inf"))
        captured: dict[int, Tensor] = {}
        split = [self.heads, self.key_heads, self.key_heads]
        for index, layer in enumerate(self.layers):
            qkv = layer.qkv(rms_norm(x, layer.input_norm, self.eps)).view(rows, -1, self.head_size)
            rotated = self.rotary.rotate(qkv[:, : split[0] + split[1]], positions)
            keys, values = self.keys[index], self.values[index]
            keys[:, start:end] = rotated[:, split[0] :].transpose(0, 1)
            values[:, start:end] = qkv[:, split[0] + split[1] :].transpose(0, 1)
            mixed = attend(rotated[:, : split[0]], keys[:, :end], values[:, :end], seen)
            x = x + layer.output(mixed)
            x = x + layer.down(gated(layer.gate_up(rms_norm(x, layer.mlp_norm, self.eps))))
            if index in self.capture:
                captured[index] = x
        features = (
            torch.cat([captured[index] for index in self.capture], dim=-1) if self.capture else x[:, :0]
        )
        return rms_norm(x, self.norm, self.eps), features


def _layer(folder: Folder, index: int) -> _Layer:
    def weight(name: str) -> Tensor:
        return folder.tensor(f"model.layers.{index}.{name}.weight")

    return _Layer(
        input_norm=weight("input_layernorm"),
        qkv=Linear(torch.cat([weight(f"self_attn.{name}_proj") for name in "qkv"])),
        output=Linear(weight("self_attn.o_proj")),
        mlp_norm=weight("post_attention_layernorm"),
        gate_up=Linear(torch.cat([weight("mlp.gate_proj"), weight("mlp.up_proj")])),
        down=Linear(weight("mlp.down_proj")),
    )
