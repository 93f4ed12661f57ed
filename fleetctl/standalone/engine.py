"""The queue in front of the model: one generation at a time, the others wait, a cancelled one makes room.

One thread loads the model, makes the warm-up generation and then serves the queue. A job's events reach its
asyncio loop as they come.
"""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from fleetctl.standalone.contract import Counts, Sampling
from fleetctl.standalone.errors import StartError
from fleetctl.standalone.text import TextCodec, TextStream


class Generator(Protocol):
    """What the engine needs of a decoder: tokens, pass by pass, until it is closed."""

    def generate(self, prompt: list[int], sampling: Sampling, counts: Counts) -> Iterator[list[int]]: ...


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model: its generator, its text codec and its limits in tokens."""

    generator: Generator
    codec: TextCodec
    context: int
    vocabulary: int
    eos_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Delta:
    """New text of a job; the last one has ``finish_reason`` ``stop``, ``length`` or ``error``."""

    text: str
    finish_reason: str | None = None


@dataclass(eq=False, slots=True)
class Job:
    """One request in the queue. ``deltas`` is fed by the engine's thread through ``loop``."""

    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    stops: list[str]
    ignore_eos: bool
    loop: asyncio.AbstractEventLoop
    deltas: asyncio.Queue[Delta] = field(default_factory=asyncio.Queue)
    counts: Counts = field(default_factory=Counts)
    completion_tokens: int = 0
    finish_reason: str | None = None
    cancelled: bool = False

    def emit(self, delta: Delta) -> None:
        """Hand ``delta`` to the loop; a loop that is closed has nobody left to tell."""
        self.finish_reason = delta.finish_reason
        try:
            self.loop.call_soon_threadsafe(self.deltas.put_nowait, delta)
        except RuntimeError:
            self.cancelled = True


class QueueFull(Exception):
    """As many requests wait as may."""


class Engine:
    """Runs jobs on the model that ``load`` returns; ``report`` gets one line for each event.

    ``on_finished`` is called after each job with its counts. ``failure`` is set when loading failed, or when
    the thread that serves the queue came to an end: then ``model`` is None again.
    """

    def __init__(
        self,
        load: Callable[[], Model],
        max_queue: int,
        report: Callable[[str], None],
        on_finished: Callable[[Job], None],
    ) -> None:
        self._load = load
        self._max_queue = max_queue
        self._report = report
        self._on_finished = on_finished
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self.running: Job | None = None
        self.model: Model | None = None
        self.failure: str | None = None

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def start(self, on_failure: Callable[[], None]) -> None:
        """Start the thread; ``on_failure`` is called on it when ``failure`` is set."""
        threading.Thread(target=self._serve, args=(on_failure,), name="engine", daemon=True).start()

    def submit(self, job: Job) -> None:
        """Queue ``job``; ``QueueFull`` when one runs and ``max_queue`` wait already."""
        with self._changed:
            if len(self._waiting) + (self.running is not None) > self._max_queue:
                raise QueueFull
            self._waiting.append(job)
            self._changed.notify()

    def cancel(self, job: Job) -> None:
        """Free the place of ``job``: at once when it waits, after the current pass when it runs."""
        with self._changed:
            job.cancelled = True
            if job in self._waiting:
                self._waiting.remove(job)

    def _serve(self, on_failure: Callable[[], None]) -> None:
        try:
            model = self._load()
            self._warm_up(model)
        except StartError as error:
            self.failure = str(error)
            on_failure()
            return
        except Exception:
            self.failure = f"the model could not be loaded\n{traceback.format_exc()}"
            on_failure()
            return
        self.model = model
        try:
            while True:
                self._serve_one(model)
        except Exception:
            self.model = None
            self.failure = f"the queue is not served any more\n{traceback.format_exc()}"
            on_failure()

    def _serve_one(self, model: Model) -> None:
        with self._changed:
            self.running = None
            self._changed.wait_for(lambda: self._waiting)
            job = self.running = self._waiting.popleft()
        try:
            self._run(model, job)
        except Exception:
            job.emit(Delta("", "error"))
            self._report(f"a generation failed\n{traceback.format_exc()}")
        self._on_finished(job)

    def _warm_up(self, model: Model) -> None:
        began = time.monotonic()
        prompt = model.codec.encode_chat([{"role": "user", "content": "Hello"}])
        passes = model.generator.generate(prompt, Sampling(), Counts())
        tokens = [token for _ in range(4) for token in next(passes)]
        self._report(f"ready: warm-up of {len(tokens)} tokens in {time.monotonic() - began:.2f} s")

    def _run(self, model: Model, job: Job) -> None:
        stream = TextStream(model.codec.tokenizer, job.stops)
        for tokens in model.generator.generate(job.prompt, job.sampling, job.counts):
            if job.cancelled:
                return
            text = ""
            for token in tokens:
                job.completion_tokens += 1
                if token in model.eos_ids and not job.ignore_eos:
                    job.emit(Delta(text + stream.finish(), "stop"))
                    return
                text += stream.push(token)
                if stream.stopped:
                    job.emit(Delta(text, "stop"))
                    return
                if job.completion_tokens == job.max_tokens:
                    job.emit(Delta(text + stream.finish(), "length"))
                    return
            if text:
                job.emit(Delta(text))
