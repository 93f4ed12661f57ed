"""The worker's step on CPU tensors: requests end, are aborted and retracted in the middle, on both ways to commit."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.patches_sglang.engine import Engine, spoken
from tests.patches_sglang.modules import module
from tests.patches_sglang.standins import SPECULATIVE, install

COMMITS = ("host", "device", "graph")
commits = module("ddtree_commit")


def leaves(value: Any) -> list[torch.Tensor]:
    """The tensors in what a captured function returns."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = (
        value if isinstance(value, tuple) else [getattr(value, one.name) for one in dataclasses.fields(value)]
    )
    return [leaf for part in parts for leaf in leaves(part)]


def as_a_graph(function: Any, inputs: list[torch.Tensor]) -> Any:
    """What a CUDA graph does, on a CPU: every replay fills the same outputs, whoever still holds them."""
    outputs = function(*inputs)

    def replay() -> None:
        for kept, fresh in zip(leaves(outputs), leaves(function(*inputs)), strict=True):
            kept.copy_(fresh)

    return replay, outputs


@pytest.fixture(scope="module")
def modules() -> Iterator[SimpleNamespace]:
    """The patch set's modules, graphs as ``as_a_graph`` has them; what ``sglang`` was before comes back."""
    before = {name: made for name, made in sys.modules.items() if name.split(".")[0] == "sglang"}
    for name in before:
        del sys.modules[name]
    made = install()
    made.graphs.capture = as_a_graph
    yield made
    for name in [name for name in sys.modules if name.split(".")[0] == "sglang"]:
        del sys.modules[name]
    sys.modules.update(before)


def prompts(count: int) -> list[list[int]]:
    return [[(3 * n + 5 * i) % 21 for i in range(2 + n)] for n in range(count)]


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("options", [{}, {"budget": 12, "spine": True}, {"budget": 2}, {"fork": False}])
def test_texts_are_the_targets_and_no_slot_is_lost(
    modules: SimpleNamespace, commit: str, options: dict[str, Any]
) -> None:
    engine = Engine(modules, 3, commit=commit, **options)
    asked = [engine.add(prompt, 40 + 7 * n) for n, prompt in enumerate(prompts(4))]
    steps = 0
    while engine.running:
        engine.step()
        steps += 1
        assert steps < 400
    for req in asked:
        said = spoken(req.origin_input_ids, len(req.output_ids))
        assert req.text == said and (len(req.output_ids) == req.max_new_tokens or said[-1] == 22)
        assert sum(count + 1 for count in req.histogram) == len(req.output_ids) - 1
    accepted, passes = (
        sum(req.spec_accepted_drafts for req in asked),
        sum(req.spec_verify_ct for req in asked),
    )
    assert accepted > 0.5 * passes, "drafts are accepted, or nothing is tested"
    assert len(engine.allocator.free_slots) == 4000


def test_passes_are_planned_on_the_device_where_there_is_a_graph_of_their_size(
    modules: SimpleNamespace,
) -> None:
    """Batches of 4, 2 and 1 have graphs, those of 3 have none; what each pass reads is checked by the engine."""
    engine = Engine(modules, 7, commit="graph")
    long = [prompts(40)[n] for n in (1, 19, 32, 34)]  # whose texts go on for a while
    asked = [engine.add(prompt, 90) for prompt in long]
    passes = 0
    while engine.running:
        before, size = engine.planned, len(engine.running)
        engine.step()
        passes += 1
        assert engine.planned - before <= (size != 3)
    replays = engine.worker._replays
    drafts = [key for key in replays._entries if key[0] == "draft" and replays.has(key)]
    assert {key[1] for key in drafts} == {1, 2, 4}
    assert [entry for key, entry in replays._entries.items() if key[0] == "commit" and len(key) > 9]
    assert engine.planned > passes // 2
    assert all(req.text == spoken(req.origin_input_ids, len(req.output_ids)) for req in asked)


def test_a_planned_pass_without_its_graph_gets_its_mask(modules: SimpleNamespace) -> None:
    """SGLang may run a planned pass without the graph after all: then what it reads is made the usual way."""
    engine = Engine(modules, 7, commit="graph")
    engine.add(prompts(2)[1], 80)
    for _ in range(12):
        engine.step()
    seen: list[Any] = []
    backend = engine.target_runner.attn_backend
    ordinary = engine.plan

    def without_graph(batch: Any, proposal: Any) -> None:
        seen.append((proposal.planned, proposal.custom_mask))
        backend.init_forward_metadata(SimpleNamespace(spec_info=proposal))
        assert proposal.planned == 0 and torch.equal(proposal.custom_mask, proposal.mask())

    engine.plan = without_graph  # type: ignore[method-assign]
    engine.step()
    engine.plan = ordinary  # type: ignore[method-assign]
    engine.step()
    assert seen == [(1, None)]


def test_both_ways_commit_the_same_in_the_same_passes(modules: SimpleNamespace) -> None:
    seen = []
    for commit in COMMITS:
        engine = Engine(modules, 11, commit=commit)
        asked = [engine.add(prompt, 60) for prompt in prompts(3)]
        history = []
        while engine.running:
            result = engine.step()
            lengths = [req.kv_committed_len for req in asked]
            history.append((list(result.num_accepted_drafts_per_req_cpu), lengths))
        seen.append(([req.output_ids for req in asked], history))
    assert seen[0] == seen[1] == seen[2]
    assert engine.worker._replays.captured >= 2, "both parts of a pass were replayed"


@pytest.mark.parametrize("commit", COMMITS)
def test_one_is_aborted_in_the_middle_and_the_others_go_on(modules: SimpleNamespace, commit: str) -> None:
    engine = Engine(modules, 5, commit=commit)
    first, second, third = (engine.add(prompt, 80) for prompt in prompts(3))
    for _ in range(3):
        engine.step()
    second.to_finish = True  # as the scheduler's abort does: it ends with the next token
    before = len(second.output_ids)
    engine.step()
    assert second.finished() and len(second.output_ids) == before + 1
    assert second not in engine.running
    late = engine.add([7, 7], 30)
    while engine.running:
        engine.step()
    assert all(req.finished() for req in (first, third, late))
    assert len(engine.allocator.free_slots) == 4000


@pytest.mark.parametrize("commit", COMMITS)
def test_one_is_retracted_and_goes_on_from_its_text(modules: SimpleNamespace, commit: str) -> None:
    engine = Engine(modules, 8, commit=commit)
    first, second = (engine.add(prompt, 60) for prompt in prompts(2))
    for _ in range(4):
        engine.step()
    engine.retract(second)
    said = list(second.output_ids)
    for _ in range(3):
        engine.step()
    assert second.output_ids == said
    if not second.finished():
        engine.prefill(second)
    while engine.running:
        engine.step()
    for req in (first, second):
        assert req.text == spoken(req.origin_input_ids, len(req.output_ids)) and req.finished()
    assert len(engine.allocator.free_slots) == 4000


def test_an_end_in_the_middle_of_a_path_frees_the_rest_of_it(modules: SimpleNamespace) -> None:
    """The device commits whole paths; what the host cuts off is freed by it, slot by slot."""
    cut = 0
    for seed in range(20):
        engine = Engine(modules, seed, commit="device", top_k=5, budget=15)
        req = engine.add([1, 2, 3], 6)
        while engine.running:
            wanted = req.max_new_tokens - len(req.output_ids)
            engine.step()
            cut += req.finished() and len(req.output_ids) == 6 and wanted < 4
        assert len(engine.allocator.free_slots) == 4000
    assert cut


def random_walks(
    seed: int, requests: int, rows: int, steps: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    lines = torch.zeros(requests, 2 * steps + 2, dtype=torch.int64)
    for request in range(requests):
        count = int(torch.randint(1, steps + 1, (), generator=rng))
        others = torch.randperm(rows - 1, generator=rng)[: count - 1].sort()[0] + 1
        lines[request, :count] = torch.cat([torch.zeros(1, dtype=torch.int64), others])
        lines[request, steps : steps + count] = torch.randint(0, 50, (count,), generator=rng)
        lines[request, -2], lines[request, -1] = count, 7
    slots = torch.randperm(900, generator=rng)[: requests * rows].view(requests, rows) + 1
    return lines, torch.randint(0, 40, (requests,), generator=rng), slots


@pytest.mark.parametrize("seed", range(12))
def test_the_device_keeps_and_drops_what_the_host_does(seed: int) -> None:
    requests, rows, steps = 1 + seed % 4, 3 + seed, min(3 + seed, 5)
    lines, lengths, slots = random_walks(seed, requests, rows, steps)
    done = commits.commit(lines, lengths, slots)
    paths = [line[: line[-2]] for line in lines.tolist()]
    keep, drop = commits.commit_lists(paths, rows)
    counts = [len(path) for path in paths]
    flat = slots.view(-1)
    free, stay = commits.freed(done, lines.tolist(), counts)
    assert stay.tolist() == flat[keep].tolist()
    assert (free.tolist() if free is not None else []) == flat[drop].tolist()
    kept_rows = torch.cat([row[:count] for row, count in zip(done.kept_rows, counts, strict=True)])
    assert kept_rows.tolist() == keep
    table = torch.full((requests, 60 + steps), -1, dtype=torch.int32)
    commits.write_table(table, torch.arange(requests), lengths, done)
    for request, count in enumerate(counts):
        first = int(lengths[request])
        assert table[request, first : first + count].tolist() == done.kept_slots[request, :count].tolist()
        assert (table[request] >= 0).sum() == count, "nothing else is written"
        assert done.positions[request].tolist() == [first + n if n < count else 0 for n in range(steps)]
        assert not done.kept_slots[request, count:].any()


def test_what_is_cut_short_is_freed_with_the_dropped() -> None:
    lines, lengths, slots = random_walks(1, 3, 9, 5)
    lines[:, -2] = torch.tensor([4, 1, 5])
    lines[:, :5] = torch.tensor([0, 2, 3, 5, 8])
    done = commits.commit(lines, lengths, slots)
    free, stay = commits.freed(done, lines.tolist(), [2, 1, 5])
    assert sorted([*free.tolist(), *stay.tolist()]) == sorted(slots.view(-1).tolist())
    assert stay.tolist() == [
        *slots[0, [0, 2]].tolist(),
        *slots[1, [0]].tolist(),
        *slots[2, [0, 2, 3, 5, 8]].tolist(),
    ]


def test_a_graph_is_not_tried_where_it_is_not_wanted(modules: SimpleNamespace) -> None:
    replays = modules.graphs.Replays(enabled=False)
    for _ in range(9):
        assert replays.run("key", lambda x: x + 1, [torch.ones(2)]).tolist() == [2, 2]
    assert replays.captured == 0


def test_a_capture_that_fails_leaves_the_function_as_it_was(
    modules: SimpleNamespace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(function: Any, inputs: list[torch.Tensor]) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(modules.graphs, "capture", fails)
    replays = modules.graphs.Replays(enabled=True)
    for number in range(9):
        assert replays.run(("sum", 2), lambda x: x.sum(), [torch.full((2,), float(number))]) == 2 * number
    assert replays.captured == 0
    assert caplog.text.count("no CUDA graph for ('sum', 2) (RuntimeError: operation not permitted") == 1


class Event:
    """A CUDA event on the processor's clock."""

    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def query(self) -> bool:
        return True

    def elapsed_time(self, later: Event) -> float:
        return 1000 * (later.at - self.at)


@pytest.mark.parametrize("commit", COMMITS)
def test_every_pass_is_timed_by_phase(
    modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, commit: str
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    committing = modules.worker.commit
    slow = lambda *given: time.sleep(0.002) or committing(*given)  # noqa: E731
    monkeypatch.setattr(modules.worker, "commit", slow)
    engine = Engine(modules, 3, commit=commit, builder="torch", metrics=True)
    request = engine.add(prompts(2)[1], 30)
    while engine.running:
        engine.step()
    said = request.customized_info["ddtree"][0:1]  # type: ignore[index]
    assert said["timed_passes"] == said["passes"] == request.spec_verify_ct
    phases = said["phase_ms"]
    assert list(phases) == ["draft", "build", "verify", "commit", "host"]
    assert all(ms > 0 for ms in phases.values())
    if commit != "host":
        assert phases["commit"] > 2 * said["passes"] > phases["host"], "the commit is no part of what follows"


def test_an_answer_says_what_its_passes_did(modules: SimpleNamespace) -> None:
    report = modules.metrics.Report.of(req := SimpleNamespace(customized_info=None))
    assert modules.metrics.Report.of(req) is report
    for accepted in (3, 0, 1):
        report.add(accepted)
    report.time([0.001, 0.002, 0.003, 0.004, 0.005])
    report.time([0.001, 0.0, 0.0, 0.0, 0.0])
    said = req.customized_info["ddtree"][4:9]
    assert said == {
        "passes": 3,
        "accepted_by_depth": [2, 1, 1],
        "phase_ms": {"draft": 2.0, "build": 2.0, "verify": 3.0, "commit": 4.0, "host": 5.0},
        "timed_passes": 2,
    }
    assert f"{SPECULATIVE}.ddtree_metrics" in sys.modules
