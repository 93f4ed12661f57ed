"""From folders to a model that generates; this is where torch comes in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from fleetctl.standalone.config import DrafterConfig, TargetConfig
from fleetctl.standalone.contract import Mode
from fleetctl.standalone.decoder import Decoder
from fleetctl.standalone.drafter import Drafter
from fleetctl.standalone.engine import Model
from fleetctl.standalone.target import Target
from fleetctl.standalone.text import TextCodec

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Setup:
    """What to load; ``drafter_folder`` and ``drafter`` are None in autoregressive mode only."""

    folder: Path
    target: TargetConfig
    drafter_folder: Path | None
    drafter: DrafterConfig | None
    mode: Mode
    budget: int
    min_prob: float
    top_k: int
    dtype: str
    threads: int


def load_weights(setup: Setup, report: Callable[[str], None]) -> tuple[Target, Drafter | None]:
    """Load target and drafter on the calling thread, which is the one that must generate.

    ``StartError`` names a file that cannot be used.
    """
    torch.set_num_threads(setup.threads)
    dtype = DTYPES[setup.dtype]
    began = time.monotonic()
    capture = setup.drafter.target_layers if setup.drafter else ()
    spare = max(setup.drafter.block_size if setup.drafter else 1, setup.budget + 1)
    slots = setup.target.context + spare
    target = Target(setup.folder, setup.target, slots, capture, dtype)
    report(f"model {setup.folder} loaded ({setup.dtype}) after {time.monotonic() - began:.2f} s")
    drafter = None
    if setup.drafter and setup.drafter_folder:
        drafter = Drafter(setup.drafter_folder, setup.drafter, target, slots, dtype)
        report(f"drafter {setup.drafter_folder} loaded after {time.monotonic() - began:.2f} s")
    return target, drafter


def load_decoder(setup: Setup, report: Callable[[str], None]) -> Decoder:
    """A decoder over what ``load_weights`` loads."""
    return Decoder(*load_weights(setup, report), setup.mode, setup.budget, setup.top_k, setup.min_prob)


def load_model(setup: Setup, report: Callable[[str], None]) -> Model:
    """Everything the engine needs; see ``load_decoder``."""
    codec = TextCodec(setup.folder)
    return Model(
        generator=load_decoder(setup, report),
        codec=codec,
        context=setup.target.context,
        vocabulary=setup.target.vocabulary,
        eos_ids=setup.target.eos_ids,
    )
