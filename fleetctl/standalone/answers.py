"""The bodies of answers and of stream events, as the OpenAI API has them, with the drafting's own counts."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from typing import Any

from fleetctl.standalone.contract import Step
from fleetctl.standalone.engine import Job
from fleetctl.standalone.text import TextCodec


def usage(job: Job) -> dict[str, int]:
    """The usual counts and ``drafted_tokens``, ``accepted_tokens`` and ``verify_passes``.

    Accepted tokens are counted over whole passes: the last may have confirmed more than the answer shows.
    """
    return {
        "prompt_tokens": len(job.prompt),
        "completion_tokens": job.completion_tokens,
        "total_tokens": len(job.prompt) + job.completion_tokens,
        "drafted_tokens": job.counts.drafted,
        "accepted_tokens": job.counts.accepted,
        "verify_passes": job.counts.verify_passes,
    }


def tree(number: int, step: Step, codec: TextCodec) -> dict[str, Any]:
    """The drafted tree of verify pass ``number`` with its tokens as text; docs/bench.md says what the fields are."""
    return {
        "step": number,
        "tokens": [codec.piece(token) for token in step.tokens],
        "parents": step.parents,
        "probs": step.probs and [round(prob, 6) for prob in step.probs],
        "accepted": step.accepted,
        "next": codec.piece(step.next_token),
    }


class Answer(ABC):
    """One answer's bodies; the subclasses are the two endpoints."""

    prefix: str
    whole_object: str
    chunk_object: str

    def __init__(self, model: str, codec: TextCodec) -> None:
        self._model = model
        self._codec = codec
        self._id = f"{self.prefix}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }

    def _counts(self, job: Job) -> dict[str, Any]:
        """The usage, and beside it the ``trees`` that were asked for."""
        if not job.counts.describe:
            return {"usage": usage(job)}
        trees = [tree(number, step, self._codec) for number, step in enumerate(job.counts.steps)]
        return {"usage": usage(job), "trees": trees}

    def whole(self, text: str, finish_reason: str, job: Job) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        choice = {"index": 0, **self._text(text), "logprobs": None, "finish_reason": finish_reason}
        return {**self._body(self.whole_object, [choice]), **self._counts(job)}

    def piece(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        """A stream's event with new text, or with the reason of its end."""
        choice = {"index": 0, **self._delta(text), "logprobs": None, "finish_reason": finish_reason}
        return self._body(self.chunk_object, [choice])

    def last(self, job: Job) -> dict[str, Any]:
        """A stream's closing event with its usage."""
        return {**self._body(self.chunk_object, []), **self._counts(job)}

    @abstractmethod
    def _text(self, text: str) -> dict[str, Any]: ...

    @abstractmethod
    def _delta(self, text: str) -> dict[str, Any]: ...


class CompletionAnswer(Answer):
    """Answers of ``/v1/completions``."""

    prefix = "cmpl"
    whole_object = chunk_object = "text_completion"

    def _text(self, text: str) -> dict[str, Any]:
        return {"text": text}

    _delta = _text


class ChatAnswer(Answer):
    """Answers of ``/v1/chat/completions``; the first event names the role."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, model: str, codec: TextCodec) -> None:
        super().__init__(model, codec)
        self._role: dict[str, str] = {"role": "assistant"}

    def _text(self, text: str) -> dict[str, Any]:
        return {"message": {**self._role, "content": text}}

    def _delta(self, text: str) -> dict[str, Any]:
        role, self._role = self._role, {}
        return {"delta": {**role, "content": text}} if text or role else {"delta": {}}
