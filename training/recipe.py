"""Every number of a training run, in one place: the full run and a tiny one for the CPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """Sizes in tokens or rows, times in seconds, rates per step."""

    layers: int = 5
    feature_layers: tuple[int, ...] = (1, 8, 15, 22, 28)

    tokens: int = 19_000_000
    """Tokens of text to keep, prompts included; their features take 5.8 KB each."""
    writing_seconds: float = 330.0
    rows: int = 4096
    prompt_limit: int = 96
    answer_limit: int = 256
    own_prompt_limit: int = 64
    after_loop: int = 48
    """Tokens kept of a text once it is found to loop."""
    validation_own: int = 46

    sequences: int = 64
    anchors: int = 32
    slots: int = 12_288
    """Drafted positions per step that go through the head, drawn by their weight."""
    decay: float = 5.0
    """Weight of the k-th drafted position: exp(-(k - 1) / decay)."""
    soft: float = 0.5
    """Share of the target's own distribution in the labels; the rest is the token that was written."""
    soft_temperature: float = 0.7
    matrix_rate: float = 0.02
    norm_rate: float = 1e-3
    flat: float = 0.35
    """Share of the training time at the full rate, before the cosine to zero."""
    compile: bool = True
    """Compile the drafter's layers: a fifth more steps on a GPU, not worth its minute on a CPU."""
    validate_every: float = 60.0
    seed: int = 0


SMOKE = Recipe(
    layers=2,
    feature_layers=(0, 1),
    tokens=1500,
    writing_seconds=20,
    rows=8,
    prompt_limit=64,
    answer_limit=32,
    own_prompt_limit=16,
    validation_own=2,
    sequences=4,
    anchors=4,
    slots=96,
    compile=False,
    validate_every=5,
)
