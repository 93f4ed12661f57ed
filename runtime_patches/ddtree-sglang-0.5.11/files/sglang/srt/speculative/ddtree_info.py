"""The verify pass of a batch of draft trees: its inputs, and what is committed after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from sglang.srt.layers.sampler import apply_custom_logit_processor
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.mem_cache.common import alloc_token_slots
from sglang.srt.speculative.ddtree_commit import Commit, commit_lists, freed
from sglang.srt.speculative.ddtree_utils import TreeBatch, walk_lines
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.spec_utils import assign_req_to_token_pool_func


@dataclass
class DDTreeVerifyInput(DFlashVerifyInput):
    """A tree for each request; rows of the verify pass are its nodes, the root first.

    ``steps`` is the longest path, the root counted. After ``verify``, ``path`` (int64 [requests, steps])
    has each request's accepted rows in order. ``committer``, where there is one, commits on the device (given the
    batch, this, the logits and the hidden states). ``planned``: for so many requests the mask and all that attention
    reads stand where the CUDA graph of the pass reads them; another way of running asks ``mask`` for the mask.
    ``in_place``: the trees always stand in the same memory.
    """

    trees: TreeBatch | None = None
    seen: torch.Tensor | None = None
    steps: int = 0
    walker: Any = None
    clock: Any = None
    committer: Callable[..., Commit] | None = None
    mask: Callable[[], torch.Tensor] | None = None
    planned: int = 0
    in_place: bool = False
    is_appended: bool = field(default=False, init=False)
    path: torch.Tensor | None = field(default=None, init=False)
    committed: list[int] = field(default_factory=list, init=False)

    def prepare_for_verify(
        self, batch: ScheduleBatch, page_size: int, *, build_custom_mask: bool = False
    ) -> None:
        """Take cache slots for every row.

        The requests' tables get them with the commit: Triton attention has a pass's own rows from the pass.
        """
        batch.input_ids = self.draft_token
        batch.out_cache_loc = alloc_token_slots(batch.tree_cache, self.draft_token.shape[0])

    def verify(
        self, *, batch: ScheduleBatch, logits_output: Any, page_size: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[int]]:
        """Walk the trees by the target's argmax, commit the paths, free the other rows' slots.

        Returns what ``DFlashVerifyInput.verify`` does. One copy to the host, and without a ``committer`` one back;
        with one, the features that it returns are none, since they are in the drafter's cache already.
        """
        if self.clock is not None:
            self.clock.mark()
        if batch.forward_mode.is_idle():
            empty = torch.empty((0,), dtype=torch.int64, device=batch.device)
            return empty, empty.to(torch.int32), empty, []
        requests, rows = batch.batch_size(), self.draft_token_num
        logits = logits_output.next_token_logits
        self._adjust(logits, batch.sampling_info, requests)
        if logits_output.hidden_states is None:
            raise RuntimeError("DDTREE needs the target's hidden states, and the verify pass gave none.")
        hidden = logits_output.hidden_states.view(requests * rows, -1)
        logits_output.hidden_states = None
        if self.committer is not None and batch.mamba_track_indices is None:
            return self._commit_on_device(batch, logits, hidden)
        return self._commit_on_host(batch, torch.argmax(logits, dim=-1).view(requests, rows), hidden)

    def _commit_on_device(
        self, batch: ScheduleBatch, logits: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[int]]:
        """All that the device does is queued before the host waits, once, for the accepted tokens.

        A request that ends in the middle of its path has its other slots freed then: what the device made of them is
        never read.
        """
        assert self.committer is not None
        done = self.committer(batch, self, logits, hidden)
        self.is_appended = True
        self.path = done.lines[:, : self.steps]
        newest = done.newest.clone()
        batch.seq_lens.add_(done.counts)
        lines = done.lines.tolist()
        counts = [line[-2] for line in lines]
        accepted = [_append(req, line, self.steps) for req, line in zip(batch.reqs, lines, strict=True)]
        self.committed = [len(kept) for kept, _ in accepted]
        dropped, stays = freed(done, lines, self.committed)
        if dropped is not None:
            batch.token_to_kv_pool_allocator.free(dropped)
        batch.out_cache_loc = stays
        for req, count in zip(batch.reqs, self.committed, strict=True):
            req.kv_committed_len += count
            req.kv_allocated_len = req.kv_committed_len
        batch.seq_lens_cpu.add_(torch.tensor(counts, dtype=batch.seq_lens_cpu.dtype))
        batch.seq_lens_sum += sum(counts)
        return newest, done.counts, hidden[:0], [count - 1 for count in self.committed]

    def _commit_on_host(
        self, batch: ScheduleBatch, predicted: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[int]]:
        requests, rows = predicted.shape
        walked = self._walk(predicted)
        self.path = walked[:, : self.steps]
        accepted = [
            _append(req, line, self.steps) for req, line in zip(batch.reqs, walked.tolist(), strict=True)
        ]
        self.committed = [len(kept) for kept, _ in accepted]
        newest = [token for _, token in accepted]
        keep, drop = commit_lists([kept for kept, _ in accepted], rows)
        packed = torch.tensor([*keep, *drop, *newest, *self.committed], dtype=torch.int64).to(
            predicted.device, non_blocking=True
        )
        kept, dropped, newest_ids, lengths = packed.split([len(keep), len(drop), requests, requests])
        lengths = lengths.to(torch.int32)

        slots = batch.out_cache_loc
        batch.token_to_kv_pool_allocator.free(slots[dropped])
        batch.out_cache_loc = slots[kept]
        assign_req_to_token_pool_func(
            batch.req_pool_indices,
            batch.req_to_token_pool.req_to_token,
            batch.seq_lens,
            batch.seq_lens + lengths.to(batch.seq_lens.dtype),
            batch.out_cache_loc,
            requests,
        )
        for req, count in zip(batch.reqs, self.committed, strict=True):
            req.kv_committed_len += count
            req.kv_allocated_len = req.kv_committed_len
        batch.seq_lens.add_(lengths.to(batch.seq_lens.dtype))
        batch.seq_lens_cpu.add_(torch.tensor(self.committed, dtype=batch.seq_lens_cpu.dtype))
        batch.seq_lens_sum += sum(self.committed)

        return newest_ids, lengths, hidden[kept], [count - 1 for count in self.committed]

    def rows_of(self, steps: torch.Tensor) -> torch.Tensor:
        """The rows (nodes) at ``steps`` int64 [requests] of the accepted paths; negative ones stay."""
        assert self.path is not None
        return torch.where(steps < 0, steps, self.path.gather(1, steps.clamp(min=0)[:, None]).squeeze(1))

    def _walk(self, predicted: torch.Tensor) -> torch.Tensor:
        assert self.trees is not None and self.seen is not None
        if self.walker is not None:
            return self.walker(self.trees, self.seen, predicted, self.steps)
        return walk_lines(self.trees, self.seen, predicted, self.steps)

    def _adjust(self, logits: torch.Tensor, sampling: Any, requests: int) -> None:
        """Custom processors, penalties and biases, the same at every node of a request, as DFLASH has it."""
        if sampling is None:
            return
        if sampling.has_custom_logit_processor:
            apply_custom_logit_processor(logits, sampling, num_tokens_in_batch=self.draft_token_num)
        if sampling.penalizer_orchestrator.is_required or sampling.logit_bias is not None:
            bias = torch.zeros(requests, logits.shape[1], dtype=torch.float32, device=logits.device)
            sampling.apply_logits_bias(bias)
            logits.add_(bias.repeat_interleave(self.draft_token_num, dim=0))


def _append(req: Any, line: list[int], steps: int) -> tuple[list[int], int]:
    """Give ``req`` its new tokens, up to its end; (rows committed, its newest token)."""
    count = line[2 * steps]
    proposed = [*line[steps + 1 : steps + count], line[2 * steps + 1]]
    added = 0
    for token in proposed:
        req.output_ids.append(token)
        added += 1
        req.check_finished()
        if req.finished():
            break
    req.spec_verify_ct += 1
    req.spec_accepted_drafts += added - 1
    req.update_spec_acceptance_histogram(added - 1)
    return line[:added], req.output_ids[-1]
