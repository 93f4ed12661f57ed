"""The DFlash drafter (arXiv 2602.06036): one pass fills a block of tokens behind the last committed one.

It reads the target's hidden states of every committed token (its context), has the target's embedding and head, and
attends in both directions inside the block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fleetctl.standalone.layers import Linear, Rotary, attend, gated, rms_norm
from fleetctl.standalone.target import Target
from fleetctl.standalone.weights import Folder, ModelError, rope_theta


@dataclass(frozen=True)
class _Layer:
    input_norm: Tensor
    query: Linear
    key_value: Linear
    query_norm: Tensor
    key_norm: Tensor
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class Drafter:
    """A DFlash drafter in SGLang's layout, for the same sequence as ``target``."""

    def __init__(self, folder: Folder, target: Target) -> None:
        config = folder.config
        self.target = target
        self.block = int(config["block_size"])
        self.mask_token = int(config["dflash_config"]["mask_token_id"])
        self.heads = int(config["num_attention_heads"])
        self.key_heads = int(config["num_key_value_heads"])
        self.head_size = int(config["head_dim"])
        self.eps = float(config["rms_norm_eps"])
        if int(config["hidden_size"]) != target.width:
            raise ModelError(
                f"{folder.path / 'config.json'}: the drafter's width is {config['hidden_size']}, "
                f"the target's {target.width}; it was made for another target"
            )
        self.projection = Linear(folder.tensor("fc.weight"))
        self.context_norm = folder.tensor("hidden_norm.weight")
        self.norm = folder.tensor("norm.weight")
        self.layers = [_layer(folder, index) for index in range(int(config["num_hidden_layers"]))]
        positions = target.positions + self.block
        self.rotary = Rotary(self.head_size, rope_theta(config), positions, target.dtype)
        shape = (len(self.layers), self.key_heads, positions, self.head_size)
        self.keys = torch.zeros(shape, dtype=target.dtype)
        self.values = torch.zeros(shape, dtype=target.dtype)

    def extend(self, features: Tensor, start: int) -> None:
        """Add the target's features [rows, captured * width] of the tokens at ``start`` … to the context."""
        end = start + features.shape[0]
        context = rms_norm(self.projection(features), self.context_norm, self.eps)
        positions = torch.arange(start, end)
        for index in range(len(self.layers)):
            key, value = self._key_value(index, context, positions)
            self.keys[index, :, start:end] = key
            self.values[index, :, start:end] = value

    def draft(self, token: int, start: int) -> Tensor:
        """Logits [block - 1, vocabulary] of the tokens after ``token``, which stands at position ``start``."""
        end = start + self.block
        positions = torch.arange(start, end)
        x = self.target.embedding[torch.tensor([token] + [self.mask_token] * (self.block - 1))]
        for index, layer in enumerate(self.layers):
            normed = rms_norm(x, layer.input_norm, self.eps)
            query = layer.query(normed).view(self.block, self.heads, self.head_size)
            query = self.rotary.rotate(rms_norm(query, layer.query_norm, self.eps), positions)
            key, value = self._key_value(index, normed, positions)
            self.keys[index, :, start:end] = key
            self.values[index, :, start:end] = value
            mixed = attend(query, self.keys[index, :, :end], self.values[index, :, :end], None)
            x = x + layer.output(mixed)
            x = x + layer.down(gated(layer.gate_up(rms_norm(x, layer.mlp_norm, self.eps))))
        return self.target.head(rms_norm(x[1:], self.norm, self.eps))

    def _key_value(self, index: int, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Keys, normed and rotated, and values, each [key heads, rows, head size]."""
        layer = self.layers[index]
        both = layer.key_value(x).view(x.shape[0], 2, self.key_heads, self.head_size)
        key = self.rotary.rotate(rms_norm(both[:, 0], layer.key_norm, self.eps), positions)
        return key.transpose(0, 1), both[:, 1].transpose(0, 1)


def _layer(folder: Folder, index: int) -> _Layer:
    def weight(name: str) -> Tensor:
        return folder.tensor(f"layers.{index}.{name}.weight")

    return _Layer(
        input_norm=weight("input_layernorm"),
        query=Linear(weight("self_attn.q_proj")),
        key_value=Linear(torch.cat([weight("self_attn.k_proj"), weight("self_attn.v_proj")])),
        query_norm=weight("self_attn.q_norm"),
        key_norm=weight("self_attn.k_norm"),
        output=Linear(weight("self_attn.o_proj")),
        mlp_norm=weight("post_attention_layernorm"),
        gate_up=Linear(torch.cat([weight("mlp.gate_proj"), weight("mlp.up_proj")])),
        down=Linear(weight("mlp.down_proj")),
    )
