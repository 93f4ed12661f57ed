"""Trains the hybrid model on rows of text for a given time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from training.fit import rate_factor
from training.hybrid.model import Hybrid
from training.hybrid.recipe import HybridRecipe
from training.muon import Muon

NARROWEST = 16
"""Matrices with fewer rows than this are left to AdamW, as are embeddings, convolutions and norms."""
REPORT_EVERY = 30.0


def loss_of(model: Hybrid, rows: Tensor) -> Tensor:
    """Mean cross-entropy of the next token over rows [B, T + 1]."""
    with torch.autocast(rows.device.type, torch.bfloat16, enabled=rows.is_cuda):
        final, _ = model(rows[:, :-1])
        logits = model.lm_head(final)
    return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


class Pretrainer:
    """A model, its optimisers and the text."""

    def __init__(self, model: Hybrid, rows: Tensor, held_out: Tensor, recipe: HybridRecipe) -> None:
        self.model, self.rows, self.held_out, self.recipe = model, rows, held_out, recipe
        matrices = [
            weight
            for name, weight in model.named_parameters()
            if weight.dim() == 2 and name.startswith("layers.") and min(weight.shape) >= NARROWEST
        ]
        known = set(map(id, matrices))
        others = [weight for weight in model.parameters() if id(weight) not in known]
        self.muon = Muon(matrices, recipe.matrix_rate)
        self.adam = torch.optim.AdamW(others, lr=recipe.other_rate, betas=(0.9, 0.98), weight_decay=0.0)
        self.order = torch.empty(0, dtype=torch.long)
        self.epochs = 0

    def run(self, seconds: float, report: Callable[[str], None]) -> dict[str, float]:
        """Train until ``seconds`` are over; steps, tokens a second, and the losses at the end."""
        device = self.model.embed_tokens.weight.device
        started = reported = time.monotonic()
        steps, losses, last = 0, [], math.nan
        while (elapsed := time.monotonic() - started) < seconds or not steps:
            loss = self._step(
                self._batch().to(device), rate_factor(steps, elapsed / seconds, self.recipe.flat)
            )
            losses.append(loss)
            steps += 1
            if steps % 20 == 0 and loss.is_cuda:
                torch.cuda.synchronize()
            if time.monotonic() - reported >= REPORT_EVERY:
                reported, last, losses = time.monotonic(), float(torch.stack(losses).mean()), []
                report(f"{elapsed:6.1f} s  step {steps:6d}  loss {last:.4f}")
        taken = time.monotonic() - started
        last = float(torch.stack(losses).mean()) if losses else last
        return {
            "steps": steps,
            "seconds": round(taken, 1),
            "tokens_per_second": round(steps * self.recipe.rows * self.recipe.length / taken),
            "epochs": round(steps * self.recipe.rows / len(self.rows), 2),
            "loss": round(last, 4),
            "held_out_loss": round(self.validate(), 4),
        }

    @torch.no_grad()
    def validate(self) -> float:
        """The mean loss over held-out rows."""
        device = self.model.embed_tokens.weight.device
        rows = self.held_out[: 8 * self.recipe.validation_rows]
        parts = torch.split(rows, self.recipe.validation_rows)
        return float(torch.stack([loss_of(self.model, part.to(device)) for part in parts]).mean())

    def _batch(self) -> Tensor:
        if len(self.order) < min(self.recipe.rows, len(self.rows)):
            self.order = torch.randperm(len(self.rows))
        chosen, self.order = self.order[: self.recipe.rows], self.order[self.recipe.rows :]
        return self.rows[chosen]

    def _step(self, rows: Tensor, factor: float) -> Tensor:
        loss = loss_of(self.model, rows)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.adam.param_groups[0]["params"], 1.0)
        self.muon.rate = self.recipe.matrix_rate * factor
        for group in self.adam.param_groups:
            group["lr"] = self.recipe.other_rate * factor
        self.muon.step()
        self.adam.step()
        self.model.zero_grad(set_to_none=True)
        return loss.detach()
