"""The one generation at a time: its thread, its queue, and an answer that grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from fleetctl.standalone.generate import Counts, Generator
from fleetctl.standalone.loading import Settings, load
from fleetctl.standalone.metrics import Metrics
from fleetctl.standalone.queue import Place, Queue
from fleetctl.standalone.sampling import Sampler
from fleetctl.standalone.text import Text, TextStream


@dataclass(frozen=True)
class Job:
    """A request in the server's own terms: prompt tokens, how many to answer, how to choose, where to stop."""

    prompt: list[int]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int | None
    stops: list[str]


@dataclass
class Answer:
    """What came of a job so far: ``finish`` is None, then ``stop`` or ``length``."""

    prompt_tokens: int
    tokens: int = 0
    finish: str | None = None
    counts: Counts = field(default_factory=Counts)

    def usage(self) -> dict[str, int]:
        """OpenAI's usage, and drafted and accepted tokens with the passes that verified them.

        Accepted length is ``(accepted_tokens + verify_passes) / verify_passes``.
        """
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.tokens,
            "total_tokens": self.prompt_tokens + self.tokens,
            "drafted_tokens": self.counts.drafted,
            "accepted_tokens": self.counts.accepted,
            "verify_passes": self.counts.passes,
        }


class Service:
    """Loads the model and generates, both in one thread of its own. ``ready`` turns true after the warm-up."""

    def __init__(self, settings: Settings, queue: Queue, metrics: Metrics) -> None:
        self.settings = settings
        self.queue = queue
        self.metrics = metrics
        self.ready = False
        self.generator: Generator
        self.text: Text
        self._thread = ThreadPoolExecutor(1, "generate")

    async def start(self) -> None:
        """Load and make the first generation; ModelError where a model's folder cannot be served."""
        loop = asyncio.get_running_loop()
        self.generator, self.text = await loop.run_in_executor(self._thread, load, self.settings)
        print("warming up", flush=True)
        warm_up = Job(self.text.encode("Hello"), 4, 0.0, 1.0, None, [])
        with self.queue.place() as place:
            async for _ in self.answer(warm_up, Answer(len(warm_up.prompt)), place):
                pass
        self.ready = True

    async def answer(self, job: Job, answer: Answer, place: Place) -> AsyncGenerator[str, None]:
        """Wait for the turn, then the text piece by piece as it is certain; ``answer`` is kept up to date.

        Closing the iterator, or cancelling the task, ends the generation after the step it is in.
        """
        loop = asyncio.get_running_loop()
        grown = TextStream(self.text, job.stops)
        sampler = Sampler(job.temperature, job.top_p, job.seed)
        async with place.turn():
            self.metrics.prompt(len(job.prompt))
            steps = self.generator.generate(job.prompt, sampler, answer.counts)
            ended = False
            while not ended:
                before = replace(answer.counts)
                committed = await loop.run_in_executor(self._thread, next, steps)
                self.metrics.step(len(committed), before, answer.counts)
                piece = self._take(committed, job, answer, grown)
                ended = answer.finish is not None
                if piece:
                    yield piece

    def _take(self, committed: list[int], job: Job, answer: Answer, grown: TextStream) -> str:
        """Add tokens to the answer up to its end; the text that became certain."""
        piece = ""
        for token in committed:
            answer.tokens += 1
            if token in self.text.end_tokens:
                answer.finish = "stop"
                break
            piece += grown.push(token)
            if grown.stopped:
                answer.finish = "stop"
                break
            if answer.tokens == job.max_tokens:
                answer.finish = "length"
                break
        return piece + grown.finish() if answer.finish else piece
