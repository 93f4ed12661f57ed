"""A quick figure during training: what a linear chain would have been accepted on held-out texts.

The texts are the target's own greedy ones, so the chain is accepted as far as it equals them; no target
pass is needed. `training.evaluate` measures with real verification.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from training.corpus import Blocks, Corpus, gather_blocks
from training.drafter import Drafter
from training.loops import loop_starts
from training.target import Target

ANCHORS = 32
ROWS = 48


@dataclass(frozen=True)
class Validation:
    """Loss at the first drafted position; tokens per pass over all texts and over those without a loop."""

    loss: float
    tau: float
    tau_plain: float


def draft_hidden(drafter: Drafter, target: Target, blocks: Blocks, channel_size: Tensor) -> Tensor:
    """Hidden states [B, A, block - 1, width] that the drafter gives the positions after each anchor."""
    features = blocks.features / channel_size.to(blocks.features.dtype)
    context = drafter.context(features, blocks.context_positions)
    hidden: Tensor = drafter(F.embedding(blocks.ids, target.embed), blocks.positions, context, blocks.mask)
    batch, count, block = blocks.labels.shape[0], blocks.labels.shape[1], drafter.shape.block
    return hidden.view(batch, count, block, -1)[:, :, 1:]


@torch.no_grad()
def validate(drafter: Drafter, target: Target, corpus: Corpus, channel_size: Tensor) -> Validation:
    """Draft at every position of every held-out answer, then walk each text as decoding would."""
    losses: list[Tensor] = []
    accepted = torch.zeros(len(corpus.lengths), corpus.longest, dtype=torch.long, device=corpus.tokens.device)
    for row in range(0, len(corpus.lengths), ROWS):
        rows = torch.arange(row, min(row + ROWS, len(corpus.lengths)), device=corpus.tokens.device)
        first, last = corpus.answers[rows, None], corpus.lengths[rows, None] - 1
        for start in range(0, int((last - first).max()), ANCHORS):
            anchors = first + start + torch.arange(ANCHORS, device=rows.device)
            inside = anchors < last
            anchors = torch.minimum(anchors, last)
            hits, loss = _hits(drafter, target, corpus, rows, anchors, channel_size)
            accepted[rows[:, None], anchors] = hits
            losses.append(loss[inside])
    texts = _texts(corpus)
    loops = loop_starts([text for text, _ in texts])
    counts = [_walk(accepted[i].tolist(), first, len(text) + first) for i, (text, first) in enumerate(texts)]
    plain = [count for count, loop in zip(counts, loops, strict=True) if loop < 0]
    return Validation(float(torch.cat(losses).mean()), _ratio(counts), _ratio(plain))


def _hits(
    drafter: Drafter, target: Target, corpus: Corpus, rows: Tensor, anchors: Tensor, channel_size: Tensor
) -> tuple[Tensor, Tensor]:
    """Accepted drafts [B, A] at each anchor, and the loss [B, A] of the first drafted position."""
    blocks = gather_blocks(corpus, rows, anchors, drafter.shape.block, drafter.shape.mask_token)
    hidden = draft_hidden(drafter, target, blocks, channel_size)
    guesses = torch.stack([target.head(part).argmax(-1) for part in hidden])
    right = (guesses == blocks.labels) & blocks.valid
    first = target.head(hidden[:, :, 0]).float()
    loss = F.cross_entropy(first.flatten(0, 1), blocks.labels[:, :, 0].flatten(), reduction="none")
    return right.long().cumprod(-1).sum(-1), loss.view(anchors.shape)


def _texts(corpus: Corpus) -> list[tuple[list[int], int]]:
    tokens = corpus.tokens.tolist()
    spans = zip(corpus.starts.tolist(), corpus.lengths.tolist(), corpus.answers.tolist(), strict=True)
    return [(tokens[start + answer : start + length], answer) for start, length, answer in spans]


def _walk(accepted: list[int], first: int, length: int) -> tuple[int, int]:
    """Tokens committed and passes made from the first token of an answer to its end."""
    position, passes = first, 0
    while position < length - 1:
        position = min(position + accepted[position] + 1, length - 1)
        passes += 1
    return position - first, passes


def _ratio(counts: list[tuple[int, int]]) -> float:
    return sum(tokens for tokens, _ in counts) / max(1, sum(passes for _, passes in counts))
