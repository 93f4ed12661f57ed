"""The best-first draft tree of DDTree (arXiv 2604.12989), its verification mask, its walk and its commit.

A block drafter gives, in one pass, a distribution for each depth that does not depend on the branch taken. The score
of a path is the sum of its tokens' log-probabilities, and the best tree under a budget is the set of the best-scoring
prefixes, found best-first with a heap.

Node 0 is the root: the last committed token. Nodes 1 … n are drafts, parents before their children, siblings in the
order of their scores.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class DraftTree:
    """A draft tree; all lists have one entry a node, the root's first.

    ``tokens``: token ids. ``parents``: index of each node's parent, -1 for the root. ``depths``: 0 for the root.
    """

    tokens: list[int]
    parents: list[int]
    depths: list[int]

    @property
    def size(self) -> int:
        """Drafted nodes, the root not counted."""
        return len(self.tokens) - 1

    @property
    def is_chain(self) -> bool:
        """Whether each node's parent is the node before it."""
        return self.parents == list(range(-1, self.size))

    def children(self) -> list[dict[int, int]]:
        """For each node: token of a child → the child's index."""
        found: list[dict[int, int]] = [{} for _ in self.tokens]
        for node in range(1, len(self.tokens)):
            found[self.parents[node]][self.tokens[node]] = node
        return found


def build_tree(
    root: int, tokens: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]], budget: int
) -> DraftTree:
    """The ``budget`` best-scoring prefixes below ``root``.

    ``tokens`` and ``log_probs`` are [depth][rank], each depth's candidates from the most probable down. The tree has
    fewer nodes than ``budget`` only where the candidates allow no more. Raises ValueError for a budget below 1.
    """
    if budget < 1:
        raise ValueError(f"the budget is {budget}; a draft tree has at least one node")
    tree = DraftTree([root], [-1], [0])
    if not tokens:
        return tree
    # (-score, order, parent, depth, rank): `order` makes ties deterministic, the first found first.
    heap = [(-log_probs[0][0], 0, 0, 0, 0)]
    order = 1
    while heap and tree.size < budget:
        cost, _, parent, depth, rank = heapq.heappop(heap)
        node = len(tree.tokens)
        tree.tokens.append(tokens[depth][rank])
        tree.parents.append(parent)
        tree.depths.append(depth + 1)
        here = log_probs[depth]
        if rank + 1 < len(here):
            heapq.heappush(heap, (cost + here[rank] - here[rank + 1], order, parent, depth, rank + 1))
        if depth + 1 < len(tokens):
            heapq.heappush(heap, (cost - log_probs[depth + 1][0], order + 1, node, depth + 1, 0))
        order += 2
    return tree


def chain(root: int, tokens: Sequence[int]) -> DraftTree:
    """The linear draft as a tree: DFlash's chain."""
    length = len(tokens)
    return DraftTree([root, *tokens], list(range(-1, length)), list(range(length + 1)))


def ancestor_mask(tree: DraftTree) -> torch.Tensor:
    """bool [n+1, n+1]: row i is true at the nodes that node i may attend to, itself and its ancestors."""
    size = len(tree.tokens)
    rows = [[False] * size for _ in range(size)]
    for node, parent in enumerate(tree.parents):
        if parent >= 0:
            rows[node][: parent + 1] = rows[parent][: parent + 1]
        rows[node][node] = True
    return torch.tensor(rows)


def links(tree: DraftTree) -> tuple[list[int], list[int]]:
    """``(first_child, next_sibling)`` of each node, -1 where there is none; siblings are linked in ascending order.

    Kernels that derive parents in one forward pass need just that order (sglang's causal convolution does).
    """
    first_child = [-1] * len(tree.tokens)
    next_sibling = [-1] * len(tree.tokens)
    last_child = [-1] * len(tree.tokens)
    for node in range(1, len(tree.tokens)):
        parent = tree.parents[node]
        if last_child[parent] < 0:
            first_child[parent] = node
        else:
            next_sibling[last_child[parent]] = node
        last_child[parent] = node
    return first_child, next_sibling


def walk(tree: DraftTree, choose: Callable[[int], int]) -> tuple[list[int], int]:
    """Follow the target from the root down; returns the accepted nodes, root first, and the target's next token.

    ``choose(node)`` is the target's own next token after ``node``: its argmax, or a sample of its distribution. Since
    the drafts only decide how far one pass carries, the committed tokens are distributed as the target's own.
    """
    children = tree.children()
    path = [0]
    while True:
        token = choose(path[-1])
        child = children[path[-1]].get(token)
        if child is None:
            return path, token
        path.append(child)


def compact(cache: torch.Tensor, start: int, path: Sequence[int]) -> None:
    """Keep a pass's cache rows of ``path``, in order, behind the prefix; in place.

    ``cache``: [..., positions, head size]; the pass wrote node i's row at position ``start + i``.
    """
    if list(path) == list(range(len(path))):
        return
    rows = torch.tensor([start + node for node in path])
    cache[..., start : start + len(path), :] = cache.index_select(-2, rows)
