"""The words that the HTTP side and the model side share; nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Step:
    """One verify pass: what was verified and what was committed, in token ids.

    ``parents[0]`` is -1, the root's, which is the last committed token; ``probs`` are the drafter's own, of a node
    after its parent (None where the mode keeps none). ``accepted``: nodes in order, without the root; ``next_token``:
    the target's own after them.
    """

    tokens: list[int]
    parents: list[int]
    probs: list[float] | None
    accepted: list[int]
    next_token: int


@dataclass(slots=True)
class Counts:
    """What a generation has cost so far, in tokens and passes; the prefill is not a verify pass.

    A pass commits its ``accepted`` drafts and one token of the target's own, so the accepted length is
    ``1 + accepted / verify_passes``. The first ``describe`` passes are kept in ``steps``.
    """

    drafted: int = 0
    accepted: int = 0
    verify_passes: int = 0
    describe: int = 0
    steps: list[Step] = field(default_factory=list)
