"""Training texts: the target answers prompts from forms and prompts that it made up itself."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from training.loops import loop_starts
from training.prompts import (
    USER_TURN,
    ChatTokenizer,
    chat,
    template_prompts,
    usable_own_prompt,
    validation_prompts,
    without_measured,
    words,
)
from training.recipe import Recipe
from training.target import Target
from training.writer import Writer

END_TOKEN = 2
GREEDY, WARM_START, WARM = 0, 1, 2


@dataclass(frozen=True)
class Text:
    """Token ids of a prompt and its answer; the answer starts at `answer`."""

    ids: list[int]
    answer: int


@dataclass(frozen=True)
class Request:
    """A prompt to be answered; its first `sampled` tokens are drawn at `temperature`, the rest greedily."""

    prompt: list[int]
    temperature: float = 0.0
    sampled: int = 0


@dataclass
class Texts:
    """What was written, and what is kept for choosing the checkpoint."""

    training: list[Text] = field(default_factory=list)
    validation: list[Text] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def tokens(self) -> int:
        return sum(len(text.ids) for text in self.training)


class TextWriter:
    """Writes texts until there are enough of them or time is up."""

    def __init__(self, target: Target, tokenizer: ChatTokenizer, recipe: Recipe) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.device = target.device
        self.rng = random.Random(recipe.seed)
        room = recipe.prompt_limit + recipe.answer_limit
        self.writer = Writer(target, recipe.rows, -(-room // 64) * 64, END_TOKEN, recipe.seed)
        self.known: set[str] = set()

    def write(self) -> Texts:
        """Rounds of inventing prompts and answering them, the forms' prompts spread among them."""
        r, texts, started = self.recipe, Texts(), time.monotonic()
        kept = self.own_prompts()
        held_out, kept = kept[: r.validation_own], kept[r.validation_own :]
        greedy = [Request(self.encode(prompt)) for prompt in [*validation_prompts(), *held_out]]
        texts.validation = self.answer(greedy, after_loop=None)
        forms = self.form_requests()
        counts = {"own prompts": 0, "form prompts": 0, "looping texts": 0, "written tokens": 0}
        waiting: list[Request] = []
        while texts.tokens() < r.tokens and time.monotonic() - started < r.writing_seconds:
            share = forms[: r.rows // 3]
            forms = forms[len(share) :]
            waiting += share + [self.own_request(prompt) for prompt in kept]
            counts["own prompts"] += len(kept)
            counts["form prompts"] += len(share)
            self.rng.shuffle(waiting)
            while len(waiting) >= r.rows and time.monotonic() - started < r.writing_seconds:
                texts.training += self.answer(waiting[: r.rows], r.after_loop, counts)
                waiting = waiting[r.rows :]
            kept = self.own_prompts()
        texts.counts = counts
        return texts

    def encode(self, prompt: str) -> list[int]:
        return self.tokenizer.encode_ids(chat(prompt))

    def own_prompts(self) -> list[str]:
        """New user turns that the target invents after its own system prompt, at temperatures 0.8 to 1.1."""
        r = self.recipe
        start = self.tokenizer.encode_ids(USER_TURN)
        heat = torch.empty(r.rows).uniform_(0.8, 1.1)
        drawn = self.writer.write(
            [start] * r.rows, r.own_prompt_limit, heat, torch.full((r.rows,), r.own_prompt_limit)
        )
        found = []
        for ids in drawn:
            if ids[-1] != END_TOKEN:
                continue
            prompt = self.tokenizer.decode_ids(ids[:-1]).strip()
            key = " ".join(words(prompt))
            if usable_own_prompt(prompt) and key not in self.known:
                self.known.add(key)
                found.append(prompt)
        return without_measured(found)

    def own_request(self, prompt: str) -> Request:
        """Mostly greedy: what is drafted later is greedy too, and each own prompt is new anyway."""
        way = self.rng.choices((GREEDY, WARM_START, WARM), (60, 28, 12))[0]
        return self.request(self.encode(prompt), way)

    def form_requests(self) -> list[Request]:
        """Each form prompt greedily, and twice more from a start that was drawn."""
        prompts = [self.encode(prompt) for prompt in template_prompts(self.recipe.seed)]
        requests = [self.request(p, way) for p in prompts for way in (GREEDY, WARM_START, WARM_START)]
        self.rng.shuffle(requests)
        return requests

    def request(self, prompt: list[int], way: int) -> Request:
        if way == GREEDY:
            return Request(prompt)
        if way == WARM:
            return Request(prompt, 0.6, self.recipe.answer_limit)
        return Request(prompt, 0.9, self.rng.randint(2, 40))

    def answer(
        self, requests: Sequence[Request], after_loop: int | None, counts: dict[str, int] | None = None
    ) -> list[Text]:
        """Answers in batches; a loop is cut `after_loop` tokens after it is found (None: kept whole)."""
        r, texts = self.recipe, []
        usable = [request for request in requests if len(request.prompt) <= r.prompt_limit]
        for start in range(0, len(usable), r.rows):
            batch = usable[start : start + r.rows]
            answers = self.writer.write(
                [request.prompt for request in batch],
                r.answer_limit,
                torch.tensor([request.temperature for request in batch]),
                torch.tensor([request.sampled for request in batch]),
            )
            loops = loop_starts(answers, self.device)
            for request, answer, loop in zip(batch, answers, loops, strict=True):
                kept = answer if loop < 0 or after_loop is None else answer[: loop + after_loop]
                if len(kept) >= 4:
                    texts.append(Text(request.prompt + kept, len(request.prompt)))
            if counts is not None:
                counts["looping texts"] += sum(loop >= 0 for loop in loops)
                counts["written tokens"] += sum(map(len, answers))
        return texts
