"""What a streamed answer says, chunk by chunk, and whether what it says can be true. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from fleetctl.bench.record import Accepted, Failure, Tree
from fleetctl.bench.sse import BrokenStream, shown

DONE = b"[DONE]"
BYTES_A_TOKEN = 4
SPECIAL_TOKENS = 8
"""Tokens of an answer that may show no text at all: its end, a thought's marks."""
LOOP = 64
"""A tail of so many characters that only repeats is a loop."""
LONGEST_UNIT = 200
SHORT_UNIT = 32
EARLY = 32
"""An answer of less than this part of what it may have, which says that it is done, is named."""
CONTEXT_WORDS = (
    "context length",
    "context_length",
    "maximum context",
    "exceed the context",
    "room for an answer",
)


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """One event's JSON, or a whole answer's; what is not read here is not looked at."""

    choices: list[_Choice] | msgspec.UnsetType = msgspec.UNSET
    usage: dict[str, Any] | None = None
    error: Any = None
    trees: list[Tree] | None = None


_CHUNK = msgspec.json.Decoder(Chunk)


def read_chunk(data: bytes) -> Chunk:
    """An event's data; :class:`BrokenStream` where it is no chunk of an answer."""
    try:
        chunk = _CHUNK.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenStream(f"an event that is no chunk of an answer ({error}): {shown(data)}") from None
    if chunk.choices is msgspec.UNSET and chunk.usage is None and chunk.error is None:
        raise BrokenStream(f"an event without choices: {shown(data)}")
    return chunk


@dataclass
class Answer:
    """What came so far. ``pieces``: seconds since the request, text, and the tokens so far where the chunk says."""

    pieces: list[tuple[float, str, int | None]] = field(default_factory=list)
    finish: str | None = None
    usage: dict[str, Any] | None = None
    trees: list[Tree] | None = None
    done: bool = False
    said: str | None = None
    """The error that the server sent in the stream."""

    def take(self, at: float, chunk: Chunk) -> None:
        """Add a chunk that came ``at`` seconds after the request was sent."""
        if chunk.error is not None and self.said is None:
            self.said = _error_words(chunk.error)
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.trees is not None:
            self.trees = chunk.trees
        for choice in chunk.choices or []:
            if choice.index:
                continue
            if text := _text(choice):
                self.pieces.append((at, text, _whole(chunk.usage, "completion_tokens")))
            self.finish = choice.finish_reason or self.finish

    @property
    def text(self) -> str:
        """All text."""
        return "".join(text for _, text, _ in self.pieces)

    def tokens(self) -> tuple[int, str]:
        """Tokens of the answer and where the number is from: ``usage``, ``events`` or ``text``."""
        counted = _whole(self.usage, "completion_tokens")
        if counted is not None and counted >= 0:
            return counted, "usage"
        if len(self.pieces) == 1 and len(self.text.encode()) > 8 * BYTES_A_TOKEN:
            return max(1, round(len(self.text.encode()) / BYTES_A_TOKEN)), "text"
        return len(self.pieces), "events"

    def events(self) -> list[tuple[float, int]]:
        """Seconds and tokens of each event with text.

        Where only their sum is known it is spread by the text's length.
        """
        total, _ = self.tokens()
        known = [count for _, _, count in self.pieces]
        if known and None not in known and known[-1] == total:
            counts = [count or 0 for count in known]
            steps = [after - before for before, after in zip([0, *counts], counts, strict=False)]
            if all(step >= 0 for step in steps):
                return [(at, step) for (at, _, _), step in zip(self.pieces, steps, strict=True)]
        shares = spread(total, [len(text.encode()) for _, text, _ in self.pieces])
        return [(at, share) for (at, _, _), share in zip(self.pieces, shares, strict=True)]

    def accepted(self) -> Accepted | None:
        """What drafting brought, where the usage says."""
        passes, tokens = _whole(self.usage, "verify_passes"), _whole(self.usage, "accepted_tokens")
        if passes is None or tokens is None or passes < 0 or tokens < 0:
            return None
        return Accepted(passes, tokens)

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens of the prompt, where the usage says."""
        count = _whole(self.usage, "prompt_tokens")
        return count if count is None or count >= 0 else None

    def judge(self, max_tokens: int) -> tuple[Failure | None, list[str]]:
        """What is wrong with an answer that came to its end, and what is only odd about it."""
        tokens, source = self.tokens()
        text = self.text
        warnings = (
            [] if source == "usage" else [f"no usage in the answer: tokens are counted by its {source}"]
        )
        if not text:
            counted = f", though its usage counts {tokens} tokens" if source == "usage" and tokens else ""
            return Failure("empty", None, f"the answer has no text{counted}"), warnings
        if self._doubled():
            return Failure("repeats", None, "every event came twice"), warnings
        if self.usage is not None and (wrong := self._wrong_count(text, max_tokens)):
            return Failure("usage", None, wrong), warnings
        if self.finish is None:
            return Failure("early", None, "the answer ends without a finish_reason"), warnings
        if self.finish == "length" and source == "usage" and tokens < max_tokens:
            what = f"it ends for its length at {tokens} of {max_tokens} tokens; is the model's context full?"
            return Failure("early", None, what), warnings
        if self.finish == "stop" and tokens * EARLY <= max_tokens:
            warnings.append(f"the answer ends after {tokens} of {max_tokens} tokens")
        if loop := looped(text):
            unit, share = loop
            if share > 0.9 and len(unit) <= SHORT_UNIT and tokens >= 16:
                return Failure(
                    "repeats", None, f"the answer is nothing but {unit!r} again and again"
                ), warnings
            warnings.append(f"the last {share:.0%} of the answer only repeat {unit[:40]!r}")
        return None, warnings

    def _doubled(self) -> bool:
        texts = [text for _, text, _ in self.pieces]
        return len(texts) >= 8 and texts[::2] == texts[1::2] and len(set(texts)) > 2

    def _wrong_count(self, text: str, max_tokens: int) -> str | None:
        tokens = _whole(self.usage, "completion_tokens")
        if tokens is None or tokens < 0:
            return f"the usage has no count of the answer's tokens: {str(self.usage)[:200]}"
        if tokens > max_tokens:
            return f"the usage counts {tokens} tokens, and at most {max_tokens} were asked for"
        if tokens < len(self.pieces):
            return f"the usage counts {tokens} tokens, and text came in {len(self.pieces)} events"
        most = len(text.encode()) + SPECIAL_TOKENS
        if tokens > most:
            return f"the usage counts {tokens} tokens for a text of {len(text.encode())} bytes"
        return None


def spread(total: int, weights: list[int]) -> list[int]:
    """``total`` in whole shares by weight, one at least for each where there are enough."""
    if not weights:
        return []
    least = 1 if total >= len(weights) else 0
    left, whole = total - least * len(weights), sum(weights) or 1
    shares, given, seen = [], 0, 0
    for weight in weights:
        seen += weight
        upto = round(left * seen / whole)
        shares.append(least + upto - given)
        given = upto
    return shares


def looped(text: str) -> tuple[str, float] | None:
    """The unit that the end of ``text`` repeats, and the share of the text that does so; None where it does not."""
    for size in range(1, min(LONGEST_UNIT, len(text) // 3) + 1):
        if text[-size:] != text[-2 * size : -size]:
            continue
        start = len(text) - size
        while start > 0 and text[start - 1] == text[start - 1 + size]:
            start -= 1
        length = len(text) - start
        if length >= max(LOOP, 3 * size):
            return text[-size:], length / len(text)
    return None


def refusal(status: int, body: bytes) -> Failure:
    """The failure of an answer with an HTTP status of its own."""
    words = body.decode("utf-8", "replace")
    try:
        data = msgspec.json.decode(body)
        words = _error_words(data["error"] if isinstance(data, dict) and "error" in data else data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    is_context = status in (400, 413, 422) and any(word in words.lower() for word in CONTEXT_WORDS)
    return Failure("context" if is_context else "http", status, f"HTTP {status}: {words[:500].strip()}")


def _error_words(error: Any) -> str:
    if isinstance(error, dict):
        words = " ".join(str(error[key]) for key in ("code", "message") if error.get(key))
        return words or str(error)[:500]
    return str(error)[:500]


def _text(choice: _Choice) -> str:
    if choice.text:
        return choice.text
    said = choice.delta or choice.message
    if said is None:
        return ""
    text = "".join(part for part in (said.reasoning_content or said.reasoning, said.content) if part)
    for call in said.tool_calls or []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            text += "".join(str(function[key]) for key in ("name", "arguments") if function.get(key))
    return text


def _whole(usage: dict[str, Any] | None, name: str) -> int | None:
    """A whole number of the usage; None where it has none."""
    value = (usage or {}).get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
