"""The training loop: anchors in random texts, the drafter fills a block after each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from training.corpus import Blocks, Corpus, channel_sizes, gather_blocks
from training.drafter import Drafter, save_drafter
from training.muon import Muon
from training.recipe import Recipe
from training.target import Target
from training.validate import Validation, draft_hidden, validate

WARM_UP_STEPS = 100
LEAST_RATE = 0.01


def choose_slots(valid: Tensor, decay: float, count: int) -> Tensor:
    """Flat indices of `count` drafted positions, drawn without replacement by exp(-(k - 1) / decay).

    The head is the costliest part of a step and late positions matter little: drawing them seldom has the
    same mean gradient as weighting them low.
    """
    weight = torch.arange(valid.shape[-1], device=valid.device) / -decay
    keys = weight - torch.empty(valid.shape, device=valid.device).exponential_().log_()
    keys = keys.masked_fill(~valid, -torch.inf).flatten()
    return keys.topk(min(count, keys.numel()), sorted=False).indices


def block_loss(target: Target, hidden: Tensor, blocks: Blocks, corpus: Corpus, recipe: Recipe) -> Tensor:
    """Mean cross-entropy against the written token mixed with the target's own likeliest tokens."""
    slots = choose_slots(blocks.valid, recipe.decay, recipe.slots)
    use = blocks.valid.flatten()[slots].float()
    labels, places = blocks.labels.flatten()[slots], blocks.places.flatten()[slots]
    logits = target.head(hidden.flatten(0, 2)[slots])
    hard = F.cross_entropy(logits, labels, reduction="none")
    picked = logits.gather(1, labels[:, None]).float()[:, 0]
    likely = logits.gather(1, corpus.likely[places].long()).float()
    soft = hard + picked - (likely * corpus.odds[places].float()).sum(-1)
    loss = (1 - recipe.soft) * hard + recipe.soft * soft
    return (loss * use).sum() / use.sum().clamp(min=1)


def rate_factor(step: int, elapsed: float, flat: float) -> float:
    """Share of the full rate at a step and a share of the training time: warm-up, flat, cosine."""
    warm = min(1.0, (step + 1) / WARM_UP_STEPS)
    fall = max(0.0, (elapsed - flat) / (1 - flat))
    return warm * max(LEAST_RATE, 0.5 * (1 + math.cos(math.pi * min(fall, 1.0))))


@dataclass
class Progress:
    """What a run reports: one entry a validation, and the best of them."""

    steps: int = 0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)
    best: Validation | None = None


class Trainer:
    """A drafter, its optimisers and the texts; `run` trains for a given time."""

    def __init__(
        self, target: Target, drafter: Drafter, corpus: Corpus, held_out: Corpus, recipe: Recipe
    ) -> None:
        self.target, self.drafter, self.corpus, self.held_out = target, drafter, corpus, held_out
        self.recipe = recipe
        self.channel_size = channel_sizes(corpus)
        self.draft: Drafter = torch.compile(drafter) if recipe.compile else drafter  # type: ignore[assignment]
        with torch.no_grad():
            drafter.norm.weight.copy_(target.norm)
        matrices = [w for w in drafter.parameters() if w.dim() == 2]
        norms = [w for w in drafter.parameters() if w.dim() == 1]
        self.muon = Muon(matrices, recipe.matrix_rate)
        self.adam = torch.optim.AdamW(norms, lr=recipe.norm_rate, betas=(0.9, 0.99), weight_decay=0.0)
        self.drawing = (corpus.lengths - corpus.answers).clamp(min=8).float()

    def step(self, factor: float) -> Tensor:
        """One step at a share of the full rates; returns the loss (still on the device)."""
        r = self.recipe
        rows = torch.multinomial(self.drawing, r.sequences, replacement=True)
        first = self.corpus.answers[rows, None]
        room = (self.corpus.lengths[rows, None] - 1 - first).clamp(min=1)
        anchors = first + (torch.rand(r.sequences, r.anchors, device=rows.device) * room).long()
        shape = self.drafter.shape
        blocks = gather_blocks(self.corpus, rows, anchors, shape.block, shape.mask_token)
        hidden = draft_hidden(self.draft, self.target, blocks, self.channel_size)
        loss = block_loss(self.target, hidden, blocks, self.corpus, r)
        loss.backward()  # type: ignore[no-untyped-call]
        self.muon.rate = r.matrix_rate * factor
        for group in self.adam.param_groups:
            group["lr"] = r.norm_rate * factor
        self.muon.step()
        self.adam.step()
        self.drafter.zero_grad(set_to_none=True)
        return loss.detach()

    def run(self, seconds: float, folder: Path, report: Callable[[str], None]) -> Progress:
        """Train for a time, validating now and then; `folder` gets the best checkpoint so far."""
        progress, started, validated = Progress(), time.monotonic(), time.monotonic()
        losses: list[Tensor] = []
        while True:
            elapsed = time.monotonic() - started
            done = elapsed >= seconds
            if done or time.monotonic() - validated >= self.recipe.validate_every:
                self._validate(progress, elapsed, losses, folder, report)
                losses, validated = [], time.monotonic()
            if done:
                return progress
            losses.append(self.step(rate_factor(progress.steps, elapsed / seconds, self.recipe.flat)))
            progress.steps += 1
            if progress.steps % 20 == 0 and losses[-1].is_cuda:
                torch.cuda.synchronize()

    def _validate(
        self,
        progress: Progress,
        elapsed: float,
        losses: list[Tensor],
        folder: Path,
        report: Callable[[str], None],
    ) -> None:
        result = validate(self.drafter, self.target, self.held_out, self.channel_size)
        loss = float(torch.stack(losses).mean()) if losses else math.nan
        entry = {"steps": progress.steps, "seconds": round(elapsed, 1), "loss": round(loss, 4)}
        progress.seconds = elapsed
        held_out = {f"held_out_{name}": round(value, 4) for name, value in vars(result).items()}
        progress.history.append(entry | held_out)
        report(
            f"{elapsed:6.1f} s  step {progress.steps:6d}  loss {loss:.4f}  held out: loss {result.loss:.4f}  "
            f"tau {result.tau:.3f}  plain texts {result.tau_plain:.3f}"
        )
        if progress.best is None or result.tau > progress.best.tau:
            progress.best = result
            save_drafter(self.drafter, self.channel_size, folder)
