"""Does each node of a draft tree see exactly its own root path? SGLang's own hybrid kernels, trees of ours.

For random drafts, every node's convolution and gated-delta-rule output is compared with the same root path run
alone as a chain: in order as DFLASH runs it (the leak), and forked by the links of ``ddtree_utils``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sglang.srt.layers.attention.fla.fused_sigmoid_gating_recurrent import (
    fused_sigmoid_gating_delta_rule_update,
)
from sglang.srt.layers.attention.mamba.causal_conv1d_triton import causal_conv1d_update
from sglang.srt.speculative.ddtree_utils import build_trees, links, ranked_log_probs

from benchmarks.gpu.results import Results

HEADS, VALUE_HEADS, KEY, VALUE, WINDOW = 2, 4, 128, 128, 4
WIDTH = 2 * HEADS * KEY + VALUE_HEADS * VALUE
REQUESTS = 2
BUDGETS = (7, 15, 16, 32, 64)


@dataclass
class Layer:
    """Random weights, inputs of every row, and the states before the pass."""

    x: torch.Tensor
    weight: torch.Tensor
    window: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    a_log: torch.Tensor
    bias: torch.Tensor
    state: torch.Tensor


def layer(rows: int, seed: int, dtype: torch.dtype) -> Layer:
    """One gated-delta-net layer's tensors on the GPU; states in ``dtype``."""
    g = torch.Generator("cuda").manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g, device="cuda", dtype=torch.float32)

    half = torch.bfloat16
    return Layer(
        x=normal(REQUESTS, rows, WIDTH).to(half),
        weight=(normal(WIDTH, WINDOW) / 2).to(half),
        window=normal(REQUESTS + 2, WIDTH, WINDOW - 1).to(half),
        a=normal(REQUESTS, rows, VALUE_HEADS).to(half),
        b=normal(REQUESTS, rows, VALUE_HEADS).to(half),
        a_log=torch.rand(VALUE_HEADS, generator=g, device="cuda"),
        bias=torch.rand(VALUE_HEADS, generator=g, device="cuda"),
        state=(normal(REQUESTS + 2, VALUE_HEADS, KEY, VALUE) / 10).to(dtype),
    )


def outputs(
    given: Layer, requests: list[int], rows: torch.Tensor, tree: tuple[torch.Tensor, torch.Tensor] | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(convolution, recurrence) of a verify pass over ``rows`` [requests, n]; ``tree``: its links, or a chain."""
    count, n = rows.shape
    at = torch.tensor(requests, device="cuda")
    slots = (at + 1).to(torch.int32)
    index = torch.arange(count, device="cuda", dtype=torch.int32)
    x = given.x[at[:, None], rows].transpose(1, 2)
    windows = torch.zeros(count + 1, n, WIDTH, WINDOW - 1, device="cuda", dtype=torch.bfloat16)
    forked: dict[str, Any] = {}
    if tree is not None:
        parents = torch.zeros(count, n, device="cuda", dtype=torch.int64)
        forked = {
            "retrieve_next_token": tree[0],
            "retrieve_next_sibling": tree[1],
            "retrieve_parent_token": parents,
        }
    mixed = causal_conv1d_update(
        x.contiguous().transpose(1, 2).contiguous().transpose(1, 2),
        given.window.clone(),
        given.weight,
        None,
        "silu",
        conv_state_indices=slots,
        intermediate_conv_window=windows,
        intermediate_state_indices=index,
        **forked,
    )
    flat = mixed.transpose(1, 2).reshape(count * n, WIDTH)
    q, k, v = flat.split([HEADS * KEY, HEADS * KEY, VALUE_HEADS * VALUE], -1)
    states = torch.zeros(count + 1, n, VALUE_HEADS, KEY, VALUE, device="cuda", dtype=given.state.dtype)
    out = fused_sigmoid_gating_delta_rule_update(
        A_log=given.a_log,
        a=given.a[at[:, None], rows].reshape(count * n, VALUE_HEADS),
        dt_bias=given.bias,
        softplus_beta=1.0,
        softplus_threshold=20.0,
        q=q.reshape(1, count * n, HEADS, KEY).contiguous(),
        k=k.reshape(1, count * n, HEADS, KEY).contiguous(),
        v=v.reshape(1, count * n, VALUE_HEADS, VALUE).contiguous(),
        b=given.b[at[:, None], rows].reshape(count * n, VALUE_HEADS),
        initial_state_source=given.state.clone(),
        initial_state_indices=slots,
        use_qk_l2norm_in_kernel=True,
        cu_seqlens=torch.arange(0, count * n + 1, n, device="cuda", dtype=torch.int32),
        disable_state_update=True,
        intermediate_states_buffer=states,
        intermediate_state_indices=index,
        cache_steps=n,
        retrieve_parent_token=forked.get("retrieve_parent_token"),
    )
    return flat.view(count, n, WIDTH), out.reshape(count, n, VALUE_HEADS, VALUE)


def wrong_nodes(budget: int, seed: int, dtype: torch.dtype, fork: bool) -> tuple[int, int, float]:
    """(nodes, those with a wrong output, the worst relative error) of random trees of that budget."""
    logits = torch.randn(REQUESTS, 15, 64, generator=torch.Generator().manual_seed(seed)) * 2
    log_probs, tokens, _ = ranked_log_probs(logits.cuda(), 8)
    trees = build_trees(torch.tensor([1, 2], device="cuda"), log_probs, tokens, budget)
    given = layer(budget + 1, seed, dtype)
    every = torch.arange(budget + 1, device="cuda").expand(REQUESTS, -1)
    mixed, out = outputs(given, [0, 1], every, links(trees) if fork else None)
    nodes = wrong = 0
    worst = 0.0
    for request in range(REQUESTS):
        parents = trees.parents[request].tolist()
        for node in range(int(trees.counts[request])):
            path = [node]
            while parents[path[0]] >= 0:
                path.insert(0, parents[path[0]])
            own_mixed, own = outputs(given, [request], torch.tensor([path], device="cuda"), None)
            errors = [
                float((one.float() - other.float()).norm() / other.float().norm().clamp(min=1e-6))
                for one, other in (
                    (mixed[request, node], own_mixed[0, -1]),
                    (out[request, node], own[0, -1]),
                )
            ]
            nodes += 1
            wrong += max(errors) > 1e-2
            worst = max(worst, *errors)
    return nodes, wrong, worst


def measure(out: Path) -> dict[str, Any]:
    """Write ``node-context.json``: how many nodes of trees of each budget see a wrong state."""
    results = Results(out, "node-context")
    cases = (
        ("in order, as a chain (the leak)", torch.float32, False),
        ("forked by parent", torch.float32, True),
        ("forked by parent, bfloat16 states", torch.bfloat16, True),
    )
    for name, dtype, fork in cases:
        if results.has(name):
            continue
        figures = {}
        for budget in BUDGETS:
            found = [wrong_nodes(budget, seed, dtype, fork) for seed in range(2 if budget < 32 else 1)]
            nodes, wrong = sum(entry[0] for entry in found), sum(entry[1] for entry in found)
            worst = max(entry[2] for entry in found)
            figures[str(budget)] = {"nodes": nodes, "wrong": wrong, "worst": worst}
            print(f"{name}, budget {budget}: {wrong} of {nodes} nodes wrong, worst {worst:.1e}", flush=True)
        results.put(name, figures)
    return results.data
