"""Batched trees against the heap, and masks, links, walks and shards against brute force."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.ddtree import DraftTree, build_tree, top_log_probs, walk
from fleetctl.ddtree.batched import (
    TreeBatch,
    ancestors,
    build_trees,
    flat_mask,
    follow,
    links,
    merge_shards,
    ranked_log_probs,
)

torch.set_num_threads(1)

level = st.integers(-2, 2).map(float) | st.floats(-8, 8, width=32) | st.just(-math.inf)


@st.composite
def batches(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Roots [requests], log-probabilities and tokens [requests, depths, k]; ties and impossible tokens."""
    requests, depths = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    vocabulary = draw(st.integers(1, 6))
    row = st.lists(level, min_size=vocabulary, max_size=vocabulary).filter(
        lambda values: max(values) > -math.inf
    )
    logits = torch.tensor([[draw(row) for _ in range(depths)] for _ in range(requests)])
    log_probs, tokens, _ = ranked_log_probs(logits, draw(st.integers(1, 8)))
    return torch.arange(100, 100 + requests), log_probs, tokens


options = st.tuples(st.integers(1, 20), st.sampled_from([-math.inf, -3.0, 0.0]), st.booleans())


def trees_of(
    batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor], option: tuple[int, float, bool]
) -> tuple[TreeBatch, list[DraftTree]]:
    budget, min_score, spine = option
    heap = [
        build_tree(int(root), logs, names, budget, min_score, spine)
        for root, logs, names in zip(*batch, strict=True)
    ]
    return build_trees(*batch, budget, min_score, spine), heap


@settings(max_examples=300)
@given(batches(), options)
def test_a_batch_is_the_heaps_trees_node_for_node(
    batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor], option: tuple[int, float, bool]
) -> None:
    trees, heap = trees_of(batch, option)
    rows = option[0] + 1
    assert trees.tokens.shape == (len(heap), rows)
    for request, tree in enumerate(heap):
        count = int(trees.counts[request])
        assert count == len(tree)
        assert trees.tokens[request, :count].tolist() == tree.tokens
        assert trees.parents[request, :count].tolist() == tree.parents
        assert trees.depths[request, :count].tolist() == tree.depths
        assert trees.scores[request, :count].tolist() == tree.scores
        assert trees.tokens[request, count:].tolist() == [tree.tokens[0]] * (rows - count)
        assert trees.depths[request, count:].tolist() == [0] * (rows - count)


@given(batches(), options)
def test_links_and_ancestors_are_those_of_each_tree_and_padding_is_unlinked(
    batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor], option: tuple[int, float, bool]
) -> None:
    trees, heap = trees_of(batch, option)
    first_child, next_sibling = links(trees)
    seen = ancestors(trees)
    for request, tree in enumerate(heap):
        count = len(tree)
        padding = [-1] * (option[0] + 1 - count)
        child, sibling = tree.links()
        assert first_child[request].tolist() == child + padding
        assert next_sibling[request].tolist() == sibling + padding
        assert torch.equal(seen[request, :count, :count], tree.ancestor_mask())
        assert not seen[request, :count, count:].any()
        assert all(seen[request, row, row] for row in range(option[0] + 1))


@given(batches(), options, st.data())
def test_a_batchs_walk_is_each_trees_walk(
    batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    option: tuple[int, float, bool],
    data: st.DataObject,
) -> None:
    trees, heap = trees_of(batch, option)
    rows = option[0] + 1
    token = st.integers(0, 6) | st.integers(100, 103)
    predicted = torch.tensor(
        [data.draw(st.lists(token, min_size=rows, max_size=rows)) for _ in heap], dtype=torch.int64
    )
    kept, following = follow(trees, ancestors(trees), predicted)
    for request, tree in enumerate(heap):
        told = walk(tree, predicted[request].tolist().__getitem__)
        assert kept[request].nonzero().flatten().tolist() == told.path
        assert int(following[request]) == told.next_token


@given(batches(), options, st.lists(st.integers(0, 9), min_size=3, max_size=3))
def test_the_flat_mask_shows_prefix_and_ancestors_of_ragged_requests(
    batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    option: tuple[int, float, bool],
    lengths: list[int],
) -> None:
    trees, heap = trees_of(batch, option)
    seen = ancestors(trees)
    rows = option[0] + 1
    prefix = torch.tensor(lengths[: len(heap)], dtype=torch.int32)
    total = sum(rows * (length + rows) for length in prefix.tolist())
    expected = [
        torch.cat([torch.ones(rows, length, dtype=torch.bool), seen[request]], 1).flatten()
        for request, length in enumerate(prefix.tolist())
    ]
    assert torch.equal(flat_mask(seen, prefix, total), torch.cat(expected))


@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 1000))
def test_shards_merge_to_the_ranking_of_the_whole_vocabulary(shards: int, top_k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 3, shards * 5, generator=generator)
    parts = [ranked_log_probs(part, top_k) for part in logits.split(5, dim=-1)]
    names = torch.stack([tokens + 5 * shard for shard, (_, tokens, _) in enumerate(parts)])
    merged, merged_names = merge_shards(
        torch.stack([logs for logs, _, _ in parts]),
        names,
        torch.stack([total for _, _, total in parts]),
        top_k,
    )
    whole, whole_names, _ = ranked_log_probs(logits, top_k)
    count = min(whole.shape[-1], merged.shape[-1])
    assert torch.equal(merged_names[..., :count], whole_names[..., :count])
    assert torch.allclose(merged[..., :count], whole[..., :count], atol=1e-5)


def test_a_spine_is_the_chain_and_the_rest_of_the_budget_branches() -> None:
    flat = torch.full((1, 15, 4), -1.3)
    tokens = torch.arange(60).view(1, 15, 4)
    chain = build_trees(torch.tensor([9]), flat, tokens, 15, spine=True)
    assert chain.parents[0].tolist() == list(range(-1, 15))
    branching = build_trees(torch.tensor([9]), flat, tokens, 22, spine=True)
    assert branching.depths.max() == 15
    assert int(branching.counts[0]) == 23
    assert build_trees(torch.tensor([9]), flat, tokens, 22).depths.max() < 15


def test_nan_is_refused_on_the_host_and_never_drafted_on_the_device() -> None:
    log_probs = torch.tensor([[-0.1, math.nan], [-0.2, -3.0]])
    tokens = torch.tensor([[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="NaN"):
        build_tree(7, log_probs, tokens, 4)
    trees = build_trees(torch.tensor([7]), log_probs[None], tokens[None], 8)
    assert 2 not in trees.tokens[0].tolist()
    assert int(trees.counts[0]) == 4


def test_top_k_beyond_the_vocabulary_is_the_vocabulary() -> None:
    log_probs, tokens = top_log_probs(torch.tensor([[1.0, 2.0]]), 8)
    assert tokens.tolist() == [[1, 0]]
    assert build_trees(torch.tensor([0]), log_probs[None], tokens[None], 8).counts.tolist() == [3]
