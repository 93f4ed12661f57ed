"""DDTREE's flags: what they become, and which combinations are refused by which sentence."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.patches_sglang.modules import module

args = module("ddtree_args")


class Plain:
    """A model's configuration without recurrent layers."""


class Hybrid:
    """One with them, of Qwen3.5-27B's size: 146 MiB of state a node."""

    mamba2_cache_params = None  # what sglang's own figure is read from; it needs a process group
    linear_layer_ids = tuple(range(48))
    linear_num_key_heads, linear_key_head_dim = 16, 128
    linear_num_value_heads, linear_value_head_dim = 48, 128
    linear_conv_kernel_dim = 4


def server(*flags: str, config: object | None = None, **over: Any) -> Any:
    """A server's arguments as DFLASH's own checks leave them, with DDTREE's flags as parsed."""
    parser = argparse.ArgumentParser()
    args.add_cli_args(parser)
    given: dict[str, Any] = {
        "device": "cuda",
        "page_size": 1,
        "max_running_requests": 48,
        "speculative_algorithm": "DDTREE",
        "mamba_ssm_dtype": None,
        "tp_size": 1,
        "speculative_num_draft_tokens": 16,
        "speculative_num_steps": 1,
        "speculative_eagle_topk": 1,
        "speculative_dflash_block_size": None,
        "speculative_dflash_draft_window_size": None,
        "speculative_ddtree_requests_given": True,
        "mem_fraction_static": 0.87,
        "model_path": "org/target",
        "speculative_draft_model_path": None,
        "get_attention_backends": lambda: ("triton", "triton"),
        "get_model_config": lambda: SimpleNamespace(hf_config=config or Plain()),
        **vars(parser.parse_args(flags)),
        **over,
    }
    return SimpleNamespace(**given)


def refusal(*flags: str, **over: Any) -> str:
    with pytest.raises(ValueError) as caught:
        args.resolve(server(*flags, **over))
    return str(caught.value)


def test_without_flags_the_budget_is_the_blocks_and_nothing_else_changes() -> None:
    given = server()
    args.resolve(given)
    assert (given.speculative_num_draft_tokens, given.speculative_dflash_block_size) == (16, 16)
    assert (given.speculative_num_steps, given.speculative_eagle_topk) == (1, 1)
    settings = args.settings_of(given)
    assert (settings.block, settings.budget, settings.depth, settings.rows) == (16, 15, 15, 16)
    assert settings.min_score == -math.inf


def test_the_rows_verified_are_the_budget_and_the_root() -> None:
    given = server("--speculative-ddtree-budget", "22", "--speculative-ddtree-min-prob", "0.01")
    args.resolve(given)
    assert (given.speculative_num_draft_tokens, given.speculative_dflash_block_size) == (23, 16)
    assert args.settings_of(given).block == 16
    assert args.settings_of(given).min_score == pytest.approx(math.log(0.01), abs=1e-6)


def test_a_tree_narrower_than_the_block_reserves_for_the_block() -> None:
    given = server("--speculative-ddtree-budget", "4")
    args.resolve(given)
    assert (given.speculative_num_draft_tokens, given.speculative_num_steps) == (5, 16)


def test_shadow_verifies_the_chain_as_dflash_does() -> None:
    given = server("--speculative-ddtree-mode", "shadow", "--speculative-ddtree-budget", "64")
    args.resolve(given)
    assert (given.speculative_num_draft_tokens, given.speculative_eagle_topk) == (16, 1)
    assert args.settings_of(given).budget == 64


def test_hybrid_backends_see_branches_unless_unsafe_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    forked, unsafe = server(config=Hybrid()), server("--speculative-ddtree-hybrid", "unsafe", config=Hybrid())
    args.resolve(forked)
    assert forked.speculative_eagle_topk == 2
    args.resolve(unsafe)
    assert unsafe.speculative_eagle_topk == 1
    assert "wrong state" in caplog.text
    assert "16 node states of a hybrid model take 2349 MiB; 110.1 GiB for 48 requests." in caplog.text


def test_the_running_requests_of_a_hybrid_are_bounded_by_memory_unless_given(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(args, "_memory_bytes", lambda _: 96 * 2**30)
    given = server(config=Hybrid(), speculative_ddtree_requests_given=False)
    args.resolve(given)
    assert given.max_running_requests == 10  # a quarter of 96 GiB, 2.3 GiB a request
    assert "--max-running-requests is set to 10" in caplog.text
    kept = server(config=Hybrid())
    args.resolve(kept)
    assert kept.max_running_requests == 48


def test_the_weights_take_their_part_of_the_memory_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(args, "_memory_bytes", lambda _: 96 * 2**30)
    for name, gib in (("target", 54), ("drafter", 3)):
        (tmp_path / name).mkdir()
        with (tmp_path / name / "model.safetensors").open("wb") as file:
            file.truncate(gib << 30)
    paths = {
        "model_path": str(tmp_path / "target"),
        "speculative_draft_model_path": str(tmp_path / "drafter"),
    }
    given = server(config=Hybrid(), speculative_ddtree_requests_given=False, **paths)
    assert args.weights_bytes(given) == 57 << 30
    args.resolve(given)
    assert given.max_running_requests == 6  # 0.6 of the 26.5 GiB that 57 GiB of weights leave of 0.87 × 96


def test_a_states_size_is_told_by_its_shape_or_not_at_all() -> None:
    whole = args.bytes_of_a_state(Hybrid(), None, 1)
    assert whole == 48 * (48 * 128 * 128 * 4 + (2 * 16 * 128 + 48 * 128) * 3 * 2)
    assert args.bytes_of_a_state(Hybrid(), None, 4) == whole // 4
    assert whole / 2 < args.bytes_of_a_state(Hybrid(), "bfloat16", 1) < whole * 0.51
    assert args.bytes_of_a_state(Plain(), None, 1) == 0


@pytest.mark.parametrize(
    ("flags", "over", "said"),
    [
        (("--speculative-ddtree-budget", "0"), {}, "budget is 0; it must be from 1 to 255."),
        (("--speculative-ddtree-budget", "256"), {}, "budget is 256"),
        (("--speculative-ddtree-topk", "65"), {}, "topk is 65; it must be from 1 to 64."),
        (("--speculative-ddtree-max-depth", "16"), {}, "block size of 16 allows 1 to 15."),
        (("--speculative-ddtree-min-prob", "1"), {}, "min-prob is 1.0; it must be at least 0 and below 1."),
        (("--speculative-ddtree-log-trees", "-1"), {}, "must not be negative."),
        (("--speculative-ddtree-adaptive-budget",), {}, "adaptive-budget is not built yet"),
        ((), {"speculative_num_draft_tokens": 1}, "block size is 1; a tree needs at least 2."),
        ((), {"device": "cpu"}, "CUDA devices only, not on cpu."),
        (
            (),
            {"get_attention_backends": lambda: ("flashinfer", "triton")},
            "flashinfer, triton; trees need --attention-backend triton so far.",
        ),
        ((), {"page_size": 64}, "page size is 64; trees need --page-size 1"),
        ((), {"speculative_dflash_draft_window_size": 512}, "draft-window-size is not supported"),
        ((), {"disaggregation_mode": "decode"}, "different servers is not supported"),
        ((), {"enable_two_batch_overlap": True}, "--enable-two-batch-overlap is not supported"),
        ((), {"enable_deterministic_inference": True}, "--enable-deterministic-inference is not"),
        (("--speculative-ddtree-hybrid", "refuse"), {"config": Hybrid()}, "hybrid is refuse."),
        ((), {"config": Hybrid(), "linear_attn_decode_backend": "flashinfer"}, "only triton's kernels fork"),
        (
            ("--speculative-ddtree-budget", "64"),
            {"config": Hybrid(), "mamba_track_interval": 32},
            "interval is 32; it must be at least the tree's 65 rows.",
        ),
    ],
)
def test_what_cannot_work_is_refused_at_start(
    flags: tuple[str, ...], over: dict[str, Any], said: str
) -> None:
    message = refusal(*flags, **over)
    assert message.startswith("DDTREE cannot start: ")
    assert said in message


def test_every_problem_is_said_at_once() -> None:
    message = refusal("--speculative-ddtree-budget", "0", page_size=16)
    assert "budget is 0" in message and "page size is 16" in message


@pytest.mark.parametrize("algorithm", ["DFLASH", None])
def test_flags_that_another_algorithm_would_not_read_are_refused(algorithm: str | None) -> None:
    flags = ("--speculative-ddtree-budget", "22", "--speculative-ddtree-metrics")
    args.prepare(server(*flags))
    args.prepare(server(speculative_algorithm=algorithm))
    with pytest.raises(ValueError) as caught:
        args.prepare(server(*flags, speculative_algorithm=algorithm))
    said = str(caught.value)
    assert said.startswith(
        "--speculative-ddtree-budget, --speculative-ddtree-metrics: only DDTREE knows this"
    )
    assert (algorithm or "no speculative algorithm") in said and "--speculative-algorithm DDTREE" in said


def test_an_unknown_mode_is_refused_by_the_parser(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        server("--speculative-ddtree-mode", "linear")
    assert "choose from" in capsys.readouterr().err


def test_a_sampled_request_is_refused_in_tree_mode_only() -> None:
    assert args.refused_request("tree", 1) is None
    assert args.refused_request("shadow", 1 << 30) is None
    assert "set temperature to 0" in args.refused_request("tree", 1 << 30)


def test_doctor_counts_as_the_patch_set_does() -> None:
    """The same states, the same shares of the memory: what doctor says before a start is what the start says."""
    import fleetctl.doctor.rules  # noqa: F401  registers the rules
    from fleetctl.doctor.rules import cfg_memory
    from tests.doctor.builders import MODEL, context

    assert (args.STATE_SHARE, args.STATE_SHARE_LEFT) == (cfg_memory.TREES_SHARE, cfg_memory.TREES_SHARE_LEFT)
    widths = {name: getattr(Hybrid, name) for name in vars(Hybrid) if name.startswith("linear_num")}
    widths |= {name: getattr(Hybrid, name) for name in vars(Hybrid) if name.endswith("_dim")}
    flags = {
        "speculative-algorithm": "DDTREE",
        "speculative-ddtree-mode": "tree",
        "speculative-ddtree-budget": 15,
    }
    known = context(
        {"facts": {"models": {MODEL: {"config": widths}}}, "service": {"mode": "tree", "arguments": flags}}
    )
    assert known is not None and known.service is not None
    state = cfg_memory.state_bytes(known, known.service)
    assert state == args.bytes_of_a_state(Hybrid(), None, 1)
    there = cfg_memory.room(known, known.service)
    assert there is not None
    whole = there.total / cfg_memory.STATIC_SHARE
    assert cfg_memory.running_requests(known, known.service, state) == args.requests_that_fit(
        state, 16, whole, there.free
    )
