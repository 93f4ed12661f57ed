"""A tiny drafter for a tiny random target: it learns, is saved as SGLang reads it, decodes exactly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from training.corpus import build_corpus, channel_sizes, gather_blocks
from training.drafter import Drafter, DrafterShape, load_drafter, save_drafter
from training.evaluate import Decoder
from training.fit import Trainer, choose_slots, rate_factor
from training.loops import loop_starts
from training.muon import orthogonalise
from training.recipe import SMOKE
from training.target import Target, TargetShape, random_target
from training.texts import Text
from training.validate import draft_hidden, validate
from training.writer import Writer

SHAPE = TargetShape(layers=3, width=32, heads=4, kv_heads=2, head_dim=8, mlp=48, vocab=64)
DRAFTER = DrafterShape(SHAPE, layers=2, mlp=48, block=8, feature_layers=(0, 1))
NO_END = 10_000


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small are slower on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def target() -> Target:
    return random_target(SHAPE, seed=3)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    rng = torch.Generator().manual_seed(0)
    return [torch.randint(4, SHAPE.vocab, (length,), generator=rng).tolist() for length in (3, 9, 14, 6)]


@pytest.fixture(scope="module")
def answers(target: Target, prompts: list[list[int]]) -> list[list[int]]:
    zeros = torch.zeros(len(prompts))
    return Writer(target, len(prompts), 64, NO_END).write(prompts, 40, zeros, zeros.long())


@pytest.fixture(scope="module")
def trained(
    target: Target, prompts: list[list[int]], answers: list[list[int]]
) -> tuple[Trainer, list[float]]:
    torch.manual_seed(0)
    texts = [Text(p + a, len(p)) for p, a in zip(prompts, answers, strict=True)]
    corpus = build_corpus(target, texts, DRAFTER.feature_layers, 0.7)
    trainer = Trainer(
        target, Drafter(DRAFTER), corpus, corpus, replace(SMOKE, anchors=8, slots=128, soft=0.2)
    )
    return trainer, [float(trainer.step(1.0)) for _ in range(120)]


def test_writing_equals_greedy_decoding_without_a_cache(
    target: Target, prompts: list[list[int]], answers: list[list[int]]
) -> None:
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = torch.tensor([prompt])
        for token in answer:
            final, _ = target.read(ids, (0,))
            assert int(target.head(final[0, -1]).argmax()) == token
            ids = torch.cat((ids, torch.tensor([[token]])), 1)


def test_an_answer_ends_with_the_end_token(
    target: Target, prompts: list[list[int]], answers: list[list[int]]
) -> None:
    end = answers[0][10]
    zeros = torch.zeros(len(prompts))
    ended = Writer(target, len(prompts), 64, end).write(prompts, 40, zeros, zeros.long())
    for full, cut in zip(answers, ended, strict=True):
        assert cut == (full[: full.index(end) + 1] if end in full else full)


def test_the_loss_falls_and_drafts_are_accepted(trained: tuple[Trainer, list[float]]) -> None:
    trainer, losses = trained
    assert sum(losses[-10:]) < 0.3 * sum(losses[:10])
    result = validate(trainer.drafter, trainer.target, trainer.held_out, trainer.channel_size)
    assert result.tau > 2


def test_the_saved_drafter_has_the_names_and_shapes_that_sglang_loads(
    trained: tuple[Trainer, list[float]], tmp_path: Path
) -> None:
    trainer, _ = trained
    save_drafter(trainer.drafter, trainer.channel_size, tmp_path)
    shapes = {name: tuple(value.shape) for name, value in load_file(tmp_path / "model.safetensors").items()}
    layer = {
        "input_layernorm": (32,),
        "post_attention_layernorm": (32,),
        "self_attn.q_proj": (32, 32),
        "self_attn.k_proj": (16, 32),
        "self_attn.v_proj": (16, 32),
        "self_attn.o_proj": (32, 32),
        "self_attn.q_norm": (8,),
        "self_attn.k_norm": (8,),
        "mlp.gate_proj": (48, 32),
        "mlp.up_proj": (48, 32),
        "mlp.down_proj": (32, 48),
    }
    assert shapes == {"fc.weight": (32, 64), "hidden_norm.weight": (32,), "norm.weight": (32,)} | {
        f"layers.{index}.{name}.weight": shape for index in (0, 1) for name, shape in layer.items()
    }
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["DFlashDraftModel"]
    assert (config["block_size"], config["rope_theta"]) == (8, 1_000_000.0)
    assert config["dflash_config"] == {"mask_token_id": 3, "target_layer_ids": [0, 1]}


def test_folding_the_channel_sizes_into_fc_changes_nothing_but_rounding(
    trained: tuple[Trainer, list[float]], tmp_path: Path
) -> None:
    trainer, _ = trained
    save_drafter(trainer.drafter, trainer.channel_size, tmp_path)
    loaded = load_drafter(tmp_path, SHAPE)
    corpus = trainer.corpus
    blocks = gather_blocks(corpus, torch.tensor([0]), corpus.answers[:1, None] + 3, DRAFTER.block, 3)
    with torch.no_grad():
        ours = draft_hidden(trainer.drafter, trainer.target, blocks, trainer.channel_size)
        theirs = draft_hidden(loaded, trainer.target, blocks, torch.ones_like(trainer.channel_size))
    assert float((ours - theirs).norm() / ours.norm()) < 0.03


@pytest.mark.parametrize("budget", [0, 3, 12])
def test_speculative_decoding_commits_the_same_text_in_fewer_passes(
    budget: int,
    trained: tuple[Trainer, list[float]],
    prompts: list[list[int]],
    answers: list[list[int]],
    tmp_path: Path,
) -> None:
    trainer, _ = trained
    save_drafter(trainer.drafter, trainer.channel_size, tmp_path)
    drafter = load_drafter(tmp_path, SHAPE)
    texts, passes = Decoder(trainer.target, drafter, prompts, budget, 40, NO_END).run()
    assert texts == answers
    assert sum(passes) < 0.7 * sum(len(text) - 1 for text in texts)


def test_a_drafted_position_sees_the_context_before_its_anchor_and_its_own_block_only(
    trained: tuple[Trainer, list[float]],
) -> None:
    corpus = trained[0].corpus
    anchors = torch.tensor([[5, 9]])
    blocks = gather_blocks(corpus, torch.tensor([3]), anchors, block=8, mask_token=3)
    width = corpus.longest
    for block, anchor in enumerate((5, 9)):
        seen = blocks.mask[0, block * 8 : (block + 1) * 8]
        expected = [*range(anchor), *range(width + block * 8, width + (block + 1) * 8)]
        assert all(row.nonzero()[:, 0].tolist() == expected for row in seen)
    text = corpus.tokens[int(corpus.starts[3]) :].tolist()
    assert blocks.ids[0].tolist() == [text[5], *[3] * 7, text[9], *[3] * 7]
    assert blocks.labels[0].tolist() == [text[6:13], text[10:17]]


def test_slots_are_drawn_among_the_valid_ones_and_early_ones_more_often() -> None:
    torch.manual_seed(0)
    valid = torch.ones(50, 4, 15, dtype=torch.bool)
    valid[:, :, 10:] = False
    slots = choose_slots(valid, decay=5.0, count=1000)
    depth = slots % 15
    assert len(slots.unique()) == 1000
    assert int(depth.max()) < 10
    assert int((depth == 0).sum()) > int((depth == 9).sum())


def test_the_rate_warms_up_stays_and_falls() -> None:
    assert rate_factor(0, 0.0, 0.35) == pytest.approx(0.01)
    assert rate_factor(1000, 0.3, 0.35) == 1.0
    assert rate_factor(1000, 1.0, 0.35) == pytest.approx(0.01)


def test_orthogonalising_brings_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((3, 16, 40), (2, 40, 16)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert float(values.min()) > 0.5
        assert float(values.max()) < 1.4


def test_loops_are_found_where_a_passage_stands_three_times() -> None:
    plain = list(range(100))
    looping = [*range(10), *list(range(10, 30)) * 5]
    short = [*range(10), *[7, 8] * 4]
    assert loop_starts([plain, looping, short, [1, 2]]) == [-1, 10 + 20 + 40 - 1, -1, -1]


def test_channel_sizes_are_root_mean_squares(trained: tuple[Trainer, list[float]]) -> None:
    corpus = trained[0].corpus
    exact = corpus.features.float().square().mean(0).sqrt()
    assert torch.allclose(channel_sizes(corpus), exact, rtol=0.05)
