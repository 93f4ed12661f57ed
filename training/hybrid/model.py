"""The hybrid model; its modules are called as the weights of a Qwen3.5 text model, below ``model.language_model``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.hybrid import delta
from training.hybrid.recipe import HybridShape
from training.target import rope_tables, rotate

Tables = tuple[Tensor, Tensor]


@dataclass
class Memory:
    """What decoding keeps: of each recurrent layer its state and its convolution's last inputs, of each attention
    layer its keys and values; ``column`` is where the next token stands, ``seen`` [B, size] which columns hold one."""

    states: dict[int, Tensor]
    windows: dict[int, Tensor]
    keys: dict[int, Tensor]
    values: dict[int, Tensor]
    seen: Tensor
    column: int = 0


class Norm(nn.Module):
    """RMS norm whose weight is its distance from 1."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), 1 + self.weight.float(), self.eps).to(x.dtype)


class GatedNorm(nn.Module):
    """RMS norm of the output of a head, times silu of its gate."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        wide = F.rms_norm(x.float(), (x.shape[-1],), self.weight.float(), self.eps)
        return (wide * F.silu(gate.float())).to(gate.dtype)


def linear(columns: int, rows: int, gain: float = 1.0) -> nn.Linear:
    """A map without bias."""
    made = nn.Linear(columns, rows, bias=False)
    nn.init.normal_(made.weight, std=gain * columns**-0.5)
    return made


class DeltaNet(nn.Module):
    """A recurrent layer: projections, a short causal convolution, the gated delta rule, a gated norm."""

    def __init__(self, s: HybridShape) -> None:
        super().__init__()
        self.s = s
        self.keys, self.values = s.key_heads * s.key_dim, s.value_heads * s.value_dim
        channels = 2 * self.keys + self.values
        self.in_proj_qkv = linear(s.width, channels)
        self.in_proj_z = linear(s.width, self.values)
        self.in_proj_b = linear(s.width, s.value_heads)
        self.in_proj_a = linear(s.width, s.value_heads)
        self.conv1d = nn.Conv1d(channels, channels, s.kernel, groups=channels, bias=False)
        self.dt_bias = nn.Parameter(torch.ones(s.value_heads))
        self.A_log = nn.Parameter(torch.empty(s.value_heads).uniform_(0.01, 16).log())
        self.norm = GatedNorm(s.value_dim, s.eps)
        self.out_proj = linear(self.values, s.width, 0.0)

    def forward(self, x: Tensor, valid: Tensor | None, memory: Memory | None, layer: int) -> Tensor:
        """``x`` [B, T, width]; steps where ``valid`` [B, T] is false leave the state as it was."""
        s, (batch, count, _) = self.s, x.shape
        mixed = self.in_proj_qkv(x).mT
        if valid is not None:
            mixed = mixed * valid[:, None]
        before = memory.windows[layer] if memory else mixed.new_zeros(*mixed.shape[:2], s.kernel - 1)
        window = torch.cat((before.to(mixed.dtype), mixed), -1)
        if memory:
            memory.windows[layer] = window[:, :, -(s.kernel - 1) :]
        mixed = F.silu(self._convolved(window, count)).mT
        q, k, v = torch.split(mixed, [self.keys, self.keys, self.values], -1)
        share = s.value_heads // s.key_heads
        q, k = (
            delta.normed(part.reshape(batch, count, -1, s.key_dim))
            .repeat_interleave(share, 2)
            .transpose(1, 2)
            for part in (q, k)
        )
        q = q * s.key_dim**-0.5
        v = v.reshape(batch, count, -1, s.value_dim).transpose(1, 2).float()
        beta = self.in_proj_b(x).float().sigmoid().mT
        g = -(self.A_log.float().exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias.float())).mT
        if valid is not None:
            beta, g = beta * valid[:, None], g * valid[:, None]
        with torch.autocast(x.device.type, enabled=False):
            out = self._recur(q, k, v, g, beta, memory, layer)
        z = self.in_proj_z(x).view(batch, count, -1, s.value_dim)
        mixed_out: Tensor = self.out_proj(self.norm(out.transpose(1, 2), z).flatten(2))
        return mixed_out

    def _convolved(self, window: Tensor, count: int) -> Tensor:
        """The causal convolution in float32, tap by tap: libraries' own for one channel a group train slowly."""
        taps = self.conv1d.weight.float()
        shifted = [window[:, :, tap : tap + count].float() * taps[:, :, tap] for tap in range(self.s.kernel)]
        return sum(shifted[1:], shifted[0])

    def _recur(
        self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, memory: Memory | None, layer: int
    ) -> Tensor:
        if memory is None:
            return delta.chunked(q, k, v, g, beta)[0]
        state = memory.states[layer]
        if q.shape[2] == 1:
            one, memory.states[layer] = delta.step(
                q[:, :, 0], k[:, :, 0], v[:, :, 0], g[:, :, 0], beta[:, :, 0], state
            )
            return one[:, :, None]
        out, memory.states[layer] = delta.chunked(q, k, v, g, beta, state)
        return out


class Attention(nn.Module):
    """Grouped attention with normed q and k, a part of each head rotated, and a gate on what comes out."""

    def __init__(self, s: HybridShape) -> None:
        super().__init__()
        self.s = s
        self.q_proj = linear(s.width, 2 * s.heads * s.head_dim)
        self.k_proj = linear(s.width, s.kv_heads * s.head_dim)
        self.v_proj = linear(s.width, s.kv_heads * s.head_dim)
        self.o_proj = linear(s.heads * s.head_dim, s.width, 0.0)
        self.q_norm, self.k_norm = Norm(s.head_dim, s.eps), Norm(s.head_dim, s.eps)

    def forward(self, x: Tensor, tables: Tables, memory: Memory | None, layer: int) -> Tensor:
        s, (batch, count, _) = self.s, x.shape
        q, gate = self.q_proj(x).view(batch, count, s.heads, 2 * s.head_dim).chunk(2, -1)
        q = self._rotated(self.q_norm(q).transpose(1, 2), tables)
        k = self._rotated(
            self.k_norm(self.k_proj(x).view(batch, count, -1, s.head_dim)).transpose(1, 2), tables
        )
        v = self.v_proj(x).view(batch, count, -1, s.head_dim).transpose(1, 2)
        if memory is None:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            out = self._remembered(q, k, v, memory, layer)
        out = out.transpose(1, 2).reshape(batch, count, -1) * gate.reshape(batch, count, -1).sigmoid()
        mixed: Tensor = self.o_proj(out)
        return mixed

    def _rotated(self, x: Tensor, tables: Tables) -> Tensor:
        turned = int(self.s.head_dim * self.s.rotary)
        return torch.cat((rotate(x[..., :turned], *tables), x[..., turned:]), -1)

    def _remembered(self, q: Tensor, k: Tensor, v: Tensor, memory: Memory, layer: int) -> Tensor:
        first, count = memory.column, q.shape[2]
        memory.keys[layer][:, :, first : first + count] = k
        memory.values[layer][:, :, first : first + count] = v
        columns = torch.arange(first + count, device=q.device)
        causal = columns <= columns[first:, None]
        mask = causal[None] & memory.seen[:, None, : first + count]
        mask |= columns == columns[first:, None]  # padding sees itself, so that nothing is undefined
        seen = slice(0, first + count)
        k, v = memory.keys[layer][:, :, seen], memory.values[layer][:, :, seen]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], enable_gqa=True)


class MLP(nn.Module):
    """The gated MLP."""

    def __init__(self, s: HybridShape) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = linear(s.width, s.mlp), linear(s.width, s.mlp)
        self.down_proj = linear(s.mlp, s.width, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """A mixer and an MLP, each behind its norm."""

    def __init__(self, s: HybridShape, index: int) -> None:
        super().__init__()
        self.index = index
        if s.is_attention(index):
            self.self_attn = Attention(s)
        else:
            self.linear_attn = DeltaNet(s)
        self.mlp = MLP(s)
        self.input_layernorm, self.post_attention_layernorm = Norm(s.width, s.eps), Norm(s.width, s.eps)

    def forward(self, x: Tensor, tables: Tables, valid: Tensor | None, memory: Memory | None) -> Tensor:
        before = self.input_layernorm(x)
        if hasattr(self, "self_attn"):
            x = x + self.self_attn(before, tables, memory, self.index)
        else:
            x = x + self.linear_attn(before, valid, memory, self.index)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Hybrid(nn.Module):
    """Token ids in; final hidden states, and those after chosen layers, out."""

    def __init__(self, shape: HybridShape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab, shape.width)
        nn.init.normal_(self.embed_tokens.weight, std=0.5)
        self.layers = nn.ModuleList(Layer(shape, index) for index in range(shape.layers))
        self.norm = Norm(shape.width, shape.eps)
        self.lm_head = linear(shape.width, shape.vocab)

    def forward(
        self,
        ids: Tensor,
        positions: Tensor | None = None,
        valid: Tensor | None = None,
        memory: Memory | None = None,
        feature_layers: Sequence[int] = (),
    ) -> tuple[Tensor, Tensor | None]:
        """``ids`` [B, T] → normed states [B, T, width] for ``lm_head``, features [B, T, layers · width] or None.

        ``positions`` [B, T] from 0 unless given; where ``valid`` [B, T] is false there is padding, on the left.
        """
        s = self.shape
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        x = self.embed_tokens(ids)
        cos, sin = rope_tables(positions, int(s.head_dim * s.rotary), s.theta)
        kept = []
        for index, layer in enumerate(self.layers):
            x = layer(x, (cos, sin), valid, memory)
            if index in feature_layers:
                kept.append(x)
        if memory is not None:
            memory.column += ids.shape[1]
        return self.norm(x), torch.cat(kept, -1) if kept else None

    def memory(self, batch: int, size: int) -> Memory:
        """Room for ``batch`` rows of ``size`` tokens, with nothing in it."""
        s, weight = self.shape, self.embed_tokens.weight
        made = Memory({}, {}, {}, {}, torch.zeros(batch, size, dtype=torch.bool, device=weight.device))
        channels = 2 * s.key_heads * s.key_dim + s.value_heads * s.value_dim
        for layer in range(s.layers):
            if s.is_attention(layer):
                empty = weight.new_zeros(batch, s.kv_heads, size, s.head_dim)
                made.keys[layer], made.values[layer] = empty, empty.clone()
            else:
                state = (batch, s.value_heads, s.key_dim, s.value_dim)
                made.states[layer] = torch.zeros(state, device=weight.device)
                made.windows[layer] = weight.new_zeros(batch, channels, s.kernel - 1)
        return made
