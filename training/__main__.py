"""`python -m training train` and `python -m training evaluate`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch

from training.corpus import build_corpus
from training.drafter import Drafter, DrafterShape, load_drafter
from training.evaluate import evaluate
from training.fit import Trainer
from training.prompts import ChatTokenizer, eval_prompts
from training.recipe import SMOKE, Recipe
from training.report import tables
from training.target import Target, TargetShape, load_gguf, random_target
from training.texts import TextWriter


def say(line: str) -> None:
    print(line, flush=True)


def read_target(arguments: argparse.Namespace) -> Target:
    """The GGUF's target, or for a smoke run without one a small random target."""
    if arguments.gguf is None:
        return random_target(TargetShape(layers=3, width=64, heads=3, kv_heads=1, head_dim=16, mlp=96))
    return load_gguf(arguments.gguf)


def train(arguments: argparse.Namespace) -> None:
    """Write the texts, cache the target's features, train; the whole of it within `--seconds`."""
    started = time.monotonic()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    recipe = SMOKE if arguments.smoke else Recipe()
    recipe = replace(recipe, layers=arguments.layers or recipe.layers, seed=arguments.seed)
    target = read_target(arguments).to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    say(f"{time.monotonic() - started:6.1f} s  target loaded on {device}")
    writer = TextWriter(target, ChatTokenizer(arguments.tokenizer), recipe)
    texts = writer.write()
    del writer
    if device.type == "cuda":
        torch.cuda.empty_cache()
    written = time.monotonic() - started
    say(f"{written:6.1f} s  {len(texts.training)} texts, {texts.tokens()} tokens, {texts.counts}")
    corpus, held_out = (
        build_corpus(target, part, recipe.feature_layers, recipe.soft_temperature)
        for part in (texts.training, texts.validation)
    )
    cached = time.monotonic() - started
    say(f"{cached:6.1f} s  features cached")
    torch.manual_seed(recipe.seed)
    drafter = Drafter(
        DrafterShape(target.shape, layers=recipe.layers, feature_layers=recipe.feature_layers)
    ).to(device)
    trainer = Trainer(target, drafter, corpus, held_out, recipe)
    progress = trainer.run(arguments.seconds - cached, arguments.out, say)
    record = {
        "recipe": asdict(recipe),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "texts": len(texts.training),
        "tokens": texts.tokens(),
        "counts": texts.counts,
        "parameters": sum(weight.numel() for weight in drafter.parameters()),
        "seconds": {
            "writing": round(written, 1),
            "features": round(cached - written, 1),
            "training": round(progress.seconds, 1),
            "all": round(time.monotonic() - started, 1),
        },
        "steps": progress.steps,
        "history": progress.history,
    }
    (arguments.out / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    say(f"{time.monotonic() - started:6.1f} s  done, {progress.steps} steps")


def measure(arguments: argparse.Namespace) -> None:
    """Accepted lengths on the measured prompts, in float32."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    target = read_target(arguments).to(device, torch.float32)
    drafter = load_drafter(arguments.drafter, target.shape).to(device)
    prompts = eval_prompts()[: arguments.prompts]
    budgets = [int(budget) for budget in arguments.budgets.split(",")]
    result = evaluate(
        target, drafter, ChatTokenizer(arguments.tokenizer), prompts, budgets, arguments.limit, say
    )
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    say(tables(result))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training")
    verbs = parser.add_subparsers(required=True)
    trainer = verbs.add_parser("train", help="write texts and train a drafter on them")
    trainer.add_argument("--seconds", type=float, default=1100.0, help="for all of it, data included")
    trainer.add_argument("--layers", type=int, help="layers of the drafter")
    trainer.add_argument("--seed", type=int, default=0)
    trainer.add_argument("--smoke", action="store_true", help="tiny sizes, for the CPU")
    trainer.set_defaults(run=train)
    evaluator = verbs.add_parser("evaluate", help="measure accepted lengths on the unseen prompts")
    evaluator.add_argument("--drafter", type=Path, required=True, help="folder of a saved drafter")
    evaluator.add_argument("--prompts", type=int, help="only the first so many prompts")
    evaluator.add_argument("--limit", type=int, default=256, help="tokens of an answer")
    evaluator.add_argument("--budgets", default="0,4,8,15,16,32,64", help="tree nodes; 0 is the chain")
    evaluator.set_defaults(run=measure)
    for verb in (trainer, evaluator):
        verb.add_argument("--gguf", type=Path, help="the target; without it a small random one")
        verb.add_argument("--tokenizer", type=Path, default=Path("models/smollm2-135m-tokenizer"))
        verb.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(argv)
    arguments.run(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
