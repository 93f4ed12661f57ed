"""From the folders named on the command line to a generator that is ready to be warmed up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from fleetctl.standalone.drafter import Drafter
from fleetctl.standalone.generate import Generator, Mode
from fleetctl.standalone.target import Target
from fleetctl.standalone.text import Text
from fleetctl.standalone.weights import read_config, read_folder

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Settings:
    """How to serve: the model's and the drafter's folders, the mode, and the shape of a draft tree.

    ``drafter`` is not read in ``autoregressive``. ``threads`` 0 leaves the number to torch.
    """

    model: Path
    drafter: Path | None
    mode: Mode
    budget: int
    top_k: int
    dtype: str
    threads: int


def load(settings: Settings) -> tuple[Generator, Text]:
    """The generator and its tokenizer; ModelError names the file that is missing or broken.

    To be called in the thread that generates: torch keeps its number of threads by thread.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    dtype = DTYPES[settings.dtype]
    positions = int(read_config(settings.model)["max_position_embeddings"])
    drafted = settings.drafter if settings.mode != "autoregressive" else None
    capture = list(read_config(drafted)["dflash_config"]["target_layer_ids"]) if drafted else []
    text = Text(settings.model)
    print(f"loading target {settings.model} ({settings.dtype})", flush=True)
    target = Target(read_folder(settings.model, dtype), positions, capture)
    drafter = None
    if drafted:
        print(f"loading drafter {drafted}", flush=True)
        drafter = Drafter(read_folder(drafted, dtype), target)
    return Generator(target, drafter, settings.mode, settings.budget, settings.top_k), text
