"""Stand-ins for what the patch set's modules import of SGLang 0.5.11, and those modules loaded beside them."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from tests.patches_sglang.modules import FOLDER

ROOT = Path(__file__).parents[2]
SPECULATIVE = "sglang.srt.speculative"
POSITIONS, MASK = 400, 21


def _module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(members)
    sys.modules[name] = made
    return made


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def install() -> SimpleNamespace:
    """The patch set's modules under their own names, with stand-ins for those of SGLang that they import."""
    packages = ("layers", "managers", "mem_cache", "model_executor", "layers.attention")
    for name in ("sglang", "sglang.srt", SPECULATIVE, *(f"sglang.srt.{part}" for part in packages)):
        _module(name, __path__=[])
    _module(
        "sglang.srt.mem_cache.common",
        alloc_token_slots=lambda cache, count: cache.token_to_kv_pool_allocator.alloc(count),
    )
    _module("sglang.srt.layers.sampler", apply_custom_logit_processor=None)
    _module("sglang.srt.managers.schedule_batch", ScheduleBatch=object)
    _module("sglang.srt.distributed", get_tp_group=lambda: SimpleNamespace(world_size=1))
    _module(f"{SPECULATIVE}.spec_utils", assign_req_to_token_pool_func=assign)
    _module(f"{SPECULATIVE}.dflash_info", DFlashVerifyInput=VerifyInput)
    _module(f"{SPECULATIVE}.dflash_worker", DFlashWorker=Worker)
    _module("sglang.srt.layers.attention.triton_backend", TritonAttnBackend=TritonBackend)
    _module("sglang.srt.model_executor.forward_batch_info", ForwardMode=Mode)
    utils = _load(f"{SPECULATIVE}.ddtree_utils", ROOT / "fleetctl/ddtree/batched.py")
    commits = _load(f"{SPECULATIVE}.ddtree_commit", FOLDER / "ddtree_commit.py")
    kernels = _module(f"{SPECULATIVE}.ddtree_kernels", **kernels_of_torch(utils, commits))
    sys.modules[SPECULATIVE].ddtree_kernels = kernels  # type: ignore[attr-defined]
    for name in ("args", "graphs", "check", "metrics", "passes", "info", "worker"):
        _load(f"{SPECULATIVE}.ddtree_{name}", FOLDER / f"ddtree_{name}.py")
    return SimpleNamespace(
        **{
            name: sys.modules[f"{SPECULATIVE}.ddtree_{name}"]
            for name in ("args", "commit", "graphs", "metrics", "passes", "info", "worker")
        }
    )


def kernels_of_torch(utils: Any, commits: Any) -> dict[str, Any]:
    """The functions of ``ddtree_kernels``, by what they are compared with at start."""

    def build(
        roots: torch.Tensor,
        log_probs: torch.Tensor,
        names: torch.Tensor,
        lengths: torch.Tensor,
        *,
        budget: int,
        **options: Any,
    ) -> tuple[Any, ...]:
        trees = utils.build_trees(roots, log_probs, names, budget, **options)
        return (trees, *utils.links(trees), trees.depths + lengths[:, None], utils.ancestors(trees))

    def commit(
        trees: Any, seen: Any, predicted: Any, lengths: Any, pools: Any, slots: Any, table: Any, steps: int
    ) -> Any:
        done = commits.commit(utils.walk_lines(trees, seen, predicted, steps), lengths, slots)
        commits.write_table(table, pools, lengths, done)
        return done

    def write_mask(seen: torch.Tensor, lengths: torch.Tensor, mask: torch.Tensor) -> None:
        rows = seen.shape[1]
        flat = utils.flat_mask(seen, lengths, int((rows * (lengths + rows)).sum()))
        mask[: len(flat)] = flat

    made = {"build": build, "commit": commit, "walk": utils.walk_lines, "mask_of": utils.flat_mask}
    return {**made, "write_mask": write_mask}


class Mode(Enum):
    """``ForwardMode``, as far as a decoding batch goes."""

    DECODE = 1
    TARGET_VERIFY = 2

    def is_idle(self) -> bool:
        return False

    def is_extend(self) -> bool:
        return False


class TritonBackend:
    """``TritonAttnBackend``: what a replayed pass of ``rows`` a request reads of its prefixes, and its mask."""

    sliding_window_size = None

    def __init__(self, table: torch.Tensor, rows: int) -> None:
        self.table, self.num_draft_tokens = table, rows
        self.cuda_graph_custom_mask = torch.zeros(8 * rows * POSITIONS, dtype=torch.uint8)
        self.prefixes: list[list[int]] = []

    def init_forward_metadata_replay_cuda_graph(
        self,
        bs: int,
        pools: Any,
        lengths: Any,
        _sum: int,
        _encoder: Any,
        mode: Mode,
        spec_info: Any,
        seq_lens_cpu: Any,
    ) -> None:
        assert mode is Mode.TARGET_VERIFY and bs == len(pools)
        mask = getattr(spec_info, "custom_mask", None)
        if mask is not None:
            self.cuda_graph_custom_mask[: len(mask)] = mask
        self.prefixes = [
            self.table[pool, :length].tolist()
            for pool, length in zip(pools.tolist(), lengths.tolist(), strict=True)
        ]

    def init_forward_metadata(self, forward_batch: Any) -> None:
        assert forward_batch.spec_info.custom_mask is not None


def runner(backend: TritonBackend, width: int, replay: Any) -> Any:
    """A ``ModelRunner`` whose CUDA graphs are ``replay(requests)``, which gives their hidden states."""
    rows = backend.num_draft_tokens
    outputs = {count: SimpleNamespace(hidden_states=torch.zeros(count * rows, width)) for count in (1, 2, 4)}
    graphs = {
        count: SimpleNamespace(
            replay=lambda count=count: outputs[count].hidden_states.copy_(replay(count).view(-1, width))
        )
        for count in outputs
    }
    buffers = SimpleNamespace(
        input_embeds=torch.zeros(8 * rows, 1),
        positions=torch.zeros(8 * rows, dtype=torch.int64),
        out_cache_loc=torch.zeros(8 * rows, dtype=torch.int64),
    )
    return SimpleNamespace(
        attn_backend=backend,
        graph_runner=SimpleNamespace(
            capture_bs=list(outputs),
            num_tokens_per_bs=rows,
            graphs=graphs,
            output_buffers=outputs,
            buffers=buffers,
            _make_graph_key=lambda requests: requests,
        ),
    )


def assign(
    pools: torch.Tensor,
    table: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
    slots: torch.Tensor,
    requests: int,
) -> None:
    """``assign_req_to_token_pool_func``."""
    at = 0
    for pool, first, last in zip(pools.tolist(), start.tolist(), end.tolist(), strict=True):
        table[pool, first:last] = slots[at : at + last - first].to(table.dtype)
        at += last - first
    assert at == len(slots)


@dataclass
class VerifyInput:
    """``DFlashVerifyInput`` with the patch set's hunk."""

    draft_token: torch.Tensor
    positions: torch.Tensor
    draft_token_num: int
    topk: int = 1
    custom_mask: torch.Tensor | None = None
    retrieve_next_token: torch.Tensor | None = None
    retrieve_next_sibling: torch.Tensor | None = None


class Worker:
    """What ``DDTreeWorker`` needs of ``DFlashWorker``; drafts are given, the target is ``next_token``."""

    use_compact_draft_cache = False
    page_size = 1
    _use_fused_kv_materialize = False
    _fused_kv_helper = None

    def __init__(self, server_args: Any, engine: Any) -> None:
        self.engine = engine
        self.device = "cpu"
        self.tp_rank = 0
        self.target_worker = SimpleNamespace(model_runner=engine.target_runner)
        self.draft_model_runner = engine.draft_runner
        self._mask_token_id = MASK
        self.draft_model = SimpleNamespace(project_target_hidden=lambda hidden: hidden)

    def _append_target_hidden_sequential(
        self, features: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor
    ) -> None:
        self.engine.drafter_cache[slots] = features

    def _append_target_hidden_to_draft_kv(self, batch: Any, draft_input: Any) -> None:
        total = draft_input.target_hidden.shape[0]
        slots, at = [], 0
        for pool, length, count in zip(
            batch.req_pool_indices.tolist(),
            batch.seq_lens.tolist(),
            draft_input.ctx_lens.tolist(),
            strict=True,
        ):
            slots += batch.req_to_token_pool.req_to_token[pool, length - count : length].tolist()
            at += count
        assert at == total
        if total:
            self.engine.drafter_cache[torch.tensor(slots)] = draft_input.target_hidden
        draft_input.draft_seq_lens = batch.seq_lens.to(torch.int32)
        draft_input.ctx_lens = torch.zeros_like(draft_input.ctx_lens)
        draft_input.target_hidden = draft_input.target_hidden[:0]

    def _prepare_for_speculative_decoding(self, batch: Any, draft_input: Any) -> None:
        self._append_target_hidden_to_draft_kv(batch, draft_input)
        hidden = self.engine.drafts()
        batch.spec_info = self._propose_tree(batch, draft_input.verified_id, hidden, self.engine.head)  # type: ignore[attr-defined]

    def forward_batch_generation(self, batch: Any, **_: Any) -> Any:
        draft_input = batch.spec_info
        self._prepare_for_speculative_decoding(batch, draft_input)
        proposal = batch.spec_info
        self.engine.plan(batch, proposal)
        output = self.engine.target_pass(batch, proposal)
        newest, lengths, features, counts = proposal.verify(batch=batch, logits_output=output, page_size=1)
        draft_input.verified_id = newest
        draft_input.target_hidden = features
        draft_input.ctx_lens = lengths
        self._append_target_hidden_to_draft_kv(batch, draft_input)
        batch.spec_info = draft_input
        return SimpleNamespace(num_accepted_drafts_per_req_cpu=counts)
