"""Generation in the four modes: one loop, in which only the draft differs.

A step drafts a tree behind the last committed token, verifies it in one pass of the target, walks it by the target's
own choices and commits the path and one token more. ``autoregressive`` drafts nothing; ``linear`` a chain;
``shadow`` builds the tree and then verifies the chain all the same, which measures what a tree costs apart from what it
brings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from fleetctl.ddtree.topk import top_log_probs
from fleetctl.ddtree.tree import DraftTree, ancestor_mask, build_tree, chain, walk
from fleetctl.standalone.drafter import Drafter
from fleetctl.standalone.sampling import Sampler
from fleetctl.standalone.target import Target

Mode = Literal["autoregressive", "linear", "shadow", "tree"]
# Prompt tokens read in one step.
_STRETCH = 256

MODES: tuple[Mode, ...] = ("autoregressive", "linear", "shadow", "tree")


@dataclass
class Counts:
    """What a generation took: verify passes of the target, drafted tokens, and those of them accepted."""

    passes: int = 0
    drafted: int = 0
    accepted: int = 0


class Generator:
    """Generates one sequence at a time; not to be shared by threads.

    ``budget``: nodes of a tree; ``top_k``: candidates a depth. ``drafter`` is None in ``autoregressive`` only.
    """

    def __init__(self, target: Target, drafter: Drafter | None, mode: Mode, budget: int, top_k: int) -> None:
        self.target = target
        self.drafter = drafter
        self.mode = mode
        self.budget = budget
        self.top_k = top_k
        self.widest = max(budget, drafter.block - 1) + 1 if drafter else 1

    @property
    def longest(self) -> int:
        """How many tokens prompt and answer may have together."""
        return self.target.positions - self.widest

    @torch.inference_mode()
    def generate(self, prompt: list[int], sampler: Sampler, counts: Counts) -> Iterator[list[int]]:
        """Committed tokens of each step, without end; the caller stops. ``counts`` is kept up to date.

        The steps that read the prompt commit none, so that a caller can stop between them too.

        ``prompt`` is not empty, and prompt and answer stay within ``longest``.
        """
        target, drafter = self.target, self.drafter
        hidden = torch.empty(0)
        for begin in range(0, len(prompt), _STRETCH):
            hidden, features = target.prefill(prompt[begin : begin + _STRETCH], begin)
            if drafter:
                drafter.extend(features, begin)
            yield []
        token = sampler.choose(target.head(hidden)[0])
        yield [token]
        start = len(prompt)
        while True:
            tree = self._draft(token, start)
            logits, features = target.verify(tree.tokens, tree.depths, start, ancestor_mask(tree))
            path, token = walk(tree, sampler.chooser(logits))
            target.commit(start, path)
            if drafter:
                drafter.extend(
                    features if len(path) == len(features) else features[torch.tensor(path)], start
                )
            counts.passes += 1
            counts.drafted += tree.size
            counts.accepted += len(path) - 1
            start += len(path)
            yield [*(tree.tokens[node] for node in path[1:]), token]

    def _draft(self, token: int, start: int) -> DraftTree:
        if self.drafter is None:
            return DraftTree([token], [-1], [0])
        logits = self.drafter.draft(token, start)
        if self.mode == "linear":
            return chain(token, logits.argmax(dim=-1).tolist())
        tokens, log_probs = top_log_probs(logits, self.top_k)
        ranked = tokens.tolist()
        tree = build_tree(token, ranked, log_probs.tolist(), self.budget)
        return tree if self.mode == "tree" else chain(token, [depth[0] for depth in ranked])
