"""The flags of DDTREE: what they are, and which combinations are refused, by a sentence that says why.

DDTREE is DFLASH with trees: its drafter, block size and memory rules are DFLASH's. This module settles what
is DDTREE's own. It imports nothing of sglang at the top, so that its rules can be tested anywhere.
"""

from __future__ import annotations

import argparse
import logging
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

MODES = ("shadow", "tree")
HYBRID = ("fork", "unsafe", "refuse")
BUILDERS = ("auto", "triton", "torch")
COMMITS = ("host", "device", "graph")
TOP_K = 8
MAX_TOP_K = 64
MAX_BUDGET = 255
STATE_SHARE = 0.25  # of the card's memory, at most, for the states that a hybrid model keeps per node
STATE_SHARE_LEFT = 0.6  # and of what the weights leave of it: the rest is for running states and the KV cache


@dataclass(frozen=True)
class Settings:
    """What the worker needs: ``block`` tokens drafted at once, ``budget`` nodes besides the root."""

    mode: str
    block: int
    budget: int
    top_k: int
    depth: int
    min_score: float
    spine: bool
    fork: bool
    builder: str
    metrics: bool
    log_trees: int
    commit: str = "graph"

    @property
    def rows(self) -> int:
        """How many tokens the target verifies for each request."""
        return self.budget + 1 if self.mode == "tree" else self.block


def add_cli_args(parser: argparse.ArgumentParser) -> None:
    """The flags ``--speculative-ddtree-*``."""
    group = parser.add_argument_group("DDTREE")

    def flag(name: str, **options: Any) -> None:
        group.add_argument(f"--speculative-ddtree-{name}", **options)

    flag(
        "mode",
        choices=MODES,
        default="tree",
        help="tree: verify the draft tree. shadow: build it, verify the chain as DFLASH does (what trees cost).",
    )
    flag("budget", type=int, help="Nodes of the tree besides its root. Default: block size - 1.")
    flag("topk", type=int, default=TOP_K, help=f"Candidates for each depth. Default: {TOP_K}.")
    flag("max-depth", type=int, help="Deepest node. Default: block size - 1.")
    flag(
        "min-prob",
        type=float,
        default=0.0,
        help="Leave out nodes whose path the drafter thinks less likely than this. Default: 0.",
    )
    flag(
        "spine",
        action="store_true",
        help="Always draft the chain of best tokens too; worth it with a budget above block size - 1.",
    )
    flag(
        "hybrid",
        choices=HYBRID,
        default="fork",
        help="Recurrent and convolution states of hybrid models. fork: from each node's parent (lossless). "
        "unsafe: from the node before, as a chain (wrong after the first branch; for comparison only). "
        "refuse: do not start on a hybrid model.",
    )
    flag(
        "builder",
        choices=BUILDERS,
        default="auto",
        help="What builds trees. auto: the Triton kernel if it agrees with the torch version at start.",
    )
    flag(
        "commit",
        choices=COMMITS,
        default="graph",
        help="Where a pass is committed. host: paths go to the host and back. device: the host is asked for nothing "
        "but the accepted tokens. graph: the same, and what surrounds both models' passes is CUDA graphs too; on "
        "several GPUs as device.",
    )
    flag(
        "metrics",
        action="store_true",
        help="Measure the time of draft, build, verify and commit, and nodes by depth; see /metrics.",
    )
    flag("log-trees", type=int, default=0, metavar="N", help="Log the first N trees. Default: 0.")
    flag("adaptive-budget", action="store_true", help="Not built yet: refused.")


def prepare(args: Any) -> None:
    """Before DFLASH's own checks: remember what the operator gave; ValueError for flags that would do nothing."""
    if args.speculative_algorithm != "DDTREE":
        parser = argparse.ArgumentParser()
        add_cli_args(parser)
        idle = [
            f"--{name.replace('_', '-')}"
            for name, default in vars(parser.parse_args([])).items()
            if getattr(args, name) != default
        ]
        if idle:
            chosen = args.speculative_algorithm or "no speculative algorithm"
            raise ValueError(
                f"{', '.join(idle)}: only DDTREE knows this, and the server is started with {chosen}. "
                "Give --speculative-algorithm DDTREE, or leave it out."
            )
    args.speculative_ddtree_requests_given = args.max_running_requests is not None


def resolve(args: Any) -> None:
    """After DFLASH's own checks: refuse what cannot work, and set how many tokens are verified.

    ``args`` is a ``ServerArgs`` whose ``speculative_num_draft_tokens`` is the drafter's block size;
    afterwards it is the tree's rows. Raises ValueError.
    """
    settings = settings_of(args)
    problems = _of_values(args, settings) + _of_the_server(args)
    config = _hybrid_config(args)
    if config is not None:
        problems += _of_hybrids(args, settings)
    if problems:
        raise ValueError("DDTREE cannot start: " + " ".join(problems))
    if settings.mode == "shadow":
        return
    args.speculative_dflash_block_size = settings.block
    args.speculative_num_draft_tokens = settings.rows
    if settings.block > settings.rows:
        # What the scheduler reserves for a step is the larger of this and the rows to verify.
        args.speculative_num_steps = settings.block
    if config is not None:
        if settings.fork:
            args.speculative_eagle_topk = 2  # hybrid backends fork states by parent when it is above 1
        else:
            logger.warning(
                "DDTREE: --speculative-ddtree-hybrid unsafe: nodes beside a branch see a wrong state. "
                "The output is not the target's."
            )
        _bound_requests(args, settings, config)


def settings_of(args: Any) -> Settings:
    """What ``args`` say, before or after ``resolve``."""
    block = int(
        getattr(args, "speculative_dflash_block_size", None) or args.speculative_num_draft_tokens or 0
    )
    budget = args.speculative_ddtree_budget
    depth = args.speculative_ddtree_max_depth
    probability = args.speculative_ddtree_min_prob
    return Settings(
        mode=args.speculative_ddtree_mode,
        block=block,
        budget=block - 1 if budget is None else budget,
        top_k=args.speculative_ddtree_topk,
        depth=block - 1 if depth is None else depth,
        min_score=_float32(math.log(probability)) if 0 < probability < 1 else -math.inf,
        spine=args.speculative_ddtree_spine,
        fork=args.speculative_ddtree_hybrid != "unsafe",
        builder=args.speculative_ddtree_builder,
        metrics=args.speculative_ddtree_metrics,
        log_trees=args.speculative_ddtree_log_trees,
        commit=args.speculative_ddtree_commit,
    )


def refused_request(settings_mode: str, top_k: int) -> str | None:
    """Why a request cannot be served, or None. ``top_k`` is 1 for temperature 0, as sglang normalizes it."""
    if settings_mode == "tree" and top_k > 1:
        return (
            "DDTREE verifies trees greedily so far: set temperature to 0, "
            "or start the server with --speculative-algorithm DFLASH."
        )
    return None


def state_bytes(bytes_per_state: int, rows: int, requests: int) -> int:
    """What a hybrid model's states of all nodes take: one state a row and running request."""
    return bytes_per_state * rows * requests


def requests_that_fit(bytes_per_state: int, rows: int, memory_bytes: float, left_bytes: float) -> int:
    """How many running requests keep the node states within both shares of a card's memory; at least 1.

    ``left_bytes``: what the weights leave of what the server may take.
    """
    most = min(memory_bytes * STATE_SHARE, left_bytes * STATE_SHARE_LEFT)
    return max(1, int(most) // max(1, bytes_per_state * rows))


def _of_values(args: Any, settings: Settings) -> list[str]:
    said = []
    if settings.block < 2:
        said.append(f"The drafter's block size is {settings.block}; a tree needs at least 2.")
    if not 1 <= settings.budget <= MAX_BUDGET:
        said.append(f"--speculative-ddtree-budget is {settings.budget}; it must be from 1 to {MAX_BUDGET}.")
    if not 1 <= settings.top_k <= MAX_TOP_K:
        said.append(f"--speculative-ddtree-topk is {settings.top_k}; it must be from 1 to {MAX_TOP_K}.")
    if not 1 <= settings.depth <= max(1, settings.block - 1):
        said.append(
            f"--speculative-ddtree-max-depth is {settings.depth}; "
            f"the drafter's block size of {settings.block} allows 1 to {settings.block - 1}."
        )
    if not 0 <= args.speculative_ddtree_min_prob < 1:
        said.append(
            f"--speculative-ddtree-min-prob is {args.speculative_ddtree_min_prob}; "
            "it must be at least 0 and below 1."
        )
    if settings.log_trees < 0:
        said.append(f"--speculative-ddtree-log-trees is {settings.log_trees}; it must not be negative.")
    if args.speculative_ddtree_adaptive_budget:
        said.append("--speculative-ddtree-adaptive-budget is not built yet; give a fixed budget.")
    return said


def _of_the_server(args: Any) -> list[str]:
    said = []
    if not str(args.device).startswith("cuda"):
        said.append(f"It runs on CUDA devices only, not on {args.device}.")
    backends = sorted({str(name) for name in args.get_attention_backends()})
    if backends != ["triton"]:
        said.append(
            f"The attention backend is {', '.join(backends)}; trees need --attention-backend triton so far."
        )
    if args.page_size not in (None, 1):
        said.append(f"The page size is {args.page_size}; trees need --page-size 1 so far.")
    if args.speculative_dflash_draft_window_size is not None:
        said.append("--speculative-dflash-draft-window-size is not supported with trees yet.")
    if getattr(args, "disaggregation_mode", "null") not in (None, "null"):
        said.append("Prefill and decode on different servers is not supported with trees yet.")
    if getattr(args, "enable_two_batch_overlap", False):
        said.append("--enable-two-batch-overlap is not supported with trees yet.")
    if getattr(args, "enable_deterministic_inference", False):
        said.append("--enable-deterministic-inference is not supported with trees yet.")
    return said


def _of_hybrids(args: Any, settings: Settings) -> list[str]:
    said = []
    if args.speculative_ddtree_hybrid == "refuse":
        said.append("The model is a hybrid one, and --speculative-ddtree-hybrid is refuse.")
    for name in ("linear_attn_backend", "linear_attn_decode_backend", "linear_attn_prefill_backend"):
        backend = getattr(args, name, None)
        if backend not in (None, "triton"):
            flag = "--" + name.replace("_", "-")
            said.append(f"{flag} is {backend}; only triton's kernels fork states: give {flag} triton.")
    interval = getattr(args, "mamba_track_interval", None)
    if interval is not None and interval < settings.rows:
        said.append(
            f"--mamba-track-interval is {interval}; it must be at least the tree's {settings.rows} rows."
        )
    return said


def _bound_requests(args: Any, settings: Settings, config: Any) -> None:
    size = bytes_of_a_state(config, args.mamba_ssm_dtype, args.tp_size)
    if not size:
        return
    said = (
        f"DDTREE: {settings.rows} node states of a hybrid model take {size * settings.rows / 2**20:.0f} MiB"
    )
    if not args.speculative_ddtree_requests_given:
        memory = _memory_bytes(args)
        left = memory * (args.mem_fraction_static or 1) - weights_bytes(args) / args.tp_size
        fit = requests_that_fit(size, settings.rows, memory, left) if memory else args.max_running_requests
        if fit < args.max_running_requests:
            args.max_running_requests = fit
            said += f" a request; --max-running-requests is set to {fit}: give it to have another"
    total = state_bytes(size, settings.rows, args.max_running_requests)
    logger.warning("%s; %.1f GiB for %d requests.", said, total / 2**30, args.max_running_requests)


def bytes_of_a_state(config: Any, dtype: str | None, ranks: int) -> int:
    """What one token's recurrent and convolution states of all layers take on a rank; 0 where unknown.

    sglang's own figure needs the process group, which there is none of yet when arguments are checked.
    """
    try:
        layers = len(config.linear_layer_ids)
        keys = config.linear_num_key_heads * config.linear_key_head_dim
        values = config.linear_num_value_heads * config.linear_value_head_dim
        window = (2 * keys + values) * (config.linear_conv_kernel_dim - 1)
        recurrent = values * config.linear_key_head_dim
    except AttributeError:
        return 0
    wide = 2 if (dtype or getattr(config, "mamba_ssm_dtype", None)) in ("bfloat16", "float16") else 4
    return layers * (window * 2 + recurrent * wide) // ranks


def weights_bytes(args: Any) -> int:
    """What the files of the model and its drafter take; 0 of what is no folder here."""
    folders = [Path(str(path)) for path in (args.model_path, args.speculative_draft_model_path) if path]
    return sum(file.stat().st_size for folder in folders for file in folder.glob("*.safetensors"))


def _memory_bytes(args: Any) -> float:
    from sglang.srt.utils import get_device_memory_capacity

    return float(get_device_memory_capacity(args.device) or 0) * 2**20


def _hybrid_config(args: Any) -> Any:
    """The configuration of a model with recurrent layers, which has their states' size; else None."""
    config = args.get_model_config().hf_config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    for candidate in (config, text):
        if hasattr(type(candidate), "mamba2_cache_params"):
            return candidate
    return None


def _float32(value: float) -> float:
    """Rounded to what a kernel's float argument holds, so that every builder cuts at the same score."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded
