"""Answers in OpenAI's shapes, whole or in events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleetctl.standalone.protocol import Ask, ChatAsk

_COMPLETION_TOKENS = 16


@dataclass(frozen=True)
class Shape:
    """How one answer is worded: ``chat`` for ``/v1/chat/completions``, else for ``/v1/completions``."""

    chat: bool
    model: str
    number: str
    created: int

    def opening(self) -> list[dict[str, Any]]:
        """The events before the first text."""
        if not self.chat:
            return []
        return [self._body("chat.completion.chunk", {"delta": {"role": "assistant", "content": ""}}, None)]

    def chunk(self, text: str, finish: str | None) -> dict[str, Any]:
        """An event with a piece of text, or with the reason why the text ended."""
        if self.chat:
            return self._body("chat.completion.chunk", {"delta": {"content": text} if text else {}}, finish)
        return self._body("text_completion", {"text": text}, finish)

    def last(self, usage: dict[str, int]) -> dict[str, Any]:
        """The event that carries the usage."""
        return {**self.chunk("", None), "choices": [], "usage": usage}

    def whole(self, text: str, finish: str | None, usage: dict[str, int]) -> dict[str, Any]:
        """The answer without events."""
        if self.chat:
            body = self._body("chat.completion", {"message": {"role": "assistant", "content": text}}, finish)
        else:
            body = self._body("text_completion", {"text": text}, finish)
        return {**body, "usage": usage}

    def _body(self, kind: str, content: dict[str, Any], finish: str | None) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.number}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, **content, "logprobs": None, "finish_reason": finish}],
        }


def wanted(ask: Ask, room: int) -> tuple[int, str]:
    """How many tokens are asked for, and the field that says so; ``room`` is what fits behind the prompt."""
    if not isinstance(ask, ChatAsk):
        return (min(_COMPLETION_TOKENS, room) if ask.max_tokens is None else ask.max_tokens), "max_tokens"
    if ask.max_completion_tokens is not None:
        return ask.max_completion_tokens, "max_completion_tokens"
    return (room if ask.max_tokens is None else ask.max_tokens), "max_tokens"
