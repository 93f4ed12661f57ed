"""The four modes on the real weights: the same greedy text, the same distribution of samples."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import torch

from fleetctl.bench.prompts import load_prompts
from fleetctl.standalone.contract import Counts, Mode, Sampling
from fleetctl.standalone.decoder import Decoder
from fleetctl.standalone.text import TextCodec

pytestmark = pytest.mark.model
PROMPTS = Path(__file__).parents[2] / "playbooks" / "bench" / "five-prompts.yaml"
DRAFTING = [mode for mode in Mode if mode is not Mode.AUTOREGRESSIVE]


def decode(decoder: Decoder, prompt: list[int], wanted: int, sampling: Sampling) -> tuple[list[int], Counts]:
    """The first ``wanted`` tokens, and what all passes up to there cost."""
    counts = Counts()
    tokens: list[int] = []
    for committed in decoder.generate(prompt, sampling, counts):
        tokens += committed
        if len(tokens) >= wanted:
            break
    return tokens[:wanted], counts


def test_greedy_text_is_the_same_token_for_token_in_all_modes(
    decoders: dict[Mode, Decoder], codec: TextCodec
) -> None:
    saved = 0
    for prompt in load_prompts(PROMPTS)[:3]:
        tokens = codec.encode_chat([{"role": "user", "content": prompt.text}])
        plain, _ = decode(decoders[Mode.AUTOREGRESSIVE], tokens, 64, Sampling())
        for mode in DRAFTING:
            drafted, counts = decode(decoders[mode], tokens, 64, Sampling())
            assert drafted == plain, f"{prompt.name}, {mode}: differs from plain decoding"
            saved += 64 - counts.verify_passes
    assert saved > 100, "drafts were hardly ever accepted, so equality says little"


def test_each_mode_describes_what_it_verified(decoders: dict[Mode, Decoder], codec: TextCodec) -> None:
    prompt = codec.encode("1, 2, 3, 4,")
    for mode, decoder in decoders.items():
        counts = Counts(describe=2)
        passes = decoder.generate(prompt, Sampling(), counts)
        committed = [next(passes) for _ in range(5)]
        assert len(counts.steps) == 2, mode
        for step, before, after in zip(counts.steps, committed[:2], committed[1:3], strict=True):
            assert step.tokens[0] == before[-1], mode
            assert [*(step.tokens[node] for node in step.accepted), step.next_token] == after, mode
            branches = len(set(step.parents)) < len(step.parents)
            assert branches == (mode is Mode.TREE), mode
            assert (step.probs is not None) == (mode is Mode.TREE), mode
            assert (len(step.tokens) > 1) == (mode is not Mode.AUTOREGRESSIVE), mode


def test_a_prompt_longer_than_one_prefill_pass_decodes_alike(
    decoders: dict[Mode, Decoder], codec: TextCodec
) -> None:
    tokens = codec.encode("The quick brown fox jumps over the lazy dog. " * 60)
    assert len(tokens) > 512
    plain, _ = decode(decoders[Mode.AUTOREGRESSIVE], tokens, 12, Sampling())
    drafted, counts = decode(decoders[Mode.TREE], tokens, 12, Sampling())
    assert drafted == plain
    assert counts.accepted > 0


def test_one_seed_gives_one_text_in_all_modes(decoders: dict[Mode, Decoder], codec: TextCodec) -> None:
    tokens = codec.encode_chat([{"role": "user", "content": "Tell me a story."}])
    sampling = Sampling(temperature=0.8, top_p=0.95, seed=11)
    plain, _ = decode(decoders[Mode.AUTOREGRESSIVE], tokens, 32, sampling)
    for mode in DRAFTING:
        assert decode(decoders[mode], tokens, 32, sampling)[0] == plain, mode
    other = Sampling(temperature=0.8, top_p=0.95, seed=12)
    assert decode(decoders[Mode.AUTOREGRESSIVE], tokens, 32, other)[0] != plain


def test_samples_behind_an_accepted_draft_follow_the_targets_distribution(
    decoders: dict[Mode, Decoder], codec: TextCodec
) -> None:
    """Chi-square of the second token against the target's exact marginal, which a draft must not shift.

    The marginal is the sum over first tokens of p(first) p(second | first); only the most probable first tokens
    are followed, and samples that begin with another are left out on both sides.
    """
    prompt = codec.encode("3, 1, 4, 1, 5, 9, 2, 6,")
    decoder = decoders[Mode.TREE]
    expected, firsts = _second_token(decoder, prompt, follow=6)
    seconds: Counter[int] = Counter()
    accepted = 0
    for seed in range(100):
        sampled, counts = decode(decoder, prompt, 2, Sampling(temperature=1.0, seed=seed))
        accepted += counts.accepted
        if sampled[0] in firsts:
            seconds[sampled[1]] += 1
    assert accepted > 50, "drafts were hardly ever accepted, so nothing was tested"
    assert _p_value(seconds, expected) > 0.001
    shifted = torch.softmax(expected.clamp_min(1e-12).log() * 2, dim=-1)
    assert _p_value(seconds, shifted) < 0.001, "the test could not tell temperature 1 from 0.5"


def _second_token(decoder: Decoder, prompt: list[int], follow: int) -> tuple[torch.Tensor, list[int]]:
    first = _distribution(decoder, prompt)
    firsts: list[int] = first.topk(follow).indices.tolist()
    weights = first[firsts] / first[firsts].sum()
    rows = torch.stack([_distribution(decoder, [*prompt, token]) for token in firsts])
    return weights @ rows, firsts


@torch.inference_mode()
def _distribution(decoder: Decoder, tokens: list[int]) -> torch.Tensor:
    target = decoder._target
    done = target.forward(torch.tensor(tokens), torch.arange(len(tokens)), 0, None)
    return torch.softmax(target.logits(done.hidden[-1:])[0].double(), dim=-1)


def _p_value(seen: Counter[int], expected: torch.Tensor) -> float:
    """Of the chi-square test, tokens expected less than 5 times taken together (Wilson-Hilferty's approximation)."""
    total = sum(seen.values())
    bins = [int(token) for token in (expected * total >= 5).nonzero().flatten()]
    chance = [float(expected[token]) for token in bins]
    count = [seen[token] for token in bins]
    chance.append(1 - sum(chance))
    count.append(total - sum(count))
    assert len(bins) >= 2, "too few samples for a test"
    square = sum((c - p * total) ** 2 / (p * total) for c, p in zip(count, chance, strict=True) if p > 0)
    free = len(bins)
    deviate = ((square / free) ** (1 / 3) - (1 - 2 / (9 * free))) / math.sqrt(2 / (9 * free))
    return 0.5 * math.erfc(deviate / math.sqrt(2))
