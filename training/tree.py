"""Draft trees of one block: the chain, and DDTree's best-first tree (arXiv 2604.12989)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DraftTree:
    """Nodes 0 (the last committed token) to n; a parent always comes before its children."""

    tokens: list[int]
    parents: list[int]
    depths: list[int]

    def walk(self, choices: Sequence[int]) -> list[int]:
        """Nodes on the path that the target's choice [n + 1] at each node follows, the root included."""
        children = {(p, t): i for i, (p, t) in enumerate(zip(self.parents, self.tokens, strict=True)) if i}
        path = [0]
        while (node := children.get((path[-1], choices[path[-1]]))) is not None:
            path.append(node)
        return path


def chain(root: int, tokens: Sequence[Sequence[int]]) -> DraftTree:
    """The likeliest token of every depth, one below the other; tokens are [depths, ranks]."""
    ids = [root] + [ranked[0] for ranked in tokens]
    return DraftTree(ids, [-1, *range(len(tokens))], list(range(len(ids))))


def best_first(
    root: int, tokens: Sequence[Sequence[int]], scores: Sequence[Sequence[float]], budget: int
) -> DraftTree:
    """The `budget` prefixes with the greatest summed log-probability; tokens, scores are [depths, ranks]."""
    tree = DraftTree([root], [-1], [0])
    heap = [(-scores[0][0], 0, 0, 1)]  # (minus the path's score, parent, rank, depth)
    while heap and len(tree.tokens) <= budget:
        cost, parent, rank, depth = heapq.heappop(heap)
        node = len(tree.tokens)
        row = scores[depth - 1]
        tree.tokens.append(tokens[depth - 1][rank])
        tree.parents.append(parent)
        tree.depths.append(depth)
        if rank + 1 < len(row):
            heapq.heappush(heap, (cost + row[rank] - row[rank + 1], parent, rank + 1, depth))
        if depth < len(scores):
            heapq.heappush(heap, (cost - scores[depth][0], node, 0, depth + 1))
    return tree
