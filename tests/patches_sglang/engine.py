"""An engine in miniature around the patch set's own modules: slots, requests and batches as SGLang 0.5.11 has them.

The target's next token is a function of the whole text, so what every mode must say is known; a slot holds what was
written there (token and position), so a slot that is lost, freed twice or read by the wrong request is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from tests.patches_sglang.standins import MASK, POSITIONS, Mode, TritonBackend, runner

VOCABULARY, BLOCK, SLOTS, END = 23, 5, 4000, 22


def next_token(text: Sequence[int]) -> int:
    """What the target says after a text."""
    value = len(text)
    for token in text[-6:]:
        value = (value * 31 + token * 17 + 7) % 10007
    return value % VOCABULARY


@dataclass
class Request:
    """One request, with what the patch set reads and writes of SGLang's ``Req``."""

    origin_input_ids: list[int]
    max_new_tokens: int
    pool: int
    output_ids: list[int] = field(default_factory=list)
    kv_committed_len: int = 0
    kv_allocated_len: int = 0
    to_finish: bool = False
    spec_verify_ct: int = 0
    spec_accepted_drafts: int = 0
    histogram: list[int] = field(default_factory=list)
    customized_info: dict[str, Any] | None = None
    _finished: bool = False

    def check_finished(self) -> None:
        ends = self.to_finish or len(self.output_ids) >= self.max_new_tokens or self.output_ids[-1] == END
        self._finished = self._finished or ends

    def finished(self) -> bool:
        return self._finished

    def update_spec_acceptance_histogram(self, accepted: int) -> None:
        self.histogram.append(accepted)

    @property
    def text(self) -> list[int]:
        return self.origin_input_ids + self.output_ids


class Allocator:
    """Slots 1 to SLOTS; slot 0 is for padding. Freeing what is free is an error."""

    def __init__(self) -> None:
        self.free_slots = list(range(1, SLOTS + 1))

    def alloc(self, count: int) -> torch.Tensor:
        taken, self.free_slots = self.free_slots[:count], self.free_slots[count:]
        return torch.tensor(taken, dtype=torch.int64)

    def backup_state(self) -> list[int]:
        return list(self.free_slots)

    def restore_state(self, state: list[int]) -> None:
        self.free_slots = state

    def free(self, slots: torch.Tensor) -> None:
        given = slots.tolist()
        assert 0 not in given and len(set(given)) == len(given) and not set(given) & set(self.free_slots)
        self.free_slots += given


class Engine:
    """Requests that come, end, are aborted and retracted; after each step everything that must hold is checked."""

    def __init__(self, modules: SimpleNamespace, seed: int, **options: Any) -> None:
        self.rng = torch.Generator().manual_seed(seed)
        self.allocator = Allocator()
        self.table = torch.zeros(8, POSITIONS, dtype=torch.int32)
        self.target_cache: dict[int, tuple[int, int]] = {}
        self.drafter_cache = torch.zeros(SLOTS + 1, 2)
        self.running: list[Request] = []
        self.draft_input: Any = None
        # Hidden states are one-hot logits already: the head is the identity.
        shard = SimpleNamespace(num_org_elements=VOCABULARY, org_vocab_start_index=0, num_added_elements=0)
        self.head = SimpleNamespace(shard_indices=shard, weight=torch.eye(VOCABULARY))
        given = {"mode": "tree", "block": BLOCK, "budget": 7, "top_k": 3, "depth": BLOCK - 1}
        given |= {"min_score": float("-inf"), "spine": False, "fork": True}
        given["builder"] = "triton" if options.get("commit") == "graph" else "torch"
        settings = modules.args.Settings(**{**given, "metrics": False, "log_trees": 0, **options})
        self.target_runner = runner(TritonBackend(self.table, settings.budget + 1), 1, lambda count: None)
        self.target_runner.sliding_window_size = None
        self.target_runner.model = SimpleNamespace(
            lm_head=self.head, get_input_embeddings=lambda: lambda ids: ids[..., None].to(torch.float32)
        )
        self.draft_runner = runner(TritonBackend(self.table, BLOCK), VOCABULARY, self._drafted)
        self.draft_runner.token_to_kv_pool_allocator = self.allocator
        self.planned = 0
        modules.worker.settings_of = lambda _: settings
        self.worker = modules.worker.DDTreeWorker(
            SimpleNamespace(enable_metrics=False, served_model_name="m"), self
        )

    def add(self, prompt: list[int], max_new_tokens: int) -> Request:
        """A request, after its prompt was read: its first token is there, its prompt is in the caches."""
        pool = next(n for n in range(8) if n not in {req.pool for req in self.running})
        req = Request(prompt, max_new_tokens, pool)
        self.prefill(req)
        return req

    def prefill(self, req: Request) -> None:
        """Read all that a request has (also one that was retracted), and say one token more."""
        text = req.text
        slots = self.allocator.alloc(len(text))
        self.table[req.pool, : len(text)] = slots.to(torch.int32)
        self._write(slots.tolist(), text, range(len(text)))
        self.drafter_cache[slots] = self._features(text, range(len(text)))
        req.kv_committed_len = req.kv_allocated_len = len(text)
        req.output_ids.append(next_token(text))
        req.check_finished()
        self.running.append(req)
        self._rebuild()
        if req.finished():
            self.leave(req)

    def leave(self, req: Request) -> None:
        """Free what a request holds, as ``release_kv_cache`` does, and take it out of the batch."""
        self.allocator.free(self.table[req.pool, : req.kv_committed_len].to(torch.int64))
        assert req.kv_allocated_len == req.kv_committed_len
        self.running.remove(req)
        self._rebuild()

    def retract(self, req: Request) -> None:
        """Take a running request's cache away; it goes on later, from its text alone."""
        self.leave(req)
        req.kv_committed_len = req.kv_allocated_len = 0

    def step(self) -> Any:
        """One step of all running requests; those that end leave."""
        batch = self._batch()
        result = self.worker.forward_batch_generation(batch)
        self.draft_input = batch.spec_info
        self.seq_lens, self.seq_lens_cpu = batch.seq_lens, batch.seq_lens_cpu
        assert batch.seq_lens.tolist() == batch.seq_lens_cpu.tolist()
        self.check()
        for req in [req for req in self.running if req.finished()]:
            self.leave(req)
        return result

    def check(self) -> None:
        """Every text is the target's; every slot is free, or holds what its one owner thinks, in both caches."""
        held: list[int] = []
        for req in self.running:
            assert req.text == spoken(req.origin_input_ids, len(req.output_ids))
            mine = self.table[req.pool, : req.kv_committed_len].tolist()
            text = req.text[: req.kv_committed_len]
            assert req.finished() or req.kv_committed_len == len(req.text) - 1
            assert [self.target_cache[slot] for slot in mine] == list(
                zip(text, range(len(text)), strict=True)
            )
            wanted = self._features(text, range(len(text)))
            assert torch.equal(self.drafter_cache[torch.tensor(mine)], wanted)
            held += mine
        assert sorted(held + self.allocator.free_slots) == list(range(1, SLOTS + 1))

    def _drafted(self, count: int) -> torch.Tensor:
        """The drafter's graph: what it reads must be the block behind each request's newest token."""
        buffers = self.draft_runner.graph_runner.buffers
        slots = buffers.out_cache_loc[: count * BLOCK].tolist()
        assert count == len(self.running) and len(set(slots)) == len(slots)
        for index, req in enumerate(self.running):
            mine = slice(index * BLOCK, (index + 1) * BLOCK)
            length = req.kv_committed_len
            assert buffers.input_embeds[mine, 0].tolist() == [req.text[-1]] + [MASK] * (BLOCK - 1)
            assert buffers.positions[mine].tolist() == list(range(length, length + BLOCK))
            held = self.table[req.pool, :length].tolist()
            assert self.draft_runner.attn_backend.prefixes[index] == held and not set(held) & set(slots)
        return self.drafts()

    def plan(self, batch: Any, proposal: Any) -> None:
        """What SGLang does before it replays the verify pass; then what the pass reads must be this batch's."""
        backend, requests = self.target_runner.attn_backend, len(self.running)
        self.planned += proposal.planned == requests
        lengths = batch.seq_lens
        backend.init_forward_metadata_replay_cuda_graph(
            requests,
            batch.req_pool_indices,
            lengths,
            0,
            None,
            Mode.TARGET_VERIFY,
            proposal,
            seq_lens_cpu=None,
        )
        mask = proposal.mask()
        assert torch.equal(backend.cuda_graph_custom_mask[: len(mask)].bool(), mask)
        assert backend.prefixes == [
            self.table[req.pool, : req.kv_committed_len].tolist() for req in self.running
        ]

    def drafts(self) -> torch.Tensor:
        """The drafter's logits [requests, block, vocabulary]: mostly the truth, somewhere among the likeliest."""
        logits = torch.randn(len(self.running), BLOCK, VOCABULARY, generator=self.rng)
        for index, req in enumerate(self.running):
            text = req.text
            for depth in range(1, BLOCK):
                truth = next_token(text)
                text = [*text, truth]
                logits[index, depth, truth] += 3 * float(torch.rand((), generator=self.rng))
        return logits

    def target_pass(self, batch: Any, proposal: Any) -> Any:
        """Read every row behind its own path: logits, hidden states, and what its slot then holds."""
        requests, rows = len(self.running), proposal.draft_token_num
        tokens, parents = proposal.trees.tokens.tolist(), proposal.trees.parents.tolist()
        positions = proposal.positions.view(requests, rows).tolist()
        logits = torch.zeros(requests, rows, VOCABULARY)
        hidden = torch.zeros(requests, rows, 2)
        slots = batch.out_cache_loc.view(requests, rows).tolist()
        for index, req in enumerate(self.running):
            for row in range(rows):
                path, node = [], row
                while node > 0:
                    path.append(tokens[index][node])
                    node = parents[index][node]
                said = req.text + path[::-1]
                logits[index, row, next_token(said)] = 1
                hidden[index, row] = self._features([tokens[index][row]], [positions[index][row]])[0]
            self._write(slots[index], tokens[index], positions[index])
        flat = logits.view(requests * rows, -1)
        return SimpleNamespace(next_token_logits=flat, hidden_states=hidden.view(requests * rows, -1))

    def _write(self, slots: Sequence[int], tokens: Sequence[int], positions: Sequence[int]) -> None:
        self.target_cache.update(zip(slots, zip(tokens, positions, strict=True), strict=True))

    def _features(self, tokens: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        return torch.tensor(list(zip(tokens, positions, strict=True)), dtype=torch.float32)

    def _rebuild(self) -> None:
        lengths = [req.kv_committed_len for req in self.running]
        self.seq_lens = torch.tensor(lengths, dtype=torch.int64)
        self.seq_lens_cpu = torch.tensor(lengths, dtype=torch.int64)
        self.draft_input = SimpleNamespace(
            verified_id=torch.tensor([req.output_ids[-1] for req in self.running], dtype=torch.int64),
            target_hidden=torch.zeros(0, 2),
            ctx_lens=torch.zeros(len(lengths), dtype=torch.int32),
            draft_seq_lens=self.seq_lens.to(torch.int32),
        )

    def _batch(self) -> Any:
        return SimpleNamespace(
            reqs=list(self.running),
            batch_size=lambda: len(self.running),
            forward_mode=Mode.DECODE,
            has_grammar=False,
            sampling_info=None,
            mamba_track_indices=None,
            device="cpu",
            seq_lens=self.seq_lens,
            seq_lens_cpu=self.seq_lens_cpu,
            seq_lens_sum=int(self.seq_lens_cpu.sum()),
            req_pool_indices=torch.tensor([req.pool for req in self.running]),
            req_to_token_pool=SimpleNamespace(req_to_token=self.table),
            token_to_kv_pool_allocator=self.allocator,
            tree_cache=SimpleNamespace(token_to_kv_pool_allocator=self.allocator),
            out_cache_loc=None,
            spec_info=self.draft_input,
        )


def spoken(prompt: Sequence[int], count: int) -> list[int]:
    """A prompt and the target's next ``count`` tokens."""
    text = list(prompt)
    for _ in range(count):
        text.append(next_token(text))
    return text
