"""Texts on the training device with what the frozen target made of them, so that training never runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.target import Target
from training.texts import Text

TOP = 8
READ_ROWS = 128
HEAD_ROWS = 16_384


@dataclass
class Corpus:
    """N tokens of n texts, one after another; all tensors on the training device."""

    tokens: Tensor
    """[N] token ids."""
    features: Tensor
    """[N, K * width] hidden states of the target at each token, in bf16 (or the target's precision)."""
    likely: Tensor
    """[N, 8] the target's likeliest next tokens."""
    odds: Tensor
    """[N, 8] their probabilities among themselves, at the recipe's soft temperature."""
    starts: Tensor
    """[n] index of each text's first token."""
    lengths: Tensor
    """[n] tokens of each text."""
    answers: Tensor
    """[n] where in its text the answer starts."""
    longest: int
    """Tokens of the longest text, rounded up to 8; every batch is this wide, so that the memory allocator
    sees one size only."""


def build_corpus(
    target: Target, texts: Sequence[Text], feature_layers: Sequence[int], soft_temperature: float
) -> Corpus:
    """Run the target once over every text."""
    device, shape = target.device, target.shape
    texts = sorted(texts, key=lambda text: len(text.ids))
    lengths = torch.tensor([len(text.ids) for text in texts])
    starts = lengths.cumsum(0) - lengths
    total = int(lengths.sum())
    tokens = torch.tensor([token for text in texts for token in text.ids], dtype=torch.int32, device=device)
    features = torch.empty(total, len(feature_layers) * shape.width, dtype=target.dtype, device=device)
    likely = torch.empty(total, TOP, dtype=torch.int32, device=device)
    odds = torch.empty(total, TOP, dtype=target.dtype, device=device)
    for first in range(0, len(texts), READ_ROWS):
        part = lengths[first : first + READ_ROWS].to(device)
        column = torch.arange(int(part.max()), device=device)
        real = column < part[:, None]
        place = (starts[first : first + READ_ROWS].to(device)[:, None] + column).clamp(max=total - 1)
        with torch.no_grad():
            final, states = target.read(tokens[place].long(), feature_layers)
            begin = int(starts[first])
            end = begin + int(part.sum())
            features[begin:end] = states[real]
            hidden = final[real]
            for offset in range(0, end - begin, HEAD_ROWS):
                rows = slice(begin + offset, min(begin + offset + HEAD_ROWS, end))
                top = target.head(hidden[offset : offset + HEAD_ROWS]).topk(TOP)
                likely[rows] = top.indices.int()
                odds[rows] = (top.values.float() / soft_temperature).softmax(-1).to(odds.dtype)
    answers = torch.tensor([text.answer for text in texts])
    spans = (starts.to(device), lengths.to(device), answers.to(device))
    return Corpus(tokens, features, likely, odds, *spans, longest=-(-int(lengths.max()) // 8) * 8)


def channel_sizes(corpus: Corpus, sample: int = 200_000) -> Tensor:
    """Root mean square [K * width] of each feature channel, over a sample of the tokens."""
    index = torch.randint(len(corpus.tokens), (sample,), device=corpus.tokens.device)
    return corpus.features[index].float().square().mean(0).sqrt().clamp(min=1e-4)


@dataclass
class Blocks:
    """B texts with A anchors each, T = A * block drafted positions in a row per text."""

    features: Tensor
    """[B, S, K * width] the texts' features."""
    context_positions: Tensor
    """[B, S]."""
    ids: Tensor
    """[B, T] each anchor's token, then mask tokens."""
    positions: Tensor
    """[B, T]."""
    mask: Tensor
    """[B, T, S + T] True where a drafted position may look."""
    labels: Tensor
    """[B, A, block - 1] the tokens that follow each anchor."""
    valid: Tensor
    """[B, A, block - 1] whether the text goes that far."""
    places: Tensor
    """[B, A, block - 1] index into the corpus of the token before each label."""


def gather_blocks(corpus: Corpus, rows: Tensor, anchors: Tensor, block: int, mask_token: int) -> Blocks:
    """Blocks of texts `rows` [B] at positions `anchors` [B, A] within their text."""
    device = corpus.tokens.device
    batch, count = anchors.shape
    last = len(corpus.tokens) - 1
    starts, lengths = corpus.starts[rows], corpus.lengths[rows]
    column = torch.arange(corpus.longest, device=device)
    place = (starts[:, None] + column).clamp(max=last)
    offset = torch.arange(block, device=device)
    positions = anchors[..., None] + offset
    block_place = (starts[:, None, None] + positions).clamp(max=last)
    ids = torch.full((batch, count, block), mask_token, device=device)
    ids[..., 0] = corpus.tokens[block_place[..., 0]].long()
    before = column < anchors[..., None]
    sees_context = before[:, :, None].expand(-1, -1, block, -1).reshape(batch, count * block, -1)
    own = torch.arange(count * block, device=device) // block
    sees_block = (own[:, None] == own).expand(batch, -1, -1)
    return Blocks(
        features=corpus.features[place],
        context_positions=column.expand(batch, -1),
        ids=ids.flatten(1),
        positions=positions.flatten(1),
        mask=torch.cat((sees_context, sees_block), -1),
        labels=corpus.tokens[block_place[..., 1:]].long(),
        valid=positions[..., 1:] < lengths[:, None, None],
        places=block_place[..., :-1],
    )
