"""The hybrid model's DFlash drafter, trained by the same code as any other on what the model writes itself."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from training.corpus import build_corpus
from training.drafter import Drafter, DrafterShape
from training.fit import Trainer
from training.hybrid import checkpoint, tokens
from training.hybrid.recipe import MASK, HybridRecipe
from training.hybrid.target import HybridTarget
from training.hybrid.writer import write
from training.loops import loop_starts
from training.texts import Text

WRITING_SHARE = 0.35
"""Of the whole time, at most, until the texts are written."""
GREEDY_SHARE = 0.7
AFTER_LOOP = 48


def draft(
    out: Path, recipe: HybridRecipe, seconds: float, device: torch.device, say: Callable[[str], None]
) -> None:
    """Write texts, cache the target's features, train: all within ``seconds``; the best drafter is saved."""
    started = time.monotonic()
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = checkpoint.load(out / "target", recipe.shape).to(device)
    target = HybridTarget(model, dtype)
    prepared = tokens.load(out / "prepared", recipe)
    unseen = prepared.unseen[: recipe.validation_texts]
    validation = _answered(target, unseen, [0] * len(unseen), recipe, None)
    until = started + WRITING_SHARE * seconds
    training = own_texts(target, prepared.prompts, recipe, until)
    say(
        f"{time.monotonic() - started:6.1f} s  {len(training)} texts, {sum(len(t.ids) for t in training)} tokens"
    )
    fit = replace(recipe.drafter, compile=recipe.drafter.compile and device.type == "cuda")
    corpus, held_out = (
        build_corpus(target, part, fit.feature_layers, fit.soft_temperature)
        for part in (training, validation)
    )
    cached = time.monotonic() - started
    say(f"{cached:6.1f} s  features cached")
    torch.manual_seed(fit.seed)
    shape = DrafterShape(
        target.shape,
        layers=fit.layers,
        mlp=recipe.drafter_mlp,
        mask_token=MASK,
        feature_layers=fit.feature_layers,
    )
    drafter = Drafter(shape).to(device)
    progress = Trainer(target, drafter, corpus, held_out, fit).run(seconds - cached, out / "drafter", say)
    record = {
        "recipe": asdict(fit),
        "texts": len(training),
        "parameters": sum(weight.numel() for weight in drafter.parameters()),
        "seconds": round(time.monotonic() - started, 1),
        "steps": progress.steps,
        "history": progress.history,
    }
    (out / "drafter" / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    say(f"{time.monotonic() - started:6.1f} s  done, {progress.steps} steps")


def own_texts(
    target: HybridTarget, prompts: Sequence[list[int]], recipe: HybridRecipe, until: float
) -> list[Text]:
    """Answers of the target to its training prompts: most greedy, the others after a start that is drawn."""
    rng = random.Random(recipe.drafter.seed)
    asked = list(prompts)
    rng.shuffle(asked)
    texts: list[Text] = []
    while len(texts) < recipe.own_texts and asked and (not texts or time.monotonic() < until):
        batch, asked = asked[: recipe.writing_rows], asked[recipe.writing_rows :]
        drawn = [0 if rng.random() < GREEDY_SHARE else rng.randint(2, 40) for _ in batch]
        texts += _answered(target, batch, drawn, recipe, AFTER_LOOP)
    return texts


def _answered(
    target: HybridTarget,
    prompts: Sequence[list[int]],
    drawn: Sequence[int],
    recipe: HybridRecipe,
    after_loop: int | None,
) -> list[Text]:
    """One answer for each prompt; a loop is cut so many tokens after it is found (None: kept whole)."""
    answers = write(target.model, prompts, recipe.answer_limit, drawn)
    texts = []
    for prompt, answer, loop in zip(prompts, answers, loop_starts(answers, target.device), strict=True):
        kept = answer if loop < 0 or after_loop is None else answer[: loop + after_loop]
        if len(kept) >= 4:
            texts.append(Text(prompt + kept, len(prompt)))
    return texts
