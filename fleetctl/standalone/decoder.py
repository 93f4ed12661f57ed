"""One sequence at a time: prefill, then draft, verify and commit until the caller has enough.

All modes give the target's own text: a token is committed only when it is the target's choice (its argmax or
its sample) after the tokens before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from fleetctl.ddtree import Accepted, DraftTree, build_tree, chain, kept_slots, top_log_probs, walk
from fleetctl.standalone.contract import Counts, Mode, Sampling, Step
from fleetctl.standalone.drafter import Drafter
from fleetctl.standalone.sampling import Chooser
from fleetctl.standalone.target import Target

PREFILL_ROWS = 512


class Decoder:
    """Generates with ``target``; ``drafter`` may be None in autoregressive mode only.

    ``budget`` (draft nodes a pass), ``top_k`` (candidates a depth) and ``min_prob`` (of a node's path) shape
    the tree of the modes ``tree`` and ``shadow``; the chain of ``linear`` and ``shadow`` is as long as the
    drafter's block.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        mode: Mode,
        budget: int,
        top_k: int,
        min_prob: float = 0.0,
    ) -> None:
        if drafter is None and mode is not Mode.AUTOREGRESSIVE:
            raise ValueError(f"mode {mode} needs a drafter")
        self._target = target
        self._drafter = drafter
        self._mode = mode
        self._budget = budget
        self._min_score = math.log(min_prob) if min_prob else -math.inf
        self._top_k = top_k

    @torch.inference_mode()
    def generate(self, prompt: list[int], sampling: Sampling, counts: Counts) -> Iterator[list[int]]:
        """Yield the tokens of each pass, without end; close it to stop. ``counts`` follows the passes.

        ``prompt`` holds at least one token. The caller stops before the sequence outgrows the context.
        """
        chooser = Chooser(sampling)
        start = 0
        while True:
            piece = prompt[start : start + PREFILL_ROWS]
            done = self._target.forward(
                torch.tensor(piece), torch.arange(start, start + len(piece)), start, None
            )
            if self._drafter:
                self._drafter.extend(done.features, start)
            start += len(piece)
            if start == len(prompt):
                break
        last = chooser.choose(self._target.logits(done.hidden[-1:])[0])
        yield [last]
        while True:
            tree = self._propose(last, start)
            accepted = self._verify(tree, start, chooser)
            if counts.verify_passes < counts.describe:
                counts.steps.append(_step(tree, accepted))
            counts.drafted += len(tree) - 1
            counts.accepted += len(accepted.path) - 1
            counts.verify_passes += 1
            start += len(accepted.path)
            last = accepted.next_token
            yield [*(tree.tokens[node] for node in accepted.path[1:]), last]

    def _propose(self, last: int, start: int) -> DraftTree:
        if self._drafter is None or self._mode is Mode.AUTOREGRESSIVE:
            return chain([last])
        logits = self._drafter.draft(last, start)
        if self._mode is Mode.LINEAR:
            return chain([last, *logits.argmax(-1).tolist()])
        log_probs, tokens = top_log_probs(logits, self._top_k)
        tree = build_tree(last, log_probs, tokens, self._budget, self._min_score)
        if self._mode is Mode.TREE:
            return tree
        tree.ancestor_mask()
        tree.positions(start)
        return chain([last, *tokens[:, 0].tolist()])

    def _verify(self, tree: DraftTree, start: int, chooser: Chooser) -> Accepted:
        is_tree = self._mode is Mode.TREE
        done = self._target.forward(
            torch.tensor(tree.tokens), tree.positions(start), start, tree.ancestor_mask() if is_tree else None
        )
        logits = self._target.logits(done.hidden)
        if chooser.greedy:
            accepted = walk(tree, logits.argmax(-1).tolist().__getitem__)
        else:
            accepted = walk(tree, lambda node: chooser.choose(logits[node]))
        if is_tree:
            self._target.cache.compact(start, kept_slots(accepted.path, start))
        if self._drafter:
            self._drafter.extend(done.features[accepted.path], start)
        return accepted


def _step(tree: DraftTree, accepted: Accepted) -> Step:
    branches = any(tree.scores)
    probs = [1.0] + [
        math.exp(tree.scores[node] - tree.scores[tree.parents[node]]) for node in range(1, len(tree))
    ]
    return Step(
        tree.tokens, tree.parents, probs if branches else None, accepted.path[1:], accepted.next_token
    )
