"""Lets the target write: many rows at once over one static cache, each step one CUDA graph.

Rows are padded on the left, so that every row writes the same column in the same step and the graph needs
no per-row bookkeeping. A graph is kept per visible cache length, since attention's cost is what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.cache import KVCache
from training.target import Target

VIEW_STEP = 64
PREFILL_ROWS = 512


class Writer:
    """A fixed batch of rows with room for `size` tokens each (prompt and answer together)."""

    def __init__(self, target: Target, batch: int, size: int, end_token: int, seed: int = 0) -> None:
        if size % VIEW_STEP:
            raise ValueError(f"size {size} is not a multiple of {VIEW_STEP}")
        s, device = target.shape, target.device
        self.target = target
        self.batch = batch
        self.size = size
        self.end_token = end_token
        self.cache = KVCache(s.layers, batch, s.kv_heads, size, s.head_dim, device, target.dtype)
        self.tokens = torch.zeros(batch, size + 1, dtype=torch.long, device=device)
        self.seen = torch.zeros(batch, 1, size, dtype=torch.bool, device=device)
        self.column = torch.zeros(1, dtype=torch.long, device=device)
        self.padding = torch.zeros(batch, 1, dtype=torch.long, device=device)
        self.temperature = torch.zeros(batch, 1, device=device)
        self.sampled_until = torch.zeros(batch, 1, dtype=torch.long, device=device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        torch.manual_seed(seed)

    def write(
        self, prompts: Sequence[Sequence[int]], count: int, temperature: Tensor, sampled: Tensor
    ) -> list[list[int]]:
        """Answers of at most `count` tokens, the end token included where a row reaches it.

        A row's first `sampled` tokens are drawn at its `temperature`, the others are the target's argmax;
        both are [len(prompts)].
        """
        width = self._load(prompts, temperature, sampled)
        count = min(count, self.size - width)
        for step in range(1, count):
            self._step(width + step)
            if step % VIEW_STEP == 0 and self._all_ended(width, width + step + 1):
                break
        answers = self.tokens[: len(prompts), width : width + count].tolist()
        return [self._until_end(answer) for answer in answers]

    def _all_ended(self, start: int, stop: int) -> bool:
        return bool((self.tokens[:, start:stop] == self.end_token).any(1).all())

    def _until_end(self, answer: list[int]) -> list[int]:
        return answer[: answer.index(self.end_token) + 1] if self.end_token in answer else answer

    @torch.no_grad()
    def _load(self, prompts: Sequence[Sequence[int]], temperature: Tensor, sampled: Tensor) -> int:
        """Read the prompts into the cache and choose the first tokens; returns the padded prompt's width."""
        device = self.target.device
        width = -(-max(map(len, prompts)) // 8) * 8
        rows = [[0] * (width - len(p)) + list(p) for p in prompts]
        rows += [rows[0]] * (self.batch - len(rows))
        lengths = torch.tensor([len(p) for p in prompts] + [len(prompts[0])] * (self.batch - len(prompts)))
        spare = self.batch - len(prompts)
        self.padding.copy_((width - lengths)[:, None])
        self.temperature.copy_(torch.cat((temperature.float().cpu(), torch.zeros(spare)))[:, None])
        drawn = torch.cat((sampled.cpu(), torch.zeros(spare, dtype=torch.long)))
        self.sampled_until.copy_(width + drawn[:, None])
        self.tokens.fill_(self.end_token)
        self.tokens[:, :width] = torch.tensor(rows, device=device)
        column = torch.arange(self.size, device=device)
        self.seen.copy_((column >= self.padding)[:, None] & (column < width))
        columns = column[:width]
        last = torch.empty(self.batch, self.target.shape.width, device=device, dtype=self.target.dtype)
        for start in range(0, self.batch, PREFILL_ROWS):
            part = slice(start, min(start + PREFILL_ROWS, self.batch))
            padding = self.padding[part]
            mask = (columns[None, :] <= columns[:, None]) & (columns >= padding)[:, None]
            mask |= torch.eye(width, dtype=torch.bool, device=device)
            attend = self.cache.part(part).attend(columns, mask)
            positions = (columns - padding).clamp(min=0)
            final, _ = self.target.run(self.tokens[part, :width], positions, attend)
            last[part] = final[:, -1]
        self.column.fill_(width)
        self._choose(last)
        return width

    def _choose(self, final: Tensor) -> None:
        """Put the next tokens at the current column: argmax of logits plus Gumbel noise times temperature."""
        logits = self.target.head(final).float()
        heat = torch.where(self.column < self.sampled_until, self.temperature, 0.0)
        noise = torch.empty_like(logits).exponential_().clamp_(min=1e-20).log_()
        self.tokens.index_copy_(1, self.column, (logits - heat * noise).argmax(-1, keepdim=True))

    @torch.no_grad()
    def _advance(self, view: int) -> None:
        """One step: read the token at the current column, write the next one."""
        self.seen.index_fill_(2, self.column, True)
        ids = self.tokens.index_select(1, self.column)
        attend = self.cache.attend(self.column, self.seen[:, :, :view])
        final, _ = self.target.run(ids, self.column - self.padding, attend)
        self.column.add_(1)
        self._choose(final[:, 0])

    def _step(self, visible: int) -> None:
        view = min(-(-visible // VIEW_STEP) * VIEW_STEP, self.size)
        if self.target.device.type != "cuda":
            self._advance(view)
            return
        if view not in self.graphs:
            self._capture(view)
        self.graphs[view].replay()

    def _capture(self, view: int) -> None:
        """Record the step for one visible length; warming up must not disturb the rows being written."""
        kept = (self.tokens.clone(), self.seen.clone(), self.column.clone())
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._advance(view)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        self.column.copy_(kept[2])
        with torch.cuda.graph(graph):
            self._advance(view)
        for store, value in zip((self.tokens, self.seen, self.column), kept, strict=True):
            store.copy_(value)
        self.graphs[view] = graph
