"""At start: do the Triton kernels say what torch says? On this card, with this compiler."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.speculative import ddtree_kernels
from sglang.srt.speculative.ddtree_args import Settings
from sglang.srt.speculative.ddtree_commit import commit, write_table
from sglang.srt.speculative.ddtree_utils import (
    ancestors,
    build_trees,
    flat_mask,
    links,
    ranked_log_probs,
    walk_lines,
)


def self_check(settings: Settings, device: Any, cases: int = 8) -> str:
    """Compare the Triton kernels with the torch version on random drafts; what differs, or nothing."""
    generator = torch.Generator(device="cpu").manual_seed(0)
    rows = settings.budget + 1
    steps = min(settings.depth, settings.budget) + 1
    for case in range(cases):
        logits = torch.randn(2, settings.depth, 512, generator=generator) * (1 + case)
        if case % 2:
            logits = logits.round()
        log_probs, tokens, _ = ranked_log_probs(logits.to(device), settings.top_k)
        roots = torch.tensor([3, 5], device=device)
        lengths = torch.tensor([case, 2 * case + 1], device=device)
        total = rows * (3 * case + 1 + 2 * rows)
        slots = torch.randperm(500, generator=generator)[: 2 * rows].view(2, rows).to(device)
        pools = torch.tensor([1, 0], device=device)
        table = torch.zeros(2, 64 + rows, dtype=torch.int32, device=device)
        options = {"min_score": settings.min_score, "spine": settings.spine}
        expected = build_trees(roots, log_probs, tokens, settings.budget, **options)
        seen = ancestors(expected)
        likely = expected.tokens.roll(-1, 1)
        lines = walk_lines(expected, seen, likely, steps)
        done, written = commit(lines, lengths, slots), table.clone()
        write_table(written, pools, lengths, done)
        try:
            trees, child, sibling, positions, built_seen = ddtree_kernels.build(
                roots, log_probs, tokens, lengths, budget=settings.budget, **options
            )
            mask = ddtree_kernels.mask_of(built_seen, lengths, total)
            walked = ddtree_kernels.walk(trees, built_seen, likely, steps)
            fused = ddtree_kernels.commit(trees, built_seen, likely, lengths, pools, slots, table, steps)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        first, beside = links(expected)
        for name, one, other in (
            ("tokens", expected.tokens, trees.tokens),
            ("parents", expected.parents, trees.parents),
            ("counts", expected.counts, trees.counts),
            ("first children", first, child),
            ("siblings", beside, sibling),
            ("positions", expected.depths + lengths[:, None], positions),
            ("ancestors", seen, built_seen),
            ("mask", flat_mask(seen, lengths, total), mask),
            ("walk", lines, walked),
            ("committed walks", done.lines, fused.lines),
            ("kept rows", done.kept_rows, fused.kept_rows),
            ("kept slots", done.kept_slots, fused.kept_slots),
            ("kept positions", done.positions, fused.positions),
            ("dropped slots", done.dropped, fused.dropped),
            ("slots by position", written, table),
        ):
            if not torch.equal(one, other):
                return f"{name} differ in case {case}"
    return ""
