"""Draft trees for a batch of requests, on any device, without a host round trip.

The same trees as ``tree.build_tree`` builds, node for node, ties included: a heap pops prefixes in the order
of (score, depth, parent, rank), and that order can be had depth by depth. A node of the tree has its parent
in the tree, so the best ``budget`` prefixes of a depth all extend one of the best ``budget`` of the depth
before; a stable sort of each depth, and one of all depths together, is that order.

Shapes are static: a tree has ``budget + 1`` rows. Rows from ``counts`` on are padding that no link reaches.
Needs torch alone, 2.11 or later, on Python 3.10 or later: it is also installed into inference engines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TreeBatch:
    """Trees of several requests; row 0 of each is its root, parents stand before their children.

    ``tokens``, ``parents``, ``depths`` are int64 and ``scores`` float64, all [requests, budget + 1];
    ``counts`` int64 [requests] says how many rows are real, the root among them. A padding row repeats the
    root's token, at depth 0, below row 0.
    """

    tokens: torch.Tensor
    parents: torch.Tensor
    depths: torch.Tensor
    scores: torch.Tensor
    counts: torch.Tensor

    def real(self) -> torch.Tensor:
        """bool [requests, rows]: which rows are nodes of the tree and not padding."""
        rows = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return rows < self.counts[:, None]


def build_trees(
    roots: torch.Tensor,
    log_probs: torch.Tensor,
    tokens: torch.Tensor,
    budget: int,
    min_score: float = -math.inf,
    spine: bool = False,
) -> TreeBatch:
    """One tree of at most ``budget`` draft nodes for each request; see ``tree.build_tree``.

    ``roots`` is int64 [requests]; ``log_probs`` float and ``tokens`` int64 are [requests, depths, k], best
    first. A NaN counts as a probability of zero here, since refusing it would take a round trip.
    """
    requests, depth_limit, width = log_probs.shape
    device = log_probs.device
    table = log_probs.double()
    table = torch.where(table.isnan(), -math.inf, table)
    beam = torch.zeros(requests, 1, dtype=torch.float64, device=device)
    parent_base = -1
    slots = 0
    scores, names, parents, depth_of = [], [], [], list[int]()
    for depth in range(depth_limit):
        extended = (beam[:, :, None] + table[:, depth, None, :]).flatten(1)
        kept = min(budget, extended.shape[1])
        ordered, order = extended.sort(dim=1, descending=True, stable=True)
        beam, order = ordered[:, :kept], order[:, :kept]
        scores.append(beam)
        names.append(tokens[:, depth].gather(1, order % width))
        parents.append(parent_base + order // width if depth else torch.full_like(order, -1))
        depth_of += [depth + 1] * kept
        parent_base, slots = slots, slots + kept
    all_scores = torch.cat(scores, 1)
    order, drafted = _chosen(all_scores, budget, min_score, spine, depth_of)
    return _assemble(
        roots,
        all_scores.gather(1, order),
        torch.cat(names, 1).gather(1, order),
        torch.cat(parents, 1).gather(1, order),
        torch.tensor(depth_of, device=device).expand(requests, -1).gather(1, order),
        order,
        drafted,
        (slots, budget),
    )


def _chosen(
    scores: torch.Tensor, budget: int, min_score: float, spine: bool, depth_of: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The slots [requests, rows] that become nodes, in a heap's order, and which of them really do."""
    possible = (scores > -math.inf) & (scores >= min_score)
    kept = min(budget, scores.shape[1])
    first = torch.zeros_like(possible)
    first[:, 0] = True
    if spine:
        starts = [slot for slot, depth in enumerate(depth_of) if slot == 0 or depth != depth_of[slot - 1]]
        chain = torch.zeros_like(possible)
        chain[:, starts[:budget]] = scores[:, starts[:budget]] > -math.inf
        rest = scores.masked_fill(~possible | chain, -math.inf)
        ranks = rest.sort(dim=1, descending=True, stable=True)[1].argsort(dim=1)
        quota = max(0, budget - min(len(starts), budget))
        possible = chain | ((ranks < quota) & (rest > -math.inf))
    wanted = possible | first
    keys = scores.masked_fill(~wanted, -math.inf).masked_fill(first, math.inf)
    ordered, order = keys.sort(dim=1, descending=True, stable=True)
    return order[:, :kept], ordered[:, :kept] > -math.inf


def _assemble(
    roots: torch.Tensor,
    scores: torch.Tensor,
    names: torch.Tensor,
    parent_slots: torch.Tensor,
    depths: torch.Tensor,
    order: torch.Tensor,
    drafted: torch.Tensor,
    sizes: tuple[int, int],
) -> TreeBatch:
    slots, budget = sizes
    requests, kept = order.shape
    node_of = torch.zeros(requests, slots + 1, dtype=torch.int64, device=order.device)
    rows = torch.arange(1, kept + 1, device=order.device).expand(requests, -1)
    node_of.scatter_(1, order + 1, rows)
    node_of[:, 0] = 0

    def rooted(values: torch.Tensor, root: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        values = torch.where(drafted, values, padding[:, None])
        missing = padding[:, None].expand(-1, budget - kept)
        return torch.cat([root[:, None], values, missing], 1)

    zero = torch.zeros_like(roots)
    return TreeBatch(
        tokens=rooted(names, roots, roots),
        parents=rooted(node_of.gather(1, parent_slots + 1), zero - 1, zero),
        depths=rooted(depths, zero, zero),
        scores=rooted(scores, zero.double(), zero.double()),
        counts=drafted.sum(1) + 1,
    )


def links(trees: TreeBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """(first child, next sibling), both int64 [requests, rows], -1 where there is none; siblings ascend."""
    rows = trees.parents.shape[1]
    index = torch.arange(rows, device=trees.parents.device)
    real = trees.real()
    drafted = real & (index > 0)
    child_of = (trees.parents[:, None, :] == index[:, None]) & drafted[:, None, :]
    siblings = trees.parents[:, :, None] == trees.parents[:, None, :]
    after = siblings & (index[None, :] > index[:, None]) & drafted[:, None, :] & drafted[:, :, None]

    def least(which: torch.Tensor) -> torch.Tensor:
        found = torch.where(which, index, rows).amin(2)
        return torch.where(found < rows, found, -1)

    return least(child_of), least(after)


def ancestors(trees: TreeBatch) -> torch.Tensor:
    """bool [requests, rows, rows]: row i is true at i and at its ancestors; a padding row also at row 0."""
    requests, rows = trees.parents.shape
    seen = torch.eye(rows, dtype=torch.bool, device=trees.parents.device).expand(requests, -1, -1)
    jump = trees.parents.clamp(min=0)
    for _ in range(max(1, math.ceil(math.log2(rows)))):
        seen = seen | seen.gather(1, jump[:, :, None].expand(-1, -1, rows))
        jump = jump.gather(1, jump)
    return seen


def flat_mask(ancestor_mask: torch.Tensor, prefix_lens: torch.Tensor, total: int) -> torch.Tensor:
    """bool [total]: each request's [rows, prefix + rows] mask, flattened, one request behind the other.

    Every row sees the whole prefix and its ancestors. ``total`` is the sum of rows × (prefix + rows), which
    the caller knows on the host; ``prefix_lens`` int [requests] need not leave the device.
    """
    rows = ancestor_mask.shape[1]
    device = ancestor_mask.device
    lengths = prefix_lens.to(torch.int64)
    widths = lengths + rows
    starts = (widths * rows).cumsum(0) - widths * rows
    index = torch.arange(rows, device=device)
    at = starts[:, None, None] + index[:, None] * widths[:, None, None] + lengths[:, None, None] + index
    mask = torch.ones(total, dtype=torch.bool, device=device)
    mask.scatter_(0, at.reshape(-1), ancestor_mask.reshape(-1))
    return mask


def follow(
    trees: TreeBatch, ancestor_mask: torch.Tensor, predicted: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which nodes a walk from the root commits: (bool [requests, rows], int64 [requests] next tokens).

    ``predicted`` int64 [requests, rows] is the token that the target puts after each row. A node is
    committed when it and all its ancestors are what the target puts after their parents; since a node's
    children have distinct tokens, those nodes are one path, and ascending rows are its order.
    """
    expected = predicted.gather(1, trees.parents.clamp(min=0))
    wrong = (trees.tokens != expected) | ~trees.real()
    wrong[:, 0] = False
    kept = ~(ancestor_mask & wrong[:, None, :]).any(2)
    rows = torch.arange(kept.shape[1], device=kept.device)
    last = torch.where(kept, rows, 0).amax(1)
    return kept, predicted.gather(1, last[:, None]).squeeze(1)


def walk_lines(trees: TreeBatch, seen: torch.Tensor, predicted: torch.Tensor, steps: int) -> torch.Tensor:
    """A walk from the root of each tree: int64 [requests, 2 * steps + 2]: the rows that it commits, their tokens, how
    many they are, and the token that follows. ``steps`` is the longest path, the root counted; see :func:`follow`."""
    kept, following = follow(trees, seen, predicted)
    rows = torch.arange(kept.shape[1], device=kept.device)
    count = kept.sum(1)
    nodes = torch.where(kept, rows, kept.shape[1]).sort(dim=1)[0][:, :steps]
    nodes = torch.nn.functional.pad(nodes, (0, steps - nodes.shape[1]))
    taken = torch.arange(steps, device=kept.device) < count[:, None]
    nodes = torch.where(taken, nodes, 0)
    tokens = torch.where(taken, trees.tokens.gather(1, nodes), 0)
    return torch.cat([nodes, tokens, count[:, None], following[:, None]], 1)


def ranked_log_probs(logits: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(log-probabilities float32 [..., k], tokens int64 [..., k], log-sum-exp float32 [...]) of logits.

    Best first; k is ``top_k`` or the vocabulary's size, whichever is smaller.
    """
    values, tokens = logits.topk(min(top_k, logits.shape[-1]), dim=-1)
    total = logits.float().logsumexp(-1)
    return values.float() - total[..., None], tokens, total


def merge_shards(
    log_probs: torch.Tensor, tokens: torch.Tensor, totals: torch.Tensor, top_k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The ranking over a whole vocabulary from those of its shards, all stacked in front: [shards, ..., k].

    ``totals`` [shards, ...] are the shards' log-sum-exps. Of equal tokens the lower shard's comes first, so
    every rank that sees the same numbers builds the same tree.
    """
    whole = totals.logsumexp(0)
    shifted = log_probs + (totals - whole)[..., None]
    flat = shifted.movedim(0, -2).flatten(-2)
    names = tokens.movedim(0, -2).flatten(-2)
    ordered, order = flat.sort(dim=-1, descending=True, stable=True)
    return ordered[..., :top_k], names.gather(-1, order)[..., :top_k]
