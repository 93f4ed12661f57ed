"""Properties of draft trees, against brute force where the cases are small."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.ddtree import DraftTree, build_tree, chain, kept_slots, top_log_probs, walk

ROOT = 7


@st.composite
def drafts(draw: st.DrawFn, max_depth: int = 4, max_width: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and tokens [depths, k] of random marginals; equal values occur."""
    depth = draw(st.integers(1, max_depth))
    width = draw(st.integers(1, max_width))
    level = st.integers(-4, 4).map(float) | st.floats(-8, 8, width=32)
    logits = torch.tensor([draw(st.lists(level, min_size=6, max_size=6)) for _ in range(depth)])
    return top_log_probs(logits, width)


budgets = st.integers(1, 40)


def build(draft: tuple[torch.Tensor, torch.Tensor], budget: int) -> DraftTree:
    return build_tree(ROOT, *draft, budget)


def all_prefix_scores(log_probs: torch.Tensor) -> list[float]:
    table = log_probs.tolist()
    return sorted(
        (
            math.fsum(table[depth][rank] for depth, rank in enumerate(ranks))
            for length in range(1, len(table) + 1)
            for ranks in itertools.product(range(len(table[0])), repeat=length)
        ),
        reverse=True,
    )


def ancestors(tree: DraftTree, node: int) -> list[int]:
    found = []
    while node != -1:
        found.append(node)
        node = tree.parents[node]
    return found


@given(drafts(), budgets)
def test_no_prefixes_are_better_than_the_trees(draft: tuple[torch.Tensor, torch.Tensor], budget: int) -> None:
    tree = build(draft, budget)
    best = all_prefix_scores(draft[0])[:budget]
    assert tree.scores[1:] == pytest.approx(best, abs=1e-9)
    assert sum(map(math.exp, tree.scores[1:])) == pytest.approx(sum(map(math.exp, best)))


@given(drafts(max_depth=3, max_width=2), st.integers(1, 4))
@settings(max_examples=30)
def test_no_prefix_closed_set_has_more_probability(
    draft: tuple[torch.Tensor, torch.Tensor], budget: int
) -> None:
    table = draft[0].tolist()
    prefixes = [
        ranks
        for length in range(1, len(table) + 1)
        for ranks in itertools.product(range(len(table[0])), repeat=length)
    ]
    mass = {p: math.exp(sum(table[d][r] for d, r in enumerate(p))) for p in prefixes}
    best = max(
        sum(mass[p] for p in chosen)
        for size in range(1, budget + 1)
        for chosen in itertools.combinations(prefixes, size)
        if all(len(p) == 1 or p[:-1] in chosen for p in chosen)
    )
    assert sum(map(math.exp, build(draft, budget).scores[1:])) == pytest.approx(best)


@given(drafts(), budgets)
def test_each_node_is_a_distinct_prefix_scored_by_its_path(
    draft: tuple[torch.Tensor, torch.Tensor], budget: int
) -> None:
    log_probs, tokens = draft
    tree = build(draft, budget)
    paths = set()
    for node in range(1, len(tree)):
        nodes = ancestors(tree, node)[-2::-1]
        ranks = [tokens[d].tolist().index(tree.tokens[n]) for d, n in enumerate(nodes)]
        assert tree.depths[node] == len(nodes)
        assert tree.scores[node] == pytest.approx(sum(log_probs[d][r].item() for d, r in enumerate(ranks)))
        paths.add(tuple(ranks))
    assert len(paths) == len(tree) - 1


@given(drafts(), budgets)
def test_parents_come_first_and_no_node_is_wasted(
    draft: tuple[torch.Tensor, torch.Tensor], budget: int
) -> None:
    tree = build(draft, budget)
    depths, width = draft[0].shape
    assert (tree.tokens[0], tree.parents[0], tree.depths[0]) == (ROOT, -1, 0)
    assert all(0 <= tree.parents[node] < node for node in range(1, len(tree)))
    assert len(tree) - 1 == min(budget, sum(width**d for d in range(1, depths + 1)))


@given(drafts(), budgets)
def test_the_mask_is_the_ancestor_relation(draft: tuple[torch.Tensor, torch.Tensor], budget: int) -> None:
    tree = build(draft, budget)
    mask = tree.ancestor_mask()
    assert mask.shape == (len(tree), len(tree))
    for node in range(len(tree)):
        assert mask[node].nonzero().flatten().tolist() == sorted(ancestors(tree, node))


@given(drafts(), budgets, st.integers(0, 1000))
def test_positions_are_the_prefix_and_the_depth(
    draft: tuple[torch.Tensor, torch.Tensor], budget: int, start: int
) -> None:
    tree = build(draft, budget)
    expected = [start + len(ancestors(tree, node)) - 1 for node in range(len(tree))]
    assert tree.positions(start).tolist() == expected


@given(drafts(), budgets)
def test_links_list_every_child_once_in_ascending_order(
    draft: tuple[torch.Tensor, torch.Tensor], budget: int
) -> None:
    tree = build(draft, budget)
    first_child, next_sibling = tree.links()
    for parent in range(len(tree)):
        found = []
        child = first_child[parent]
        while child != -1:
            found.append(child)
            child = next_sibling[child]
        assert found == [n for n in range(1, len(tree)) if tree.parents[n] == parent]


@given(drafts(max_depth=15, max_width=1))
def test_top_one_and_a_budget_of_the_block_is_the_chain(draft: tuple[torch.Tensor, torch.Tensor]) -> None:
    depths = draft[0].shape[0]
    tree = build(draft, depths)
    line = chain([ROOT, *draft[1].flatten().tolist()])
    assert (tree.tokens, tree.parents, tree.depths) == (line.tokens, line.parents, line.depths)
    assert tree.ancestor_mask().equal(torch.ones(depths + 1, depths + 1).tril().bool())


@given(drafts(), budgets, st.lists(st.integers(0, 5), min_size=6, max_size=6))
def test_the_walk_commits_what_the_target_alone_would_write(
    draft: tuple[torch.Tensor, torch.Tensor], budget: int, target: list[int]
) -> None:
    tree = build(draft, budget)
    asked: list[int] = []

    def choose(node: int) -> int:
        asked.append(node)
        return target[tree.depths[node]]

    accepted = walk(tree, choose)
    committed = [tree.tokens[n] for n in accepted.path[1:]] + [accepted.next_token]
    assert committed == target[: len(committed)]
    assert asked == accepted.path == ancestors(tree, accepted.path[-1])[::-1]
    stop = accepted.path[-1]
    assert not any(
        tree.parents[n] == stop and tree.tokens[n] == accepted.next_token for n in range(1, len(tree))
    )


@given(drafts(), budgets, st.lists(st.integers(0, 5), min_size=6, max_size=6), st.integers(0, 9))
def test_compaction_puts_the_path_behind_the_prefix(
    draft: tuple[torch.Tensor, torch.Tensor], budget: int, target: list[int], start: int
) -> None:
    tree = build(draft, budget)
    path = walk(tree, lambda node: target[tree.depths[node]]).path
    cache = torch.tensor([100 + i for i in range(start)] + tree.tokens)
    slots = kept_slots(path, start)
    assert all(slot >= start + i for i, slot in enumerate(slots.tolist()))
    cache[start : start + len(path)] = cache[slots]
    assert cache[: start + len(path)].tolist() == [100 + i for i in range(start)] + [
        tree.tokens[node] for node in path
    ]
    assert tree.positions(start)[path].tolist() == list(range(start, start + len(path)))


def test_top_log_probs_are_those_of_the_whole_vocabulary() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    log_probs, tokens = top_log_probs(logits, 4)
    assert log_probs.allclose(logits.log_softmax(-1).gather(1, tokens))
    assert tokens[:, 0].equal(logits.argmax(-1))
    assert top_log_probs(logits, 99)[0].shape == (3, 50)


def test_a_budget_without_nodes_and_tables_that_differ_are_refused() -> None:
    log_probs, tokens = top_log_probs(torch.randn(3, 9), 2)
    with pytest.raises(ValueError, match="budget: 0"):
        build_tree(ROOT, log_probs, tokens, 0)
    with pytest.raises(ValueError, match=r"\(3, 2\) and tokens \(2, 2\)"):
        build_tree(ROOT, log_probs, tokens[:2], 4)


@given(drafts(), budgets, st.floats(-8, 0))
def test_a_least_score_cuts_the_best_tree_and_nothing_else(
    draft: tuple[torch.Tensor, torch.Tensor], budget: int, least: float
) -> None:
    whole = build(draft, budget)
    cut = build_tree(ROOT, *draft, budget, least)
    kept = max(2, sum(score >= least for score in whole.scores))
    assert cut.tokens == whole.tokens[:kept]
    assert cut.parents == whole.parents[:kept]
