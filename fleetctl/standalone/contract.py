"""The words that the HTTP side and the model side share; nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """How tokens are proposed and verified."""

    AUTOREGRESSIVE = "autoregressive"
    LINEAR = "linear"
    SHADOW = "shadow"
    TREE = "tree"


@dataclass(frozen=True, slots=True)
class Sampling:
    """``temperature`` 0 is greedy; ``top_p`` keeps the smallest set of best tokens of at least that mass."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None


@dataclass(slots=True)
class Counts:
    """What a generation has cost so far, in tokens and passes; the prefill is not a verify pass.

    A pass commits its ``accepted`` drafts and one token of the target's own, so the accepted length is
    ``1 + accepted / verify_passes``.
    """

    drafted: int = 0
    accepted: int = 0
    verify_passes: int = 0
