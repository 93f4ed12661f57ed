"""Every number of the hybrid model and its training, in one place: the full run and a tiny one for the CPU."""

from __future__ import annotations

from dataclasses import dataclass, field

from training.recipe import SMOKE as DRAFTER_SMOKE
from training.recipe import Recipe
from training.target import TargetShape

END, START, STOP, MASK = 0, 1, 2, 3
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|MASK|>", "<|vision_start|>", "<|vision_end|>",
           "<|image_pad|>", "<|video_pad|>")  # fmt: skip
"""Special tokens in the order of their ids; the last four are what the multimodal configuration names."""


@dataclass(frozen=True)
class HybridShape:
    """Sizes of a Qwen3.5 text model; each ``interval``-th layer is attention, the others are recurrent.

    ``rotary`` is the share of a head that is rotated; SGLang's kernels want ``key_dim`` and ``value_dim`` of 128.
    """

    layers: int = 8
    width: int = 512
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    rotary: float = 0.5
    key_heads: int = 4
    value_heads: int = 8
    key_dim: int = 128
    value_dim: int = 128
    kernel: int = 4
    mlp: int = 1408
    vocab: int = 8192
    theta: float = 1_000_000.0
    eps: float = 1e-6
    interval: int = 4
    positions: int = 8192

    def is_attention(self, layer: int) -> bool:
        """Whether a layer has attention."""
        return (layer + 1) % self.interval == 0

    @property
    def sections(self) -> tuple[int, int, int]:
        """How many of the rotated pairs belong to time, height and width; they add up to all of them."""
        pairs = int(self.head_dim * self.rotary) // 2
        return pairs - 2 * (pairs // 3), pairs // 3, pairs // 3

    @property
    def as_target(self) -> TargetShape:
        """What a DFlash drafter takes from its target."""
        return TargetShape(
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            mlp=self.mlp,
            vocab=self.vocab,
            theta=self.theta,
            eps=self.eps,
        )


@dataclass(frozen=True)
class HybridRecipe:
    """Sizes in tokens, rows or bytes, times in seconds, rates per step."""

    shape: HybridShape = field(default_factory=HybridShape)
    drafter: Recipe = field(
        default_factory=lambda: Recipe(layers=3, feature_layers=(1, 3, 5), rows=1024, compile=False)
    )
    """Not compiled: in five minutes that costs more than it brings."""
    drafter_mlp: int = 1536

    text_bytes: int = 260_000_000
    """Of source files to read."""
    text_seconds: float = 120.0
    documents: int = 400_000
    tokenizer_documents: int = 40_000
    length: int = 512
    """Tokens of a training row."""
    rows: int = 64
    matrix_rate: float = 0.02
    other_rate: float = 2e-3
    flat: float = 0.5
    held_out: int = 40
    """One document of so many is never trained on."""
    validation_rows: int = 16

    prompt_limit: int = 96
    answer_limit: int = 256
    own_texts: int = 24_000
    writing_rows: int = 2048
    """Texts that are written at once: a pass takes little longer for many (3 MB of states a row)."""
    validation_texts: int = 96


SMOKE = HybridRecipe(
    shape=HybridShape(
        layers=2,
        width=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        key_heads=2,
        value_heads=4,
        key_dim=16,
        value_dim=16,
        mlp=96,
        vocab=512,
        interval=2,
        positions=512,
    ),
    drafter=DRAFTER_SMOKE,
    drafter_mlp=96,
    text_bytes=400_000,
    text_seconds=20,
    documents=300,
    tokenizer_documents=200,
    length=64,
    rows=4,
    validation_rows=2,
    held_out=5,
    prompt_limit=48,
    answer_limit=24,
    own_texts=16,
    writing_rows=8,
    validation_texts=8,
)
