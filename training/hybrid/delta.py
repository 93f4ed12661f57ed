"""The gated delta rule: a state S of keys × values that decays, forgets what a key held, and takes its new value.

S_t = S_{t-1}·exp(g_t); S_t += k_t ⊗ β_t(v_t − k_t·S_t); o_t = q_t·S_t, as in Gated DeltaNet (arXiv 2412.06464).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 64


def normed(x: Tensor) -> Tensor:
    """Rows of length 1, in float32; the small addend is that of SGLang's kernels."""
    x = x.float()
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def chunked(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """All steps of a sequence, chunk by chunk, with gradients.

    ``q``, ``k`` [B, H, T, K] (normed, q scaled), ``v`` [B, H, T, V], ``g`` (log of the decay, at most 0) and ``beta``
    [B, H, T], all float32; a step with g = 0 and beta = 0 leaves the state as it is. Returns outputs [B, H, T, V]
    and the last state [B, H, K, V].
    """
    batch, heads, count, width = q.shape
    pad = -count % CHUNK
    if pad:
        q, k, v = (F.pad(x, (0, 0, 0, pad)) for x in (q, k, v))
        g, beta = (F.pad(x, (0, pad)) for x in (g, beta))

    def cut(x: Tensor) -> Tensor:
        return x.reshape(batch, heads, -1, CHUNK, *x.shape[3:])

    q, k, v, g, beta = (cut(x) for x in (q, k, v, g, beta))
    total = g.cumsum(-1)
    # decay[i, j]: from just after step j to step i of a chunk
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).triu(1)
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(later, -torch.inf).exp()
    weighted = k * beta[..., None]
    system = (weighted @ k.mT) * decay
    # What step i writes depends on what the steps before it wrote: a unit lower triangular system.
    right = torch.cat((v * beta[..., None], weighted * total.exp()[..., None]), -1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    written, read = solved.split([v.shape[-1], width], -1)
    inside = (q @ k.mT) * decay
    q = q * total.exp()[..., None]
    k = k * (total[..., -1:] - total).exp()[..., None]
    through = total[..., -1].exp()[..., None, None]
    if state is None:
        state = v.new_zeros(batch, heads, width, v.shape[-1])
    outputs = []
    for chunk in range(q.shape[2]):
        fresh = written[:, :, chunk] - read[:, :, chunk] @ state
        outputs.append(q[:, :, chunk] @ state + inside[:, :, chunk] @ fresh)
        state = state * through[:, :, chunk] + k[:, :, chunk].mT @ fresh
    return torch.cat(outputs, 2)[:, :, :count], state


def step(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One step: ``q``, ``k`` [B, H, K], ``v`` [B, H, V], ``g``, ``beta`` [B, H]; (output [B, H, V], next state)."""
    state = state * g.exp()[..., None, None]
    held = (k[..., None, :] @ state).squeeze(-2)
    state = state + k[..., :, None] * ((v - held) * beta[..., None])[..., None, :]
    return (q[..., None, :] @ state).squeeze(-2), state
