"""The patch set's Triton kernels, interpreted, against what torch says: ``TRITON_INTERPRET=1 pytest`` of this file.

Of a tree everything is compared but the scores, which the kernel does not keep.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from triton.runtime import interpreter

from fleetctl.ddtree.batched import TreeBatch, ancestors, build_trees
from tests.patches_sglang.modules import module
from tests.patches_sglang.standins import SPECULATIVE, install

engine = install()
by_torch: Any = sys.modules[f"{SPECULATIVE}.ddtree_kernels"]
kernels = module("ddtree_kernels")
assert isinstance(kernels._build, interpreter.InterpretedFunction), "TRITON_INTERPRET=1 is not set"

_as_before = interpreter._patch_lang_tensor


def _with_scalars(tensor: Any, scope: Any) -> None:
    """Triton 3.6.0 makes a loop's bound of an array of one element, which NumPy 2.4 refuses."""
    _as_before(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())


interpreter._patch_lang_tensor = _with_scalars


def same(one: Any, other: Any, what: str) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0, msg=lambda said: f"{what}: {said}")


@dataclass(frozen=True)
class Draft:
    """A seeded draft to build trees of; ``kind`` says what its log-probabilities are like."""

    budget: int
    depths: int
    top_k: int
    kind: str = "random"
    spine: bool = False
    min_prob: float = 0.0
    requests: int = 2
    lengths: torch.dtype = torch.int64

    def __str__(self) -> str:
        return "-".join(str(value) for value in dataclasses.astuple(self)).replace("torch.", "")

    def tables(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Roots [requests], log-probabilities and tokens [requests, depths, k], best first."""
        rng = torch.Generator().manual_seed(self.budget * 100 + self.depths * 10 + self.top_k)
        shape = (self.requests, self.depths, self.top_k)
        if self.kind == "random":
            table = torch.randn(*shape[:2], 40, generator=rng).mul(2).log_softmax(-1)
        else:
            table = -torch.randint(0, 3, (*shape[:2], 40), generator=rng).float()
            if self.kind == "close":  # sums that tie in float32
                table -= 1
                table[:, 1:] *= 1e-9
        table = table.sort(-1, descending=True)[0][..., :: 40 // self.top_k][..., : self.top_k].contiguous()
        if self.kind == "impossible":
            table[..., -1] = -math.inf
            table[-1, self.depths // 2] = math.nan
            table[0, -1] = -math.inf
        elif self.kind == "nothing":
            table[0] = -math.inf
            table[1:, 0] = math.nan
        names = torch.rand(*shape[:2], 40, generator=rng).argsort(-1)[..., : self.top_k]
        return torch.arange(100, 100 + self.requests), table, names

    def options(self) -> dict[str, Any]:
        floor = math.log(self.min_prob) if self.min_prob else -math.inf
        return {"budget": self.budget, "min_score": floor, "spine": self.spine}

    def prefixes(self) -> torch.Tensor:
        return torch.tensor([0, 2100, 7, 30])[: self.requests].to(self.lengths)


DRAFTS = [
    Draft(1, 1, 1, requests=1),
    Draft(1, 4, 8, spine=True, requests=3, lengths=torch.int32),
    Draft(2, 4, 3, "ties", requests=3, lengths=torch.int32),
    Draft(2, 5, 1, min_prob=0.9),
    Draft(7, 4, 3, "ties", requests=3),
    Draft(7, 4, 3, "close"),
    Draft(7, 4, 3, min_prob=0.05, lengths=torch.int32),
    Draft(7, 4, 3, spine=True, min_prob=0.05, requests=3),
    Draft(7, 4, 8, "impossible", requests=3, lengths=torch.int32),
    Draft(7, 4, 3, "impossible", spine=True),
    Draft(7, 3, 8, "nothing", requests=3),
    Draft(7, 3, 3, "nothing", spine=True, lengths=torch.int32),
    Draft(15, 15, 8, spine=True, requests=1),
    Draft(15, 6, 3, "ties", lengths=torch.int32),
    Draft(15, 6, 8, "ties", spine=True),
    Draft(15, 2, 3),  # 12 paths in all
    Draft(16, 8, 8, min_prob=0.001),
    Draft(16, 5, 1, lengths=torch.int32),
    Draft(16, 5, 3, "ties", spine=True),
    Draft(32, 7, 8, "ties", lengths=torch.int32),
    Draft(32, 2, 3, spine=True, requests=1),
    Draft(32, 8, 3, spine=True, min_prob=0.01, requests=1),
]


@pytest.mark.parametrize("draft", DRAFTS, ids=str)
def test_trees_are_built_with_their_links_positions_and_ancestors(draft: Draft) -> None:
    built, *rest = kernels.build(*draft.tables(), draft.prefixes(), **draft.options())
    trees, *expected = by_torch.build(*draft.tables(), draft.prefixes(), **draft.options())
    for name in ("tokens", "parents", "depths", "counts"):
        same(getattr(built, name), getattr(trees, name), name)
    names = ("first children", "next siblings", "positions", "ancestors")
    for name, one, other in zip(names, rest, expected, strict=True):
        same(one, other, name)


def test_the_drafts_fill_trees_or_do_not_and_tie() -> None:
    filled, ties = set(), 0
    for draft in DRAFTS:
        trees = build_trees(*draft.tables(), **draft.options())
        filled |= {(draft.budget, int(count) > draft.budget) for count in trees.counts}
        ties += sum(len(set(scores.tolist())) < draft.budget for scores in trees.scores)
    assert filled >= {(budget, True) for budget in (1, 2, 7, 15, 16, 32)}
    assert filled >= {(budget, False) for budget in (2, 7, 15, 16, 32)}
    assert ties > 10


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    ("lengths", "rows"), [([0], 2), ([5], 16), ([3, 0, 1025], 3), ([1024, 1, 2100, 9, 0], 8), ([4, 1023], 33)]
)
def test_the_mask_of_several_requests_is_the_flat_one(
    lengths: list[int], rows: int, dtype: torch.dtype
) -> None:
    seen = torch.rand(len(lengths), rows, rows, generator=torch.Generator().manual_seed(rows)) < 0.5
    prefixes = torch.tensor(lengths, dtype=dtype)
    total = sum(rows * (length + rows) for length in lengths)
    same(kernels.mask_of(seen, prefixes, total), by_torch.mask_of(seen, prefixes, total), "mask")


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_a_mask_written_into_a_larger_one_leaves_the_rest(dtype: torch.dtype) -> None:
    seen = torch.rand(3, 5, 5, generator=torch.Generator().manual_seed(1)) < 0.5
    prefixes = torch.tensor([6, 0, 1030])
    written = torch.randint(0, 2 if dtype is torch.bool else 200, (7000,), dtype=torch.uint8).to(dtype)
    expected = written.clone()
    kernels.write_mask(seen, prefixes, written)
    by_torch.write_mask(seen, prefixes, expected)
    same(written, expected, "mask")


def walks(draft: Draft, rng: torch.Generator) -> tuple[TreeBatch, torch.Tensor, torch.Tensor]:
    """Trees, their ancestors, and what a target says that takes a random node of each, and else what it likes."""
    trees = build_trees(*draft.tables(), **draft.options())
    seen = ancestors(trees)
    rows = draft.budget + 1
    predicted = torch.randint(0, 40, (draft.requests, rows), generator=rng)
    for request, count in enumerate(trees.counts.tolist()):
        goal = int(torch.randint(0, count, (), generator=rng))
        for node in seen[request, goal].nonzero().flatten().tolist()[1:]:
            predicted[request, trees.parents[request, node]] = trees.tokens[request, node]
        # Padding repeats the root's token, and is not taken where the target does.
        if goal == 0:
            predicted[request, 0] = trees.tokens[request, 0]
    return trees, seen, predicted


@pytest.mark.parametrize("draft", DRAFTS, ids=str)
@pytest.mark.parametrize("spare", [0, 3])
def test_walks_and_commits_are_torchs(draft: Draft, spare: int) -> None:
    """``spare``: by how much the longest path that there is room for exceeds the longest that there can be."""
    rng = torch.Generator().manual_seed(draft.budget + spare)
    trees, seen, predicted = walks(draft, rng)
    rows = draft.budget + 1
    steps = min(min(draft.depths, draft.budget) + 1 + spare, rows)
    lengths = draft.prefixes()
    pools = torch.randperm(5, generator=rng)[: draft.requests].to(lengths.dtype)
    slots = torch.randperm(500, generator=rng)[: draft.requests * rows].view(draft.requests, rows) + 1
    slots = slots.to(lengths.dtype)
    table = torch.randint(1000, 2000, (5, 2100 + rows + 1), generator=rng, dtype=torch.int32)
    before, expected_table = table.clone(), table.clone()

    walked = kernels.walk(trees, seen, predicted, steps)
    same(walked, by_torch.walk(trees, seen, predicted, steps), "walk")
    done = kernels.commit(trees, seen, predicted, lengths, pools, slots, table, steps)
    expected = by_torch.commit(trees, seen, predicted, lengths, pools, slots, expected_table, steps)
    for field in dataclasses.fields(expected):
        same(getattr(done, field.name), getattr(expected, field.name).to(torch.int64), field.name)
    same(table, expected_table, "slots by position")

    for request, (count, pool, length) in enumerate(
        zip(done.counts.tolist(), pools.tolist(), lengths.tolist(), strict=True)
    ):
        kept, lost = done.kept_slots[request], done.dropped[request]
        assert kept[:count].tolist() == table[pool, length : length + count].tolist()
        assert sorted(kept[:count].tolist() + lost[: rows - count].tolist()) == sorted(
            slots[request].tolist()
        )
        assert not kept[count:].any() and not lost[rows - count :].any()
        assert done.kept_rows[request, count:].eq(request * rows).all()
        same(table[pool, length + count :], before[pool, length + count :], "what was behind")


def test_the_check_at_start_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    check = sys.modules[f"{SPECULATIVE}.ddtree_check"]
    monkeypatch.setattr(check, "ddtree_kernels", kernels)
    shape = {
        "mode": "tree",
        "block": 5,
        "budget": 6,
        "top_k": 3,
        "depth": 4,
        "min_score": -4.0,
        "spine": True,
    }
    settings = engine.args.Settings(**shape, fork=True, builder="triton", metrics=False, log_trees=0)
    assert check.self_check(settings, "cpu", cases=2) == ""
