"""The worker of DDTREE: DFLASH's, which drafts trees and verifies them, or verifies the chain in shadow."""

from __future__ import annotations

import copy
import logging
from typing import Any

import torch
from sglang.srt.distributed import get_tp_group
from sglang.srt.speculative import ddtree_kernels
from sglang.srt.speculative.ddtree_args import Settings, settings_of
from sglang.srt.speculative.ddtree_info import DDTreeVerifyInput, walk_lines
from sglang.srt.speculative.ddtree_metrics import Clock, Metrics
from sglang.srt.speculative.ddtree_utils import (
    TreeBatch,
    ancestors,
    build_trees,
    flat_mask,
    links,
    merge_shards,
    ranked_log_probs,
)
from sglang.srt.speculative.dflash_worker import DFlashWorker

logger = logging.getLogger(__name__)

MOST_IN_REGISTERS = 127  # the Triton builder keeps rows × rows in registers; beyond, torch is as fast
COUNT_EVERY = 32  # verify passes, counted once for each request


class DDTreeWorker(DFlashWorker):
    """DFlashWorker with a tree between the draft and the verify pass (one pass of each a step)."""

    def __init__(self, server_args: Any, *args: Any, **kwargs: Any) -> None:
        settings = settings_of(server_args)
        # The drafter's own runner is DFLASH's, with a block of its own width and no branches.
        drafting = copy.copy(server_args)
        drafting.speculative_algorithm = "DFLASH"
        drafting.speculative_num_draft_tokens = settings.block
        drafting.speculative_num_steps = 1
        drafting.speculative_eagle_topk = 1
        super().__init__(drafting, *args, **kwargs)
        self.server_args = server_args
        self.ddtree = settings
        self._require_supported()
        self._steps = min(settings.depth, settings.budget) + 1
        self._chain: torch.Tensor | None = None
        self._depth_index = torch.arange(1, settings.depth + 1, device=self.device)
        self._by_depth = torch.zeros_like(self._depth_index)
        self._uncounted: list[int] = []
        self._to_log = settings.log_trees if self.tp_rank == 0 else 0
        counting = settings.metrics and self.tp_rank == 0
        self._clock = Clock(counting)
        self._metrics = Metrics(
            counting and server_args.enable_metrics,
            {"model_name": str(server_args.served_model_name), "mode": settings.mode},
        )
        self._kernels = self._choose_builder()
        if self.tp_rank == 0:
            logger.info(
                "DDTREE: mode=%s, budget=%d, topk=%d, depth=%d, spine=%s, states=%s, builder=%s",
                settings.mode,
                settings.budget,
                settings.top_k,
                settings.depth,
                settings.spine,
                "fork" if settings.fork else "unsafe",
                "triton" if self._kernels else "torch",
            )

    def _require_supported(self) -> None:
        runner = self.target_worker.model_runner
        if self.ddtree.mode == "tree" and getattr(runner, "sliding_window_size", None):
            raise ValueError("DDTREE cannot verify trees of a model with sliding-window attention yet.")
        shard = getattr(getattr(runner.model, "lm_head", None), "shard_indices", None)
        if shard is not None and int(shard.num_added_elements):
            raise ValueError("DDTREE does not support added vocabulary (LoRA) yet.")

    def _choose_builder(self) -> bool:
        if self.ddtree.builder == "torch":
            return False
        if self.ddtree.builder == "auto" and self.ddtree.budget > MOST_IN_REGISTERS:
            return False
        wrong = self_check(self.ddtree, self.device)
        if wrong and self.ddtree.builder == "triton":
            raise RuntimeError(f"DDTREE: the Triton builder is wrong here: {wrong}")
        if wrong:
            logger.warning("DDTREE: the Triton builder is wrong here (%s); torch builds the trees.", wrong)
        return not wrong

    def _prepare_for_speculative_decoding(self, batch: Any, draft_input: Any) -> None:
        self._clock.start()
        super()._prepare_for_speculative_decoding(batch, draft_input)
        if self.ddtree.mode == "shadow":
            self._clock.mark()

    def _propose_tree(self, batch: Any, roots: torch.Tensor, hidden: torch.Tensor, lm_head: Any) -> Any:
        """After the drafter's pass: the verify input of the trees; None in shadow, where the chain follows.

        ``roots`` int64 [requests]; ``hidden`` [requests, block, width], the drafter's last hidden states.
        """
        self._clock.mark()
        requests = roots.shape[0]
        log_probs, tokens = self._ranked(hidden[:, 1:].reshape(-1, hidden.shape[-1]), lm_head)
        log_probs = log_probs.view(requests, -1, log_probs.shape[-1])
        tokens = tokens.view(requests, -1, tokens.shape[-1])
        self._chain = tokens[:, :, 0]
        rows = self.ddtree.budget + 1
        total = rows * (int(batch.seq_lens_cpu.sum()) + requests * rows)
        trees, child, sibling, positions, seen, mask = self._build(
            roots.contiguous(),
            log_probs[:, : self.ddtree.depth].contiguous(),
            tokens[:, : self.ddtree.depth].contiguous(),
            batch.seq_lens,
            total,
        )
        if self._metrics.enabled:
            self._by_depth += (trees.depths[:, :, None] == self._depth_index).sum((0, 1))
        self._log(trees)
        if self.ddtree.mode == "shadow":
            return None
        proposal = DDTreeVerifyInput(
            draft_token=trees.tokens.view(-1),
            positions=positions.view(-1),
            draft_token_num=rows,
            topk=2 if self.ddtree.fork else 1,
            custom_mask=mask,
            trees=trees,
            seen=seen,
            steps=self._steps,
            walker=ddtree_kernels.walk if self._kernels else None,
            clock=self._clock,
        )
        proposal.retrieve_next_token = child
        proposal.retrieve_next_sibling = sibling
        proposal.prepare_for_verify(batch, self.page_size)
        self._clock.mark()
        return proposal

    def _build(
        self,
        roots: torch.Tensor,
        log_probs: torch.Tensor,
        tokens: torch.Tensor,
        lengths: torch.Tensor,
        total: int,
    ) -> tuple[TreeBatch, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        settings = self.ddtree
        if self._kernels:
            mask = torch.ones(total, dtype=torch.bool, device=roots.device)
            built = ddtree_kernels.build(
                roots,
                log_probs,
                tokens,
                lengths,
                mask,
                budget=settings.budget,
                min_score=settings.min_score,
                spine=settings.spine,
            )
            return (*built, mask)
        trees = build_trees(roots, log_probs, tokens, settings.budget, settings.min_score, settings.spine)
        seen = ancestors(trees)
        return (
            trees,
            *links(trees),
            trees.depths + lengths[:, None],
            seen,
            flat_mask(seen, lengths, total),
        )

    def _ranked(self, hidden: torch.Tensor, lm_head: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities float32 and tokens int64 [positions, k], the same on every rank."""
        shard = lm_head.shard_indices
        weight = lm_head.weight[: int(shard.num_org_elements)]
        logits = torch.matmul(hidden.to(weight.dtype), weight.T)
        log_probs, tokens, totals = ranked_log_probs(logits, self.ddtree.top_k)
        tokens = tokens + int(shard.org_vocab_start_index)
        group = get_tp_group()
        ranks = int(group.world_size)
        if ranks == 1:
            return log_probs, tokens

        def gathered(part: torch.Tensor) -> torch.Tensor:
            whole = part.new_empty((ranks, *part.shape))
            group.all_gather_into_tensor(whole.view(-1), part.contiguous().view(-1))
            return whole

        return merge_shards(gathered(log_probs), gathered(tokens), gathered(totals), self.ddtree.top_k)

    def _greedy_sample_from_vocab_parallel_head(self, **kwargs: Any) -> torch.Tensor:
        """In shadow the chain is what the trees were built from; DFLASH would rank the vocabulary again."""
        if self._chain is None:
            return super()._greedy_sample_from_vocab_parallel_head(**kwargs)
        chain, self._chain = self._chain, None
        return chain.reshape(-1)

    def _prefix_lens_on_host(self, batch: Any, lengths: torch.Tensor) -> torch.Tensor:
        """The scheduler knows them: no wait for the device."""
        if self.use_compact_draft_cache:
            return super()._prefix_lens_on_host(batch, lengths)
        return batch.seq_lens_cpu

    def _verified_rows(self, batch: Any, steps: torch.Tensor | None) -> torch.Tensor | None:
        """Recurrent states are kept by node: the accepted nodes, not the steps of a chain."""
        if steps is None or not self.ddtree.fork or not isinstance(batch.spec_info, DDTreeVerifyInput):
            return steps
        return batch.spec_info.rows_of(steps)

    def forward_batch_generation(self, batch: Any, **kwargs: Any) -> Any:
        result = super().forward_batch_generation(batch, **kwargs)
        counts = result.num_accepted_drafts_per_req_cpu
        if counts is None:
            return result
        if self.ddtree.mode == "shadow":
            self._clock.mark()  # verify and commit are one there: DFLASH's code has no seam between
        self._clock.mark()
        if self._metrics.enabled:
            self._uncounted += [count + 1 for count in counts]
            if len(self._uncounted) >= COUNT_EVERY:
                self._count()
        return result

    def _count(self) -> None:
        """Bring what was counted on the device to the host, and clear it: a wait, so not in every step."""
        self._metrics.count(self._uncounted, self._by_depth.tolist())
        self._metrics.time(self._clock.read())
        self._uncounted = []
        self._by_depth.zero_()

    def _log(self, trees: TreeBatch) -> None:
        for request in range(min(self._to_log, trees.tokens.shape[0])):
            count = int(trees.counts[request])
            logger.info(
                "DDTREE tree: tokens=%s parents=%s",
                trees.tokens[request, :count].tolist(),
                trees.parents[request, :count].tolist(),
            )
            self._to_log -= 1


def self_check(settings: Settings, device: Any, cases: int = 8) -> str:
    """Compare the Triton kernels with the torch version on random drafts; what differs, or nothing."""
    generator = torch.Generator(device="cpu").manual_seed(0)
    rows = settings.budget + 1
    steps = min(settings.depth, settings.budget) + 1
    for case in range(cases):
        logits = torch.randn(2, settings.depth, 512, generator=generator) * (1 + case)
        if case % 2:
            logits = logits.round()
        log_probs, tokens, _ = ranked_log_probs(logits.to(device), settings.top_k)
        roots = torch.tensor([3, 5], device=device)
        lengths = torch.tensor([case, 2 * case + 1], device=device)
        total = rows * (3 * case + 1 + 2 * rows)
        options = {"min_score": settings.min_score, "spine": settings.spine}
        expected = build_trees(roots, log_probs, tokens, settings.budget, **options)
        seen = ancestors(expected)
        mask = torch.ones(total, dtype=torch.bool, device=device)
        try:
            trees, child, sibling, positions, built_seen = ddtree_kernels.build(
                roots, log_probs, tokens, lengths, mask, budget=settings.budget, **options
            )
            likely = expected.tokens.roll(-1, 1)
            walked = ddtree_kernels.walk(trees, built_seen, likely, steps)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        first, beside = links(expected)
        for name, one, other in (
            ("tokens", expected.tokens, trees.tokens),
            ("parents", expected.parents, trees.parents),
            ("counts", expected.counts, trees.counts),
            ("first children", first, child),
            ("siblings", beside, sibling),
            ("positions", expected.depths + lengths[:, None], positions),
            ("ancestors", seen, built_seen),
            ("mask", flat_mask(seen, lengths, total), mask),
            ("walk", walk_lines(expected, seen, likely, steps), walked),
        ):
            if not torch.equal(one, other):
                return f"{name} differ in case {case}"
    return ""
