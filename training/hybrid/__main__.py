"""``python -m training.hybrid prepare | pretrain | draft``: text, the hybrid model, its drafter.

Each verb ends within its ``--seconds`` and leaves what the next one needs in ``--out``, so that they can be separate
commands on a machine that is lent by the minute; ``prepare`` needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import sysconfig
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch

from training.hybrid import checkpoint, documents, tokens
from training.hybrid.draft import draft
from training.hybrid.model import Hybrid
from training.hybrid.pretrain import Pretrainer
from training.hybrid.recipe import SMOKE, HybridRecipe

TARGET, DRAFTER, PREPARED = "target", "drafter", "prepared"


def say(line: str) -> None:
    print(line, flush=True)


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def prepare(arguments: argparse.Namespace, recipe: HybridRecipe) -> None:
    """Read the sources, train the tokenizer, write the ids."""
    folders = arguments.sources or [
        Path(sysconfig.get_paths()["purelib"]),
        Path(sysconfig.get_paths()["stdlib"]),
    ]
    started = time.monotonic()
    seconds = recipe.text_seconds if arguments.seconds is None else arguments.seconds
    found = documents.read(folders, recipe.text_bytes, recipe.documents, seconds)
    say(f"{time.monotonic() - started:6.1f} s  {len(found)} documents")
    counts = tokens.prepare(found, recipe, arguments.out / PREPARED)
    say(f"{time.monotonic() - started:6.1f} s  {counts}")


def pretrain(arguments: argparse.Namespace, recipe: HybridRecipe) -> None:
    """Train the model and save it as SGLang reads it."""
    started = time.monotonic()
    prepared = tokens.load(arguments.out / PREPARED, recipe)
    torch.manual_seed(0)
    model = Hybrid(recipe.shape).to(device())
    count = sum(weight.numel() for weight in model.parameters())
    say(
        f"{time.monotonic() - started:6.1f} s  {count / 1e6:.1f} M parameters, {len(prepared.rows)} rows of text"
    )
    trainer = Pretrainer(model, prepared.rows, prepared.held_out, recipe)
    result = trainer.run(arguments.seconds - (time.monotonic() - started) - arguments.reserve, say)
    checkpoint.save(model, arguments.out / PREPARED, arguments.out / TARGET)
    record = {"parameters": count, **result, "shape": asdict(recipe.shape), "device": str(device())}
    (arguments.out / TARGET / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    say(f"{time.monotonic() - started:6.1f} s  {result}")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.hybrid", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    reader = verbs.add_parser("prepare", help="text and tokenizer, from the sources of installed packages")
    reader.add_argument("--sources", type=Path, nargs="+", help="folders of *.py; default: this Python's own")
    reader.add_argument("--seconds", type=float, help="of reading; the tokenizer takes about as long again")
    reader.set_defaults(run=prepare)
    trainer = verbs.add_parser("pretrain", help="train the hybrid model")
    trainer.set_defaults(run=pretrain)
    drafter = verbs.add_parser("draft", help="let it write, and train its drafter on that")
    drafter.set_defaults(run=lambda given, recipe: draft(given.out, recipe, given.seconds, device(), say))
    for verb, seconds in ((trainer, 360.0), (drafter, 300.0)):
        verb.add_argument(
            "--seconds", type=float, default=seconds, help="for all of it (default: %(default)s)"
        )
    trainer.add_argument("--reserve", type=float, default=8.0, help="seconds of these that saving may take")
    for verb in (reader, trainer, drafter):
        verb.add_argument("--out", type=Path, required=True, metavar="DIR")
        verb.add_argument("--smoke", action="store_true", help="tiny sizes, for the CPU")
        verb.add_argument("--rows", type=int, help="rows of a step, where the card holds more or fewer")
    arguments = parser.parse_args(argv)
    recipe = SMOKE if arguments.smoke else HybridRecipe()
    arguments.run(arguments, replace(recipe, rows=arguments.rows or recipe.rows))


if __name__ == "__main__":
    main(sys.argv[1:])
