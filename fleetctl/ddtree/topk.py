"""The drafter's candidates: the best tokens of each depth with their log-probabilities."""

from __future__ import annotations

import torch

_BLOCK = 128


def top_log_probs(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """``(tokens, log_probs)``, both [depth, count], best first, of ``logits`` [depth, vocabulary].

    The best ``count`` tokens lie in the ``count`` blocks of the vocabulary with the largest maxima, so only those are
    sorted: a full top-k over the vocabulary costs a CPU more than the drafter.
    """
    depth, vocabulary = logits.shape
    norm = torch.logsumexp(logits, dim=-1, keepdim=True)
    if vocabulary % _BLOCK or vocabulary // _BLOCK <= count:
        best = torch.topk(logits, count, dim=-1)
        return best.indices, best.values - norm
    blocks = logits.view(depth, vocabulary // _BLOCK, _BLOCK)
    chosen = torch.topk(blocks.amax(dim=-1), count, dim=-1).indices
    candidates = blocks.gather(1, chosen.unsqueeze(-1).expand(-1, -1, _BLOCK)).flatten(1)
    best = torch.topk(candidates, count, dim=-1)
    tokens = chosen.gather(1, best.indices // _BLOCK) * _BLOCK + best.indices % _BLOCK
    return tokens, best.values - norm
