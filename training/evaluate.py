"""Accepted lengths by real verification: every draft is checked by a pass of the target over its tree.

All prompts are decoded side by side, one verify pass of the whole batch at a time; a row that has finished
waits for the others. In float32 the committed texts must equal plain greedy decoding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fleetctl.ddtree.tree import DraftTree, build_tree, chain, walk
from training.cache import KVCache
from training.drafter import Drafter
from training.loops import loop_starts
from training.prompts import ChatTokenizer, EvalPrompt, chat
from training.target import Target
from training.texts import END_TOKEN
from training.writer import Writer

TOP = 16
"""Candidates per depth that a tree may use."""


class Decoder:
    """Speculative greedy decoding of R prompts with one tree budget (0: the chain)."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter,
        prompts: Sequence[Sequence[int]],
        budget: int,
        limit: int,
        end_token: int = END_TOKEN,
    ) -> None:
        self.target, self.drafter, self.prompts = target, drafter, prompts
        self.budget, self.limit = budget, limit
        self.nodes = (budget or drafter.shape.block - 1) + 1
        t, rows, device = target.shape, len(prompts), target.device
        size = -(-(max(map(len, prompts)) + limit + drafter.shape.block + self.nodes) // 8) * 8
        self.cache = KVCache(t.layers, rows, t.kv_heads, size, t.head_dim, device, target.dtype)
        self.context = KVCache(drafter.shape.layers, rows, t.kv_heads, size, t.head_dim, device, target.dtype)
        self.column = torch.arange(size, device=device)
        self.end_token = end_token
        self.written: list[list[int]] = []
        self.cached = torch.tensor([len(p) for p in prompts], device=device)
        """[R] tokens that the target has read; the last committed one is not among them."""

    @torch.no_grad()
    def run(self) -> tuple[list[list[int]], list[int]]:
        """The answers, and for each row the verify passes it took (the prompt's pass not counted)."""
        self._read_prompts()
        passes = [0] * len(self.prompts)
        while not all(map(self._finished, self.written)):
            trees = self._draft()
            new = self._verify(trees)
            for row, answer in enumerate(self.written):
                if not self._finished(answer):
                    passes[row] += 1
                    answer.extend(new[row])
                    if self.end_token in answer:
                        del answer[answer.index(self.end_token) + 1 :]
                    del answer[self.limit :]
        return self.written, passes

    def _finished(self, answer: list[int]) -> bool:
        return len(answer) >= self.limit or answer[-1] == self.end_token

    def _read_prompts(self) -> None:
        width = -(-int(self.cached.max()) // 8) * 8
        ids = torch.tensor([[*p, *[0] * (width - len(p))] for p in self.prompts], device=self.target.device)
        column = self.column[:width]
        mask = (column[None, :] <= column[:, None]).expand(len(ids), -1, -1)
        positions = column.expand_as(ids)
        final, features = self.target.run(
            ids, positions, self.cache.attend(column, mask), self.drafter.shape.feature_layers
        )
        assert features is not None
        last = final[self.cache.rows[:, 0], self.cached - 1]
        self._remember(features, positions)
        self.written = [[token] for token in self.target.head(last).argmax(-1).tolist()]

    def _remember(self, features: Tensor, positions: Tensor) -> None:
        """Give the drafter the features [R, T, K * width] of committed tokens at positions [R, T]."""
        for layer, (k, v) in enumerate(self.drafter.context(features, positions)):
            self.context.write(layer, positions, k, v)

    def _draft(self) -> list[DraftTree]:
        block = self.drafter.shape.block
        ids = torch.full((len(self.prompts), block), self.drafter.shape.mask_token, device=self.column.device)
        ids[:, 0] = torch.tensor([answer[-1] for answer in self.written])
        positions = self.cached[:, None] + self.column[:block]
        mask = self.column < self.cached[:, None]
        own = torch.ones(len(ids), block, dtype=torch.bool, device=mask.device)
        mask = torch.cat((mask, own), 1)[:, None].expand(-1, block, -1)
        context = list(zip(self.context.k, self.context.v, strict=True))
        hidden = self.drafter(F.embedding(ids, self.target.embed), positions, context, mask)
        scores, tokens = self.target.head(hidden[:, 1:]).log_softmax(-1).topk(TOP)
        ranked = zip(ids[:, 0].tolist(), tokens, scores, strict=True)
        if self.budget == 0:
            return [chain([root, *row[:, 0].tolist()]) for root, row, _ in ranked]
        return [build_tree(root, logs, row, self.budget) for root, row, logs in ranked]

    def _verify(self, trees: list[DraftTree]) -> list[list[int]]:
        """One target pass over all trees; commits each row's accepted path and returns its new tokens."""
        device, rows, nodes = self.column.device, len(trees), self.nodes
        ids = torch.tensor([tree.tokens for tree in trees], device=device)
        depths = torch.tensor([tree.depths for tree in trees], device=device)
        columns = self.cached[:, None] + self.column[:nodes]
        mask = (self.column < self.cached[:, None])[:, None].repeat(1, nodes, 1)
        ancestry = torch.stack([tree.ancestor_mask() for tree in trees]).to(device)
        mask.scatter_(2, columns[:, None].expand(rows, nodes, nodes), ancestry)
        final, features = self.target.run(
            ids,
            self.cached[:, None] + depths,
            self.cache.attend(columns, mask),
            self.drafter.shape.feature_layers,
        )
        assert features is not None
        choices = self.target.head(final).argmax(-1).tolist()
        walks = [walk(tree, choice.__getitem__) for tree, choice in zip(trees, choices, strict=True)]
        paths = [
            [] if self._finished(answer) else accepted.path
            for answer, accepted in zip(self.written, walks, strict=True)
        ]
        longest = max(map(len, paths))
        kept = torch.tensor([[*path, *range(len(path), longest)] for path in paths], device=device)
        self.cache.move(columns.gather(1, kept), columns[:, :longest])
        self._remember(features[self.cache.rows, kept], columns[:, :longest])
        self.cached += torch.tensor([len(path) for path in paths], device=device)
        return [
            [tree.tokens[node] for node in accepted.path[1:]] + [accepted.next_token]
            for tree, accepted in zip(trees, walks, strict=True)
        ]


def evaluate(
    target: Target,
    drafter: Drafter,
    tokenizer: ChatTokenizer,
    prompts: Sequence[EvalPrompt],
    budgets: Sequence[int],
    limit: int,
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Tokens and passes of every prompt at every budget, with each text's loop and the count of equal texts.

    The first token of an answer comes from the prompt's own pass and is not counted.
    """
    ids = [tokenizer.encode_ids(chat(prompt.prompt)) for prompt in prompts]
    size = -(-(max(map(len, ids)) + 8 + limit) // 64) * 64
    zeros = torch.zeros(len(ids))
    plain = Writer(target, len(ids), size, END_TOKEN).write(ids, limit, zeros, zeros.long())
    loops = loop_starts(plain)
    rows: list[dict[str, Any]] = [
        {**vars(prompt), "tokens": len(text), "loops": loop >= 0, "passes": {}, "same": {}}
        for prompt, text, loop in zip(prompts, plain, loops, strict=True)
    ]
    for budget in budgets:
        started = time.monotonic()
        texts, passes = Decoder(target, drafter, ids, budget, limit).run()
        for row, text, count, reference in zip(rows, texts, passes, plain, strict=True):
            row["passes"][str(budget)] = [len(text) - 1, count]
            row["same"][str(budget)] = text == reference
        same = sum(row["same"][str(budget)] for row in rows)
        seconds = time.monotonic() - started
        report(f"budget {budget}: {same} of {len(rows)} texts equal plain decoding, {seconds:.1f} s")
    return {"limit": limit, "block": drafter.shape.block, "budgets": list(budgets), "prompts": rows}
