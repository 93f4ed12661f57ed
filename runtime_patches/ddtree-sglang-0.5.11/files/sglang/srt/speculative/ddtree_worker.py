"""The worker of DDTREE: DFLASH's, which drafts trees and verifies them, or verifies the chain in shadow."""

from __future__ import annotations

import copy
import logging
from typing import Any

import torch
from sglang.srt.distributed import get_tp_group
from sglang.srt.speculative import ddtree_kernels
from sglang.srt.speculative.ddtree_args import settings_of
from sglang.srt.speculative.ddtree_check import self_check
from sglang.srt.speculative.ddtree_commit import Commit, commit, write_table
from sglang.srt.speculative.ddtree_graphs import WARM_UPS, Replays
from sglang.srt.speculative.ddtree_info import DDTreeVerifyInput
from sglang.srt.speculative.ddtree_metrics import Clock, Metrics, Report
from sglang.srt.speculative.ddtree_passes import DraftPass, Passes
from sglang.srt.speculative.ddtree_utils import (
    TreeBatch,
    ancestors,
    build_trees,
    flat_mask,
    links,
    merge_shards,
    ranked_log_probs,
    walk_lines,
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
        self._on_device = settings.commit != "host" and not self.use_compact_draft_cache
        self._replays = Replays(settings.commit == "graph" and get_tp_group().world_size == 1)
        self._ordinary = WARM_UPS  # passes that run as DFLASH's do before any is planned
        self._target_passes: Passes | None = None
        self._draft_pass: DraftPass | None = None
        if self.tp_rank == 0:
            logger.info(
                "DDTREE: mode=%s, budget=%d, topk=%d, depth=%d, spine=%s, states=%s, builder=%s, commit=%s",
                settings.mode,
                settings.budget,
                settings.top_k,
                settings.depth,
                settings.spine,
                "fork" if settings.fork else "unsafe",
                "triton" if self._kernels else "torch",
                settings.commit,
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
        hidden = self._draft(batch, draft_input)
        if hidden is None:
            super()._prepare_for_speculative_decoding(batch, draft_input)
        else:
            lm_head = self.target_worker.model_runner.model.lm_head
            batch.spec_info = self._propose_tree(batch, draft_input.verified_id, hidden, lm_head)
            batch.forward_mode = type(batch.forward_mode).TARGET_VERIFY
            batch.return_hidden_states = False
        if self.ddtree.mode == "shadow":
            self._clock.mark()

    def _draft(self, batch: Any, draft_input: Any) -> torch.Tensor | None:
        """The drafter's hidden states without SGLang's Python around its graph; None where that is not possible."""
        mode = batch.forward_mode
        if not (self._replays.enabled and self._on_device and self._kernels and self.ddtree.mode == "tree"):
            return None
        if mode.is_extend() or mode.is_idle() or batch.has_grammar or draft_input.target_hidden.shape[0]:
            return None
        if self._ordinary:
            self._ordinary -= 1
            return None
        if self._draft_pass is None:
            target = self.target_worker.model_runner
            self._target_passes = Passes(target, self.ddtree.budget + 1)
            self._target_passes.leave_planned()
            embed = target.model.get_input_embeddings()
            self._draft_pass = DraftPass(
                self.draft_model_runner, self.ddtree.block, int(self._mask_token_id), embed, self.device
            )
        if not self._draft_pass.passes.holds(batch.batch_size()):
            return None
        return self._draft_pass.run(self._replays, batch, draft_input.verified_id)

    def _propose_tree(self, batch: Any, roots: torch.Tensor, hidden: torch.Tensor, lm_head: Any) -> Any:
        """After the drafter's pass: the verify input of the trees; None in shadow, where the chain follows.

        ``roots`` int64 [requests]; ``hidden`` [requests, block, width], the drafter's last hidden states.
        """
        self._clock.mark()
        requests, rows = roots.shape[0], self.ddtree.budget + 1
        target = self._target_passes
        planned = requests if target is not None and target.holds(requests) else 0
        key = ("build", requests, planned, hidden.dtype, batch.seq_lens.dtype, batch.req_pool_indices.dtype)
        trees, child, sibling, positions, seen, self._chain = self._replays.run(
            key,
            lambda *given: self._drafted(*given, lm_head, target if planned else None),
            (hidden, roots, batch.seq_lens, batch.req_pool_indices),
        )
        total = rows * (int(batch.seq_lens_cpu.sum()) + requests * rows)
        if self._metrics.enabled:
            self._by_depth += (trees.depths[:, :, None] == self._depth_index).sum((0, 1))
        self._log(trees)
        if self.ddtree.mode == "shadow":
            return None
        masked = ddtree_kernels.mask_of if self._kernels else flat_mask
        lengths = batch.seq_lens
        proposal = DDTreeVerifyInput(
            draft_token=trees.tokens.view(-1),
            positions=positions.view(-1),
            draft_token_num=rows,
            topk=2 if self.ddtree.fork else 1,
            custom_mask=None if planned else masked(seen, lengths, total),
            mask=lambda: masked(seen, lengths, total),
            planned=planned,
            in_place=bool(planned) and self._replays.has(key),
            trees=trees,
            seen=seen,
            steps=self._steps,
            walker=ddtree_kernels.walk if self._kernels else None,
            clock=self._clock,
            committer=self._committed if self._on_device else None,
        )
        proposal.retrieve_next_token = child
        proposal.retrieve_next_sibling = sibling
        proposal.prepare_for_verify(batch, self.page_size)
        self._clock.mark()
        return proposal

    def _drafted(
        self,
        hidden: torch.Tensor,
        roots: torch.Tensor,
        lengths: torch.Tensor,
        pools: torch.Tensor,
        lm_head: Any,
        target: Passes | None,
    ) -> tuple[TreeBatch, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """(trees, first child, next sibling, positions, ancestors, the chain of best tokens) of static shapes.

        With ``target``, what the verify pass's attention reads is written too.
        """
        requests, settings = roots.shape[0], self.ddtree
        log_probs, tokens = self._ranked(hidden[:, 1:].reshape(-1, hidden.shape[-1]), lm_head)
        log_probs = log_probs.view(requests, -1, log_probs.shape[-1])
        tokens = tokens.view(requests, -1, tokens.shape[-1])
        given = (
            roots.contiguous(),
            log_probs[:, : settings.depth].contiguous(),
            tokens[:, : settings.depth].contiguous(),
        )
        options = {"budget": settings.budget, "min_score": settings.min_score, "spine": settings.spine}
        chain = tokens[:, :, 0]
        if self._kernels:
            built = ddtree_kernels.build(*given, lengths, **options)
            if target is not None:
                ddtree_kernels.write_mask(built[-1], lengths, target.backend.cuda_graph_custom_mask)
                target.plan(pools, lengths)
            return (*built, chain)
        trees = build_trees(*given, **options)
        return (trees, *links(trees), trees.depths + lengths[:, None], ancestors(trees), chain)

    def _committed(
        self, batch: Any, proposal: DDTreeVerifyInput, logits: torch.Tensor, hidden: torch.Tensor
    ) -> Commit:
        """Walk, put the kept slots into the requests' table, and the committed features into the drafter's cache."""
        trees = proposal.trees
        table = batch.req_to_token_pool.req_to_token
        reach = int(batch.seq_lens_cpu.max()) + proposal.steps
        angles = self._angles(reach)
        slots = batch.out_cache_loc.view(trees.tokens.shape)
        given = (batch.seq_lens, batch.req_pool_indices, slots)
        fixed = (trees.tokens, trees.parents, trees.depths, trees.counts, proposal.seen, logits, hidden)
        key = ("commit", *((tensor.shape, tensor.dtype) for tensor in (*given, logits, hidden)))
        key = (*key, table.data_ptr(), None if angles is None else angles.data_ptr())
        if proposal.in_place and proposal.planned:  # these are the graphs' own memory: nothing is copied
            done = self._replays.run(
                (*key, logits.data_ptr(), hidden.data_ptr()),
                lambda *tensors: self._commit_and_append(*tensors, *fixed, table, angles),
                given,
            )
        else:
            done = self._replays.run(
                key, lambda *tensors: self._commit_and_append(*tensors, table, angles), (*given, *fixed)
            )
        if not hasattr(self.target_worker.model_runner.attn_backend, "update_mamba_state_after_mtp_verify"):
            self._clock.mark()  # hybrids commit their states after this
        return done

    def _commit_and_append(
        self,
        lengths: torch.Tensor,
        pools: torch.Tensor,
        slots: torch.Tensor,
        tokens: torch.Tensor,
        parents: torch.Tensor,
        depths: torch.Tensor,
        counts: torch.Tensor,
        seen: torch.Tensor,
        logits: torch.Tensor,
        hidden: torch.Tensor,
        table: torch.Tensor,
        angles: torch.Tensor | None,
    ) -> Commit:
        trees = TreeBatch(tokens, parents, depths, depths, counts)
        predicted = torch.argmax(logits, dim=-1).view(tokens.shape)
        if self._kernels:
            done = ddtree_kernels.commit(trees, seen, predicted, lengths, pools, slots, table, self._steps)
        else:
            done = commit(walk_lines(trees, seen, predicted, self._steps), lengths, slots)
            write_table(table, pools, lengths, done)
        with torch.inference_mode():
            features = self.draft_model.project_target_hidden(hidden[done.kept_rows.view(-1)])
            positions, places = done.positions.view(-1), done.kept_slots.view(-1)
            if angles is None:
                self._append_target_hidden_sequential(features, positions, places)
            else:
                self._append_fused(features, positions, places, angles)
        return done

    def _angles(self, reach: int) -> torch.Tensor | None:
        """The drafter's rotary table for positions below ``reach``; None where its keys are written layer by layer.

        SGLang's own helper asks the device for the largest position in every pass; the host knows a bound of it.
        """
        helper = self._fused_kv_helper if self._use_fused_kv_materialize else None
        if helper is None:
            return None
        ensure = getattr(helper.rotary_emb, "_ensure_cos_sin_cache_length", None)
        if callable(ensure):
            ensure(reach)
        angles = helper.rotary_emb.cos_sin_cache
        return angles if angles.is_cuda and reach <= angles.shape[0] else None

    def _append_fused(
        self, features: torch.Tensor, positions: torch.Tensor, places: torch.Tensor, angles: torch.Tensor
    ) -> None:
        """``FusedKVMaterializeHelper.materialize`` without its question to the device."""
        from sglang.srt.speculative.triton_ops.fused_kv_materialize import _fused_norm_rope

        helper = self._fused_kv_helper
        pool = self.draft_model_runner.token_to_kv_pool
        both = torch.einsum("th,loh->lto", features, helper.batched_kv_weight)
        for index, layer in enumerate(self.draft_model.layers):
            attention = layer.self_attn.attn
            keys, values = _fused_norm_rope(
                both[index],
                helper.k_norm_weights[index],
                angles,
                positions,
                helper.num_kv_heads,
                helper.head_dim,
                helper.rotary_dim,
                helper.eps_values[index],
            )
            pool.set_kv_buffer(attention, places, keys, values, attention.k_scale, attention.v_scale)

    def _append_target_hidden_to_draft_kv(self, batch: Any, draft_input: Any) -> None:
        """Nothing where the commit has done it, or where there is nothing to append."""
        done = batch.spec_info
        if isinstance(done, DDTreeVerifyInput) and done.is_appended:
            draft_input.draft_seq_lens = batch.seq_lens.to(torch.int32)
            draft_input.ctx_lens = torch.zeros_like(draft_input.ctx_lens)
            return
        if self._on_device and not draft_input.target_hidden.shape[0]:
            return
        super()._append_target_hidden_to_draft_kv(batch, draft_input)

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
        reports = [Report.of(req) for req in batch.reqs] if self._clock.enabled else []
        result = super().forward_batch_generation(batch, **kwargs)
        counts = result.num_accepted_drafts_per_req_cpu
        if counts is None:
            return result
        # In shadow verify, commit and host are one phase: DFLASH's code has no seam between them.
        self._clock.finish(reports)
        for report, count in zip(reports, counts, strict=False):
            report.add(count)
        self._metrics.time(self._clock.read())
        if self._metrics.enabled:
            self._uncounted += [count + 1 for count in counts]
            if len(self._uncounted) >= COUNT_EVERY:
                self._count()
        return result

    def _count(self) -> None:
        """Bring what was counted on the device to the host, and clear it: a wait, so not in every step."""
        self._metrics.count(self._uncounted, self._by_depth.tolist())
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
