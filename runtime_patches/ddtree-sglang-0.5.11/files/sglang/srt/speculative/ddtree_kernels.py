"""Triton kernels that do in one launch each what torch does in many: build, mask, walk, and walk with the commit.

One program a request. The builder is the heap itself: the frontier lies in registers, one place a node that
was popped (its next sibling takes the place it had) and one for each first child. Same order, same float64
sums, same trees as ``ddtree_utils.build_trees``; ``ddtree_check.self_check`` compares the two at start.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from sglang.srt.speculative.ddtree_commit import Commit
from sglang.srt.speculative.ddtree_utils import TreeBatch


@triton.jit(do_not_specialize=["depths", "width", "budget", "free"])
def _build(
    log_probs,  # float32 [requests, depths, k]
    names,  # int64 [requests, depths, k]
    roots,  # int64 [requests]
    lengths,  # int [requests]: the prefix of each
    out_tokens,  # int64 [requests, rows], and the four below
    out_parents,
    out_depths,
    out_child,
    out_sibling,
    out_positions,
    out_counts,  # int64 [requests]
    out_seen,  # bool [requests, rows, rows]
    depths,
    width,
    budget,
    free,  # how many nodes may lie off the spine
    min_score,
    SPINE: tl.constexpr,
    ROWS: tl.constexpr,  # a power of two above budget
):
    request = tl.program_id(0)
    rows = budget + 1
    table = log_probs + request * depths * width
    words = names + request * depths * width
    root = tl.load(roots + request)
    row = tl.arange(0, ROWS)
    lowest = float("-inf")

    # The frontier. An entry's order among equal scores is packed in one number: depth, parent, rank.
    best = tl.load(table).to(tl.float64)
    best = tl.where(best != best, lowest, best)
    score = tl.where(row == 0, best, lowest)
    base = tl.zeros([ROWS], tl.float64)
    order = tl.where(row == 0, 1 << 20, 0).to(tl.int32)
    is_open = row == 0
    straight = row == 0

    tokens = tl.zeros([ROWS], tl.int64) + root
    parents = tl.where(row == 0, -1, 0).to(tl.int32)
    level = tl.zeros([ROWS], tl.int32)
    child = tl.full([ROWS], -1, tl.int32)
    sibling = tl.full([ROWS], -1, tl.int32)
    youngest = tl.full([ROWS], -1, tl.int32)
    seen = (row[:, None] == row[None, :]).to(tl.int32)
    count = tl.sum((row == 0).to(tl.int32), axis=0)

    for node in range(1, rows):
        allowed = is_open & (score > lowest)
        if SPINE:
            allowed = allowed & (straight | ((score >= min_score) & (free > 0)))
        else:
            allowed = allowed & (score >= min_score)
        allowed = allowed | (is_open & (node == 1))
        top = tl.max(tl.where(allowed, score, lowest), axis=0)
        tied = allowed & (score == top)
        key = tl.min(tl.where(tied, order, 1 << 30), axis=0)
        if key < (1 << 30):
            taken = tied & (order == key)
            depth = key >> 20
            parent = (key >> 10) & 1023
            rank = key & 1023
            on_spine = tl.max((taken & straight).to(tl.int32), axis=0)
            below = tl.sum(tl.where(taken, base, 0.0), axis=0)
            token = tl.load(words + (depth - 1) * width + rank)

            here = row == node
            tokens = tl.where(here, token, tokens)
            parents = tl.where(here, parent, parents)
            level = tl.where(here, depth, level)
            elder = tl.sum(tl.where(row == parent, youngest, 0), axis=0)
            child = tl.where((row == parent) & (elder < 0), node, child)
            sibling = tl.where((row == elder) & (elder >= 0), node, sibling)
            youngest = tl.where(row == parent, node, youngest)
            line = tl.max(tl.where(row[:, None] == parent, seen, 0), axis=0)
            seen = tl.where(here[:, None], tl.maximum(line[None, :], seen), seen)

            more = rank + 1 < width
            beside = tl.load(table + (depth - 1) * width + rank + 1, mask=more, other=lowest).to(tl.float64)
            beside = tl.where(beside != beside, lowest, beside)
            deeper = depth < depths
            under = tl.load(table + depth * width, mask=deeper, other=lowest).to(tl.float64)
            under = tl.where(under != under, lowest, under)
            score = tl.where(taken, below + beside, score)
            order = tl.where(taken, key + 1, order)
            is_open = tl.where(taken, more, is_open)
            straight = straight & ~taken
            score = tl.where(here, top + under, score)
            base = tl.where(here, top, base)
            order = tl.where(here, ((depth + 1) << 20) | (node << 10), order)
            is_open = tl.where(here, deeper, is_open)
            straight = straight | (here & (on_spine > 0))
            free -= 1 - on_spine
            count += 1

    real = row < rows
    at = request * rows + row
    prefix = tl.load(lengths + request).to(tl.int64)
    tl.store(out_tokens + at, tokens, mask=real)
    tl.store(out_parents + at, parents.to(tl.int64), mask=real)
    tl.store(out_depths + at, level.to(tl.int64), mask=real)
    tl.store(out_child + at, child.to(tl.int64), mask=real)
    tl.store(out_sibling + at, sibling.to(tl.int64), mask=real)
    tl.store(out_positions + at, prefix + level, mask=real)
    tl.store(out_counts + request, count.to(tl.int64))

    # A padding row sees itself and the root.
    seen = seen | ((row[:, None] >= count) & (row[None, :] == 0)).to(tl.int32)
    square = real[:, None] & real[None, :]
    shown = seen > 0
    tl.store(out_seen + (request * rows + row[:, None]) * rows + row[None, :], shown, mask=square)


@triton.jit(do_not_specialize=["rows"])
def _mask(
    seen,  # bool [requests, rows, rows]
    lengths,  # int [requests]: the prefix of each
    out_mask,  # bool or uint8, at least sum of rows * (prefix + rows)
    rows,
    ROWS: tl.constexpr,
    BATCH: tl.constexpr,  # a power of two, at least requests
    CHUNK: tl.constexpr,
):
    request = tl.program_id(0)
    row = tl.program_id(1)
    prefix = tl.load(lengths + request).to(tl.int32)
    others = tl.arange(0, BATCH)
    before = tl.load(lengths + others, mask=others < request, other=0).to(tl.int64)
    start = rows * (tl.sum(before, axis=0) + request * rows) + row * (prefix + rows).to(tl.int64)
    place = tl.arange(0, CHUNK)
    for first in range(0, prefix, CHUNK):
        ones = tl.full([CHUNK], 1, tl.int1)
        tl.store(out_mask + start + first + place, ones, mask=first + place < prefix)
    column = tl.arange(0, ROWS)
    shown = tl.load(seen + (request * rows + row) * rows + column, mask=column < rows, other=0)
    tl.store(out_mask + start + prefix + column, shown, mask=column < rows)


@triton.jit(do_not_specialize=["rows", "steps"])
def _walk(
    tokens,  # int64 [requests, rows]
    parents,
    counts,  # int64 [requests]
    seen,  # bool [requests, rows, rows]
    predicted,  # int64 [requests, rows]
    out,  # int64 [requests, 2 * steps + 2]: nodes, their tokens, how many, the next token
    rows,
    steps,
    ROWS: tl.constexpr,
):
    request = tl.program_id(0)
    row = tl.arange(0, ROWS)
    real = row < rows
    at = request * rows + row
    token = tl.load(tokens + at, mask=real, other=0)
    parent = tl.load(parents + at, mask=real, other=0)
    expected = tl.load(predicted + request * rows + tl.maximum(parent, 0), mask=real, other=0)
    wrong = (token != expected) | (row >= tl.load(counts + request))
    wrong = wrong & (row > 0)
    above = tl.load(
        seen + (request * rows + row[:, None]) * rows + row[None, :],
        mask=real[:, None] & real[None, :],
        other=0,
    ).to(tl.int32)
    kept = (tl.max(above * wrong[None, :].to(tl.int32), axis=1) == 0) & real
    rank = tl.cumsum(kept.to(tl.int32), axis=0) - 1
    taken = tl.sum(kept.to(tl.int32), axis=0)
    last = tl.max(tl.where(kept, row, 0), axis=0)
    line = out + request * (2 * steps + 2)
    tl.store(line + rank, row.to(tl.int64), mask=kept)
    tl.store(line + steps + rank, token, mask=kept)
    tl.store(line + 2 * steps, taken.to(tl.int64))
    tl.store(line + 2 * steps + 1, tl.load(predicted + request * rows + last))


@triton.jit(do_not_specialize=["rows", "steps", "stride"])
def _commit(
    tokens,  # int64 [requests, rows]
    parents,
    counts,  # int64 [requests]
    seen,  # bool [requests, rows, rows]
    predicted,  # int64 [requests, rows]
    lengths,  # int [requests]: the prefix of each
    pools,  # int [requests]: each one's row of table
    slots,  # int [requests, rows]: the cache slots of the pass
    table,  # int [pools, positions]: the slots of each request by position
    out_lines,  # int64 [requests, 2 * steps + 2], zeros; so are the three below
    out_rows,  # int64 [requests, steps]
    out_slots,
    out_positions,
    out_dropped,  # int64 [requests, rows]
    rows,
    steps,
    stride,
    ROWS: tl.constexpr,
):
    request = tl.program_id(0)
    row = tl.arange(0, ROWS)
    real = row < rows
    at = request * rows + row
    token = tl.load(tokens + at, mask=real, other=0)
    parent = tl.load(parents + at, mask=real, other=0)
    expected = tl.load(predicted + request * rows + tl.maximum(parent, 0), mask=real, other=0)
    wrong = (token != expected) | (row >= tl.load(counts + request))
    wrong = wrong & (row > 0)
    above = tl.load(
        seen + (request * rows + row[:, None]) * rows + row[None, :],
        mask=real[:, None] & real[None, :],
        other=0,
    ).to(tl.int32)
    kept = (tl.max(above * wrong[None, :].to(tl.int32), axis=1) == 0) & real
    rank = tl.cumsum(kept.to(tl.int32), axis=0) - 1
    taken = tl.sum(kept.to(tl.int32), axis=0)
    last = tl.max(tl.where(kept, row, 0), axis=0)
    line = out_lines + request * (2 * steps + 2)
    tl.store(line + rank, row.to(tl.int64), mask=kept)
    tl.store(line + steps + rank, token, mask=kept)
    tl.store(line + 2 * steps, taken.to(tl.int64))
    tl.store(line + 2 * steps + 1, tl.load(predicted + request * rows + last))

    slot = tl.load(slots + at, mask=real, other=0)
    prefix = tl.load(lengths + request).to(tl.int64)
    pool = tl.load(pools + request).to(tl.int64)
    tl.store(table + pool * stride + prefix + rank, slot, mask=kept)
    # Behind the path stand the root's row, slot 0 and position 0.
    behind_path = (row >= taken) & (row < steps)
    tl.store(out_rows + request * steps + row, (request * rows + row * 0).to(tl.int64), mask=behind_path)
    place = request * steps + rank
    tl.store(out_rows + place, at.to(tl.int64), mask=kept)
    tl.store(out_slots + place, slot.to(tl.int64), mask=kept)
    tl.store(out_positions + place, prefix + rank, mask=kept)
    lost = real & (kept == 0)
    behind = tl.cumsum(lost.to(tl.int32), axis=0) - 1
    tl.store(out_dropped + request * rows + behind, slot.to(tl.int64), mask=lost)


def commit(
    trees: TreeBatch,
    seen: torch.Tensor,
    predicted: torch.Tensor,
    lengths: torch.Tensor,
    pools: torch.Tensor,
    slots: torch.Tensor,
    table: torch.Tensor,
    steps: int,
) -> Commit:
    """``walk``, ``ddtree_commit.commit`` and ``.write_table`` in one launch; ``slots`` [requests, rows]."""
    requests, rows = trees.tokens.shape
    width = 2 * steps + 2
    made = torch.zeros(requests * (width + 3 * steps + rows), dtype=torch.int64, device=predicted.device)
    lines, kept_rows, kept_slots, positions, dropped = (
        part.view(requests, -1)
        for part in made.split([requests * size for size in (width, steps, steps, steps, rows)])
    )
    padded = triton.next_power_of_2(rows)
    _commit[(requests,)](
        trees.tokens,
        trees.parents,
        trees.counts,
        seen,
        predicted,
        lengths,
        pools,
        slots,
        table,
        lines,
        kept_rows,
        kept_slots,
        positions,
        dropped,
        rows,
        steps,
        table.stride(0),
        ROWS=padded,
        num_warps=4 if padded <= 64 else 8,
    )
    return Commit(lines, kept_rows, kept_slots, positions, dropped)


def mask_of(seen: torch.Tensor, lengths: torch.Tensor, total: int) -> torch.Tensor:
    """``ddtree_utils.flat_mask`` in one launch."""
    mask = torch.empty(total, dtype=torch.bool, device=seen.device)
    write_mask(seen, lengths, mask)
    return mask


def write_mask(seen: torch.Tensor, lengths: torch.Tensor, mask: torch.Tensor) -> None:
    """``ddtree_utils.flat_mask`` into the beginning of ``mask``, bool or uint8; the rest of it stays."""
    requests, rows, _ = seen.shape
    _mask[(requests, rows)](
        seen,
        lengths,
        mask,
        rows,
        ROWS=triton.next_power_of_2(rows),
        BATCH=triton.next_power_of_2(requests),
        CHUNK=1024,
        num_warps=4,
    )


def build(
    roots: torch.Tensor,
    log_probs: torch.Tensor,
    names: torch.Tensor,
    lengths: torch.Tensor,
    *,
    budget: int,
    min_score: float,
    spine: bool,
) -> tuple[TreeBatch, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(trees, first child, next sibling, positions, ancestors). Scores are not kept: the trees' are zeros."""
    requests, depths, width = log_probs.shape
    rows = budget + 1
    made = torch.empty(6, requests, rows, dtype=torch.int64, device=log_probs.device)
    counts = torch.empty(requests, dtype=torch.int64, device=log_probs.device)
    seen = torch.empty(requests, rows, rows, dtype=torch.bool, device=log_probs.device)
    padded = triton.next_power_of_2(rows)
    _build[(requests,)](
        log_probs.float().contiguous(),
        names.contiguous(),
        roots,
        lengths,
        *made.unbind(0),
        counts,
        seen,
        depths,
        width,
        budget,
        budget - min(depths, budget) if spine else budget,
        min_score,
        SPINE=spine,
        ROWS=padded,
        num_warps=4 if padded <= 64 else 8,
    )
    tokens, parents, depth, child, sibling, positions = made.unbind(0)
    trees = TreeBatch(tokens, parents, depth, torch.zeros_like(tokens, dtype=torch.float64), counts)
    return trees, child, sibling, positions, seen


def walk(trees: TreeBatch, seen: torch.Tensor, predicted: torch.Tensor, steps: int) -> torch.Tensor:
    """int64 [requests, 2 * steps + 2]: the path's nodes, their tokens, its length, the next token.

    ``steps`` is the longest path, the root counted; what lies beyond a path's length is zero.
    """
    requests, rows = trees.tokens.shape
    out = torch.zeros(requests, 2 * steps + 2, dtype=torch.int64, device=predicted.device)
    padded = triton.next_power_of_2(rows)
    _walk[(requests,)](
        trees.tokens,
        trees.parents,
        trees.counts,
        seen,
        predicted,
        out,
        rows,
        steps,
        ROWS=padded,
        num_warps=4 if padded <= 64 else 8,
    )
    return out
