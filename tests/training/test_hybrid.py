"""The hybrid model: its recurrence against one step at a time, its checkpoint against the loaders that read it."""

from __future__ import annotations

import ast
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.patches_sglang.conftest import sglang_wheel  # noqa: F401  a fixture
from training.hybrid import checkpoint, delta, documents, tokens
from training.hybrid.__main__ import main
from training.hybrid.model import Hybrid
from training.hybrid.pretrain import Pretrainer
from training.hybrid.recipe import MASK, SMOKE, SPECIAL, STOP, HybridRecipe, HybridShape
from training.hybrid.target import HybridTarget
from training.hybrid.writer import write

RECORDED = Path(__file__).parent / "hybrid_reference.json"
SHAPE = HybridShape(
    layers=4,
    width=32,
    heads=4,
    kv_heads=2,
    head_dim=16,
    key_heads=2,
    value_heads=4,
    key_dim=8,
    value_dim=8,
    mlp=48,
    vocab=64,
    interval=2,
)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small are slower on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def filled(shape: HybridShape) -> Hybrid:
    """A model whose weights follow from their order alone, the same with every version of torch."""
    model = Hybrid(shape).eval()
    with torch.no_grad():
        for index, weight in enumerate(model.parameters()):
            count = torch.arange(weight.numel(), dtype=torch.float64)
            weight.copy_((torch.sin(count * 0.7 + index) * 0.3).view(weight.shape))
    return model


def inputs(count: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(2, 3, count, *shape, generator=rng)

    return (
        delta.normed(draw(8)) * 8**-0.5,
        delta.normed(draw(8)),
        draw(5),
        -draw().abs() * 0.3,
        draw().sigmoid(),
    )


@pytest.mark.parametrize("count", [1, 7, 64, 65, 130])
def test_chunks_are_the_steps_one_after_another(count: int) -> None:
    q, k, v, g, beta = inputs(count)
    state = torch.randn(2, 3, 8, 5, generator=torch.Generator().manual_seed(1))
    out, last = delta.chunked(q, k, v, g, beta, state)
    for index in range(count):
        one, state = delta.step(*(x[:, :, index] for x in (q, k, v, g, beta)), state)
        torch.testing.assert_close(out[:, :, index], one, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(last, state, atol=2e-5, rtol=1e-4)


def test_a_step_without_decay_and_weight_leaves_the_state() -> None:
    q, k, v, g, beta = inputs(70)
    g[:, :, :9], beta[:, :, :9] = 0, 0
    whole, last = delta.chunked(q, k, v, g, beta)
    rest, same = delta.chunked(*(x[:, :, 9:] for x in (q, k, v, g, beta)))
    torch.testing.assert_close(whole[:, :, 9:], rest, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(last, same, atol=2e-5, rtol=1e-4)
    assert not whole[:, :, :9].any()


def test_what_is_written_is_the_likeliest_token_of_a_whole_pass() -> None:
    model = filled(SHAPE)
    prompts = [[5, 6, 7], [9] * 11, [12]]
    for prompt, answer in zip(prompts, write(model, prompts, 20), strict=True):
        with torch.no_grad():
            final, _ = model(torch.tensor([prompt + answer]))
        likely = model.lm_head(final)[0].argmax(-1).tolist()
        assert answer == likely[len(prompt) - 1 : len(prompt) - 1 + len(answer)]
        assert len(answer) == 20 or answer[-1] == STOP


def test_the_forward_pass_is_that_of_transformers() -> None:
    """The reference was recorded with transformers 5.24.0 (Qwen3_5ForConditionalGeneration, eager, float32), which
    loaded what ``checkpoint.save`` wrote of this very model with no name missing and none too many."""
    recorded = json.loads(RECORDED.read_text())
    with torch.no_grad():
        model = filled(SHAPE)
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())  # as stored
        for name, weight in filled(SHAPE).named_parameters():
            if name.endswith(".A_log"):
                model.get_parameter(name).copy_(weight)
        final, _ = model(torch.tensor(recorded["ids"]))
        logits = model.lm_head(final)
    torch.testing.assert_close(logits, torch.tensor(recorded["logits"]), atol=1e-4, rtol=1e-4)


def test_the_frozen_target_gives_the_same_states_and_features() -> None:
    model = filled(SHAPE)
    target = HybridTarget(model, torch.float32)
    ids = torch.tensor([[4, 5, 6, 7, 8]])
    final, features = target.read(ids, (0, 2))
    own, kept = model(ids, feature_layers=(0, 2))
    assert features.shape == (1, 5, 2 * SHAPE.width)
    half = HybridTarget(model, torch.bfloat16).model
    assert {name for name, weight in half.named_parameters() if weight.dtype == torch.float32} == {
        name for name, _ in model.named_parameters() if name.endswith(".A_log")
    }
    assert kept is not None
    torch.testing.assert_close(features, kept)
    torch.testing.assert_close(target.head(final), model.lm_head(own))
    normed = torch.nn.functional.rms_norm(
        features[..., : SHAPE.width], (SHAPE.width,), target.norm, SHAPE.eps
    )
    torch.testing.assert_close(normed, model.norm(kept[..., : SHAPE.width]))


def _class(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def _members(node: ast.ClassDef) -> set[str]:
    """What a class's ``__init__`` puts on ``self``."""
    made = next(one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    targets = [target for one in ast.walk(made) if isinstance(one, ast.Assign) for target in one.targets]
    return {
        one.attr for one in targets if isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self"
    }


def _stacked(node: ast.ClassDef) -> list[tuple[str, str]]:
    """(SGLang's name, the checkpoint's) of weights that its ``load_weights`` puts together."""
    loader = next(one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "load_weights")
    table = next(
        one.value
        for one in ast.walk(loader)
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "stacked_params_mapping"
    )
    return [(row[0], row[1]) for row in ast.literal_eval(table)]


def test_sglangs_loader_finds_a_place_for_every_weight(sglang_wheel: Path) -> None:  # noqa: F811
    with zipfile.ZipFile(sglang_wheel) as packed:
        text = packed.read("sglang/srt/models/qwen3_5.py").decode()
    tree = ast.parse(text)
    stacked = _stacked(_class(tree, "Qwen3_5ForConditionalGeneration"))
    mixers = {"linear_attn": _members(_class(tree, "Qwen3_5GatedDeltaNet"))}
    layers = {
        kind: _members(_class(tree, f"Qwen3_5{name}DecoderLayer"))
        for kind, name in ((True, "Attention"), (False, "Linear"))
    }
    found: dict[int, set[str]] = {}
    for name in checkpoint.weights(filled(SHAPE)):
        if name.startswith(checkpoint.VISION) or name == "lm_head.weight":
            continue
        own = name.replace("model.language_model.", "model.").replace(".self_attn", "")
        place = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", own)
        if place is None:
            assert own in ("model.embed_tokens.weight", "model.norm.weight")
            continue
        for theirs, ours in stacked:
            if ours in place[2]:
                place = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", own.replace(ours, theirs))
                break
        assert place is not None
        first, *rest = place[2].split(".")
        layer = int(place[1])
        assert first in layers[SHAPE.is_attention(layer)], name
        if first in mixers:
            assert rest[0] in mixers[first], name
        found.setdefault(layer, set()).add(first if first not in mixers else rest[0])
    weighted = {"conv1d", "in_proj_qkvz", "in_proj_ba", "dt_bias", "A_log", "norm", "out_proj"}
    common = {"mlp", "input_layernorm", "post_attention_layernorm"}
    assert found[0] == weighted | common
    assert found[1] == {"qkv_proj", "o_proj", "q_norm", "k_norm"} | common
    assert weighted <= mixers["linear_attn"]


def test_the_configuration_says_what_sglang_reads(sglang_wheel: Path) -> None:  # noqa: F811
    with zipfile.ZipFile(sglang_wheel) as packed:
        source = packed.read("sglang/srt/configs/qwen3_next.py").decode()
    node = _class(ast.parse(source), "Qwen3NextConfig")
    made = next(one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    known = {one.arg for one in made.args.args}
    text = checkpoint.config(HybridShape())["text_config"]
    sizes = {name for name in text if name.startswith(("linear_", "num_", "hidden_", "vocab_", "head_"))}
    assert sizes <= known
    assert text["full_attention_interval"] == 4  # not in its parameters, and read all the same
    assert "self.full_attention_interval" in source
    assert [kind == "full_attention" for kind in text["layer_types"]] == [False, False, False, True] * 2
    rope = text["rope_parameters"]
    assert sum(rope["mrope_section"]) * 2 == text["head_dim"] * rope["partial_rotary_factor"]
    shape = HybridShape()
    assert (shape.key_dim, shape.value_dim) == (128, 128) and shape.value_heads // shape.key_heads in (
        1,
        2,
        4,
    )
    count = sum(weight.numel() for weight in Hybrid(shape).parameters())
    assert 20e6 < count < 60e6
    for layer in HybridRecipe().drafter.feature_layers:
        assert layer + 1 < shape.layers, "SGLang captures before the layer that follows"


SOURCE = '''"""Adds numbers, and does nothing else that anybody would want to know."""

class Adder:
    """An adder of numbers that remembers what it was last asked to add."""

    @staticmethod
    def add(a, b):
        """Add two numbers.

        More words.
        """
        return a + b
'''


def test_sources_become_questions_and_answers(tmp_path: Path) -> None:
    found = list(documents.of_source(SOURCE, "adder"))
    assert [one.prompt for one in found] == [
        "What is the Python module adder for?",
        "What is the Python class Adder?",
        "Write the Python function add. Add two numbers.",
    ]
    assert (
        found[2].answer.startswith("```python\n@staticmethod\ndef add(a, b):\n")
        and "a + b\n```" in found[2].answer
    )
    (tmp_path / "adder.py").write_text(SOURCE)
    (tmp_path / "copy.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "special.py").write_text(
        '"""' + "<|im_end|> is a special token, which no text may hold. " + '"""'
    )
    read = documents.read([tmp_path], 10**6, 100, 30)
    assert len(read) == 3, "each answer once"


def test_rows_begin_with_a_document_and_hold_back_some(tmp_path: Path) -> None:
    made = [documents.Document(f"Question {n}?", f"Answer {n} " * 12) for n in range(60)]
    counts = tokens.prepare(made, SMOKE, tmp_path)
    prepared = tokens.load(tmp_path, SMOKE)
    assert counts["documents"] == 60 and counts["vocabulary"] <= SMOKE.shape.vocab
    assert prepared.rows.shape[1] == SMOKE.length + 1
    assert set(prepared.rows[:, 0].tolist()) == {1}, "<|im_start|>"
    assert len(prepared.unseen) == 12 and len(prepared.prompts) == 48
    unseen = json.loads((tmp_path / tokens.UNSEEN).read_text())["prompts"]
    assert unseen[1] == {"prompt": "Question 5?", "kind": "explain"}
    with pytest.raises(ValueError, match="too short for one row"):
        tokens.prepare(made[:2], SMOKE, tmp_path)
        tokens.load(tmp_path, SMOKE)


def test_it_learns_a_text_that_repeats() -> None:
    rows = torch.arange(4, 4 + 13).repeat(40, 6)[:, : SMOKE.length + 1]
    torch.manual_seed(0)
    model = Hybrid(SMOKE.shape)
    trainer = Pretrainer(model, rows, rows[:4], SMOKE)
    before = trainer.validate()
    for _ in range(40):
        trainer._step(trainer._batch(), 1.0)
    assert trainer.validate() < 0.5 * before


def test_all_of_it_at_toy_size(tmp_path: Path) -> None:
    """The three verbs as they run on a GPU, and what they leave there."""
    sources = str(Path(documents.__file__).parents[2])
    out = str(tmp_path)
    main(["prepare", "--smoke", "--sources", sources, "--out", out])
    main(["pretrain", "--smoke", "--seconds", "3", "--reserve", "1", "--out", out])
    main(["draft", "--smoke", "--seconds", "6", "--out", out])
    stored = load_file(tmp_path / "target" / "model.safetensors")
    assert stored.keys() == checkpoint.weights(Hybrid(SMOKE.shape)).keys()
    assert stored["lm_head.weight"].dtype == torch.bfloat16
    config = json.loads((tmp_path / "target" / "config.json").read_text())
    assert config["text_config"]["vocab_size"] == SMOKE.shape.vocab
    drafter = json.loads((tmp_path / "drafter" / "config.json").read_text())
    assert drafter["num_target_layers"] == SMOKE.shape.layers
    assert drafter["dflash_config"] == {"mask_token_id": MASK, "target_layer_ids": [0, 1]}
    assert drafter["rms_norm_eps"] == SMOKE.shape.eps
    tokenizer = json.loads((tmp_path / "target" / "tokenizer.json").read_text())
    assert [one["content"] for one in tokenizer["added_tokens"]] == list(SPECIAL)
    assert json.loads((tmp_path / "drafter" / "training.json").read_text())["steps"] >= 1
