"""A model's passes as CUDA graphs: what they read is written by a graph of ours, not by Python before each of them.

Before SGLang replays a graph, its Python writes where attention finds keys, in a dozen small launches; those, and the
drafter's embeddings and positions, have static shapes as well.
"""

from __future__ import annotations

from typing import Any

import torch


class Passes:
    """The CUDA graphs of ``runner``, ``rows`` a request, on Triton attention; ``holds`` is false without them."""

    def __init__(self, runner: Any, rows: int) -> None:
        self.graphs = getattr(runner, "graph_runner", None)
        self.rows = rows
        self.backend = _triton_backend(runner, rows) if self.graphs is not None else None

    def holds(self, requests: int) -> bool:
        """Whether a batch of so many requests, none of them padding, has a graph."""
        return self.backend is not None and requests in self.graphs.capture_bs

    def plan(self, pools: torch.Tensor, lengths: torch.Tensor) -> None:
        """Write where attention finds the prefixes of ``lengths`` [requests] and the rows; capturable."""
        from sglang.srt.model_executor.forward_batch_info import ForwardMode

        write = type(self.backend).init_forward_metadata_replay_cuda_graph
        mode = ForwardMode.TARGET_VERIFY
        write(self.backend, pools.shape[0], pools, lengths, 0, None, mode, None, None)

    def leave_planned(self) -> None:
        """From now on the backend does not write again what is ``planned`` of a verify input."""
        backend = self.backend
        if backend is None:
            return
        replay, eager = backend.init_forward_metadata_replay_cuda_graph, backend.init_forward_metadata

        def replayed(
            bs: int,
            req_pool_indices: torch.Tensor,
            seq_lens: torch.Tensor,
            seq_lens_sum: int,
            encoder_lens: Any,
            forward_mode: Any,
            spec_info: Any,
            seq_lens_cpu: Any = None,
        ) -> None:
            if getattr(spec_info, "planned", 0) != bs:
                _complete(spec_info)
                replay(
                    *(bs, req_pool_indices, seq_lens, seq_lens_sum, encoder_lens, forward_mode, spec_info),
                    seq_lens_cpu=seq_lens_cpu,
                )

        def run_without_graph(forward_batch: Any) -> None:
            _complete(forward_batch.spec_info)
            eager(forward_batch)

        backend.init_forward_metadata_replay_cuda_graph = replayed
        backend.init_forward_metadata = run_without_graph


class DraftPass:
    """The drafter's pass over a block of masks behind each request's newest token, as two launches."""

    def __init__(self, runner: Any, block: int, mask_token: int, embed: Any, device: Any) -> None:
        self.passes = Passes(runner, block)
        self.allocator = runner.token_to_kv_pool_allocator
        self.embed = embed
        self.masks = torch.full((1, block - 1), mask_token, dtype=torch.int64, device=device)
        self.offsets = torch.arange(block, dtype=torch.int64, device=device)

    def run(self, replays: Any, batch: Any, newest: torch.Tensor) -> torch.Tensor | None:
        """The last hidden states [requests, block, width], in the graph's own memory; None without cache slots."""
        requests, graphs = newest.shape[0], self.passes.graphs
        state = self.allocator.backup_state()  # the block's slots are the drafter's for this pass alone
        try:
            slots = self.allocator.alloc(requests * self.passes.rows)
            if slots is None:
                return None
            given = (newest, batch.seq_lens, batch.req_pool_indices, slots)
            replays.run(("draft", requests, *(tensor.dtype for tensor in given)), self._fill, given)
            key = graphs._make_graph_key(requests)
            graphs.graphs[key].replay()
        finally:
            self.allocator.restore_state(state)
        hidden = graphs.output_buffers[key].hidden_states
        return hidden[: requests * self.passes.rows].view(requests, self.passes.rows, -1)

    def _fill(
        self, newest: torch.Tensor, lengths: torch.Tensor, pools: torch.Tensor, slots: torch.Tensor
    ) -> tuple[torch.Tensor]:
        """Write what the drafter's graph reads; the block's tokens."""
        requests, buffers = newest.shape[0], self.passes.graphs.buffers
        rows = requests * self.passes.rows
        block = torch.cat((newest[:, None], self.masks.expand(requests, -1)), dim=1)
        buffers.input_embeds[:rows].copy_(self.embed(block).view(rows, -1))
        buffers.positions[:rows].copy_((lengths[:, None] + self.offsets).view(-1))
        buffers.out_cache_loc[:rows].copy_(slots)
        self.passes.plan(pools, lengths)
        return (block,)


def _complete(spec_info: Any) -> None:
    """A pass that was planned for another way of running gets its mask, and is no longer planned."""
    if getattr(spec_info, "planned", 0):
        spec_info.planned = 0
        spec_info.custom_mask = spec_info.mask()


def _triton_backend(runner: Any, rows: int) -> Any:
    """The Triton backend of a runner's attention (of a hybrid's attention layers); None where it is another, or its
    graphs are of other passes."""
    from sglang.srt.layers.attention.triton_backend import TritonAttnBackend

    backend = getattr(runner.attn_backend, "full_attn_backend", runner.attn_backend)
    plain = type(backend) is TritonAttnBackend and not backend.sliding_window_size
    ours = getattr(runner.graph_runner, "num_tokens_per_bs", 0) == rows
    one_variant = not getattr(runner.graph_runner, "record_nolora_graph", False)
    if plain and ours and one_variant and backend.num_draft_tokens == rows:
        return backend
    return None
