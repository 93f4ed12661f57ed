"""Draft trees: built best-first from a block drafter's marginals, verified in one pass, walked, compacted.

The construction is that of DDTree (arXiv 2604.12989): one drafter pass gives for every depth a
distribution that does not depend on the branch, so a prefix scores the sum of its tokens' log-probabilities
and the best tree of n nodes is the n best prefixes. A heap yields them in order, parents before children.

Node 0 is the root: the last committed token, whose successor is unknown. Needs torch and the standard
library only.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class DraftTree:
    """A rooted tree of draft tokens; all lists are indexed by node, node 0 being the root.

    ``parents[0]`` is -1; for every other node ``parents[i] < i``. ``scores`` are natural logarithms of the
    product of the drafter's marginals along the path; the root's is 0.
    """

    tokens: list[int]
    parents: list[int]
    depths: list[int]
    scores: list[float]

    def __len__(self) -> int:
        return len(self.tokens)

    def positions(self, start: int) -> torch.Tensor:
        """int64 [nodes]: absolute positions when the root stands at ``start``; siblings share theirs."""
        return torch.tensor(self.depths, dtype=torch.int64) + start

    def ancestor_mask(self) -> torch.Tensor:
        """bool [nodes, nodes]: row i is true at i and at its ancestors, nowhere else."""
        mask = torch.eye(len(self), dtype=torch.bool)
        for node in range(1, len(self)):
            mask[node] |= mask[self.parents[node]]
        return mask

    def links(self) -> tuple[list[int], list[int]]:
        """(first child, next sibling) of every node, -1 where there is none.

        Siblings ascend, so ``next_sibling[i] > i``: kernels that derive parents in one forward pass over
        these lists rely on it.
        """
        first_child = [-1] * len(self)
        next_sibling = [-1] * len(self)
        last_child = [-1] * len(self)
        for node in range(1, len(self)):
            parent = self.parents[node]
            if last_child[parent] < 0:
                first_child[parent] = node
            else:
                next_sibling[last_child[parent]] = node
            last_child[parent] = node
        return first_child, next_sibling


@dataclass(frozen=True, slots=True)
class Accepted:
    """What one verify pass commits: the nodes of ``path`` (root first, ascending) and ``next_token``.

    The tokens that are new to the text are those of ``path[1:]`` and then ``next_token``, which becomes the
    next root: ``len(path)`` tokens in all.
    """

    path: list[int]
    next_token: int


def top_log_probs(logits: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities float32 and tokens int64, both [depths, k] and best first.

    ``logits`` is [depths, vocabulary]; k is ``top_k`` or the vocabulary's size, whichever is smaller.
    """
    logits = logits.float()
    values, tokens = logits.topk(min(top_k, logits.shape[-1]), dim=-1)
    return values - logits.logsumexp(dim=-1, keepdim=True), tokens


def build_tree(
    root: int,
    log_probs: torch.Tensor,
    tokens: torch.Tensor,
    budget: int,
    min_score: float = -math.inf,
    spine: bool = False,
) -> DraftTree:
    """The tree of at most ``budget`` draft nodes (the root not counted) with the highest total probability.

    ``log_probs`` [depths, k] descends along k, as ``top_log_probs`` returns it with ``tokens`` of the same
    shape. Of equally good prefixes the shallower comes first, then the one whose parent did, then the one
    whose last token ranks higher. Fewer than ``budget`` nodes come back when no other prefix exists, or none
    of a probability above zero whose score reaches ``min_score``: a node is verified with about its path's
    probability, so a less likely one costs more than it brings. The best first token is drafted whatever its
    score. With ``spine`` the chain of best tokens is drafted too, whatever its score, and the rest of the
    budget goes to the best of the others: an accepted length that no chain beats.
    """
    if budget < 1:
        raise ValueError(f"budget: {budget} is not a node count of at least 1")
    if log_probs.shape != tokens.shape or log_probs.dim() != 2:
        raise ValueError(
            f"log_probs {tuple(log_probs.shape)} and tokens {tuple(tokens.shape)}: expected two [depths, k]"
        )
    if log_probs.isnan().any():
        raise ValueError("log_probs: holds NaN; the drafter's logits are broken")
    table: list[list[float]] = log_probs.tolist()
    names: list[list[int]] = tokens.tolist()
    depth_limit, width = log_probs.shape
    tree = DraftTree([root], [-1], [0], [0.0])
    heap: list[tuple[float, int, int, int]] = []
    on_spine = {0}
    free = budget - min(depth_limit, budget) if spine else budget

    def push(parent: int, rank: int) -> None:
        depth = tree.depths[parent] + 1
        if depth <= depth_limit and rank < width:
            score = tree.scores[parent] + table[depth - 1][rank]
            heapq.heappush(heap, (-score, depth, parent, rank))

    push(0, 0)
    while heap and len(tree) <= budget:
        negative, depth, parent, rank = heapq.heappop(heap)
        straight = spine and parent in on_spine and rank == 0
        if len(tree) > 1:
            if negative == math.inf:
                break
            if not straight and (-negative < min_score or free < 1):
                continue
        node = len(tree)
        tree.tokens.append(names[depth - 1][rank])
        tree.parents.append(parent)
        tree.depths.append(depth)
        tree.scores.append(-negative)
        if straight:
            on_spine.add(node)
        else:
            free -= 1
        push(parent, rank + 1)
        push(node, 0)
    return tree


def chain(tokens: list[int]) -> DraftTree:
    """The tree without branches: ``tokens[0]`` is the root; all scores are 0."""
    count = len(tokens)
    return DraftTree(list(tokens), list(range(-1, count - 1)), list(range(count)), [0.0] * count)


def walk(tree: DraftTree, choose: Callable[[int], int]) -> Accepted:
    """Follow the target from the root for as long as its choice is a child of the current node.

    ``choose(node)`` is the token that the target puts after ``node``: its argmax, or its sample, in which
    case the committed text follows the target's distribution whatever the drafter proposed. It is called
    once for every node of the path, in order, and for no other.
    """
    children = {
        (parent, token): node
        for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True))
    }
    path = [0]
    while True:
        token = choose(path[-1])
        child = children.get((path[-1], token))
        if child is None:
            return Accepted(path, token)
        path.append(child)


def kept_slots(path: list[int], start: int) -> torch.Tensor:
    """int64 [len(path)]: cache slots to keep, in order, when node i was written to slot ``start + i``.

    Moving them to ``start``, ``start + 1``, … compacts the cache; no slot moves to the right.
    """
    return torch.tensor(path, dtype=torch.int64) + start
