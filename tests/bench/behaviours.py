"""What the scheduled server sends: a script of bytes with their times, for good servers and bad ones. Pure.

A request chooses by its model's name, written as a query: ``steady?ttft=0.1&itl=0.02&tokens=64``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import parse_qsl

End = Literal["finish", "close", "reset", "hang"]
"""``close``: the connection ends inside the answer. ``hang``: it stays open and says nothing more."""
Answer = dict[str, Any]


@dataclass(frozen=True)
class Schedule:
    """Times in seconds from the request's arrival; ``tokens`` at most, fewer where the request asks for fewer.

    ``after``: events before something bad happens. ``limit``: words of a prompt that fit. ``first``: how many requests
    of this model's name are refused with ``code`` before one is answered; 0 for all.
    """

    kind: str = "steady"
    ttft: float = 0.05
    itl: float = 0.01
    tokens: int = 32
    per_event: int = 1
    after: int = 3
    code: int = 429
    factor: float = 2.0
    limit: int = 100
    first: int = 0

    @classmethod
    def parse(cls, model: str) -> Schedule | None:
        """The schedule that a model's name stands for; None where it is none of them."""
        kind, _, query = model.partition("?")
        standard = {**vars(cls()), "kind": kind}
        given = {name: type(standard[name])(value) for name, value in parse_qsl(query)}
        return cls(**{**standard, **given}) if kind in SCRIPTS else None


@dataclass
class Script:
    """One answer: its status, what is sent when (bytes, and the tokens in them), and how it ends."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    sends: list[tuple[float, bytes, int]] = field(default_factory=list)
    end: End = "finish"


def script(schedule: Schedule, request: Answer, refused_before: int) -> Script:
    """What is sent for ``request`` (a body of the OpenAI API); ``refused_before``: as :class:`Schedule` counts them."""
    asked = request.get("max_tokens") or request.get("max_completion_tokens") or schedule.tokens
    schedule = replace(schedule, tokens=min(schedule.tokens, asked))
    if schedule.first and refused_before >= schedule.first:
        schedule = replace(schedule, kind="steady")
    return SCRIPTS[schedule.kind](schedule, request)


def _steady(schedule: Schedule, request: Answer) -> Script:
    return Script(sends=[*_body(schedule, request), *_closing(schedule, request)])


def _body(schedule: Schedule, request: Answer) -> list[tuple[float, bytes, int]]:
    """The role at once, as real servers send it (no token came yet), then the tokens on time."""
    sends = [(0.0, _event(request, ""), 0)]
    for index, start in enumerate(range(0, schedule.tokens, schedule.per_event)):
        count = min(schedule.per_event, schedule.tokens - start)
        text = "".join(f"word{number} " for number in range(start, start + count))
        sends.append((schedule.ttft + index * schedule.itl, _event(request, text), count))
    return sends


def _closing(
    schedule: Schedule, request: Answer, *, finish: str = "length", counted: int | None = None
) -> list[tuple[float, bytes, int]]:
    """The reason of the end, the usage and ``[DONE]``, together with the last token."""
    last = _events(schedule) - 1
    usage = _usage(schedule, request, schedule.tokens if counted is None else counted)
    text = _event(request, "", finish) + _data({**_shell(request), "choices": [], "usage": usage}) + _DONE
    return [(schedule.ttft + max(0, last) * schedule.itl, text, 0)]


def _events(schedule: Schedule) -> int:
    return -(-schedule.tokens // schedule.per_event)


def _usage(schedule: Schedule, request: Answer, completion: int) -> Answer:
    """With the counts of drafting where an event brings more than one token."""
    prompt = _words(request)
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if schedule.per_event > 1:
        passes = _events(schedule)
        usage |= {"verify_passes": passes, "accepted_tokens": schedule.tokens - passes}
    return usage


def _words(request: Answer) -> int:
    texts = [str(message.get("content", "")) for message in request.get("messages", [])]
    return len(" ".join([*texts, str(request.get("prompt", ""))]).split())


def _shell(request: Answer) -> Answer:
    kind = "chat.completion.chunk" if "messages" in request else "text_completion"
    return {"id": "scheduled", "object": kind, "created": 0, "model": request.get("model")}


def _event(request: Answer, text: str, finish: str | None = None) -> bytes:
    content = {"delta": {"role": "assistant", "content": text}} if "messages" in request else {"text": text}
    choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish}
    return _data({**_shell(request), "choices": [choice]})


def _data(content: Answer) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


_DONE = b"data: [DONE]\n\n"


def _cut(end: End) -> Callable[[Schedule, Answer], Script]:
    """Ends (or falls silent) after ``after`` events."""
    return lambda schedule, request: Script(sends=_body(schedule, request)[: 1 + schedule.after], end=end)


def _nothing(end: End) -> Callable[[Schedule, Answer], Script]:
    """200, and not one event."""
    return lambda schedule, request: Script(end=end)


def _only_done(schedule: Schedule, request: Answer) -> Script:
    return Script(sends=[(schedule.ttft, _DONE, 0)])


def _zero(schedule: Schedule, request: Answer) -> Script:
    """An orderly answer of no tokens."""
    none = replace(schedule, tokens=0)
    return Script(sends=[*_body(none, request), *_closing(none, request, finish="stop")])


def _early(schedule: Schedule, request: Answer) -> Script:
    """Says that it is done after ``after`` tokens."""
    return _steady_with(
        replace(schedule, tokens=min(schedule.after, schedule.tokens)), request, finish="stop"
    )


def _steady_with(schedule: Schedule, request: Answer, **closing: Any) -> Script:
    return Script(sends=[*_body(schedule, request), *_closing(schedule, request, **closing)])


def _miscount(schedule: Schedule, request: Answer) -> Script:
    """A usage that says ``factor`` times the tokens that came."""
    return _steady_with(schedule, request, counted=round(schedule.tokens * schedule.factor))


def _no_usage(schedule: Schedule, request: Answer) -> Script:
    last = schedule.ttft + (_events(schedule) - 1) * schedule.itl
    return Script(sends=[*_body(schedule, request), (last, _event(request, "", "length") + _DONE, 0)])


def _no_done(schedule: Schedule, request: Answer) -> Script:
    """All is there but ``[DONE]``."""
    found = _steady(schedule, request)
    at, text, count = found.sends[-1]
    return replace(found, sends=[*found.sends[:-1], (at, text.removesuffix(_DONE), count)])


def _repeats(schedule: Schedule, request: Answer) -> Script:
    """The same three words over and over."""
    sends = [
        (at, _event(request, f"word{index % 3} ") if count else text, count)
        for index, (at, text, count) in enumerate(_body(schedule, request))
    ]
    return Script(sends=[*sends, *_closing(schedule, request)])


def _duplicates(schedule: Schedule, request: Answer) -> Script:
    """Every event twice; the usage counts it once."""
    sends = [(at, text * (2 if count else 1), count) for at, text, count in _body(schedule, request)]
    return Script(sends=[*sends, *_closing(schedule, request)])


def _inserted(bad: bytes) -> Callable[[Schedule, Answer], Script]:
    """``bad`` after ``after`` events, and the rest as if nothing had been."""

    def build(schedule: Schedule, request: Answer) -> Script:
        sends = _steady(schedule, request).sends
        place = min(1 + schedule.after, len(sends) - 1)
        return Script(sends=[*sends[:place], (sends[place][0], bad, 0), *sends[place:]])

    return build


def _error_event(schedule: Schedule, request: Answer) -> Script:
    """An error in the stream, and its end."""
    error = _data({"error": {"message": "The generation failed.", "type": "server_error"}})
    sends = _body(schedule, request)[: 1 + schedule.after]
    return Script(sends=[*sends, (sends[-1][0], error + _DONE, 0)])


def _respelled(change: Callable[[bytes], bytes]) -> Callable[[Schedule, Answer], Script]:
    """A steady stream that is valid in another spelling."""

    def build(schedule: Schedule, request: Answer) -> Script:
        found = _steady(schedule, request)
        return replace(found, sends=[(at, change(text), count) for at, text, count in found.sends])

    return build


def _pieces(schedule: Schedule, request: Answer) -> Script:
    """Each event in two TCP segments, cut in the middle of its JSON; its second half is the one on time."""
    sends = []
    for at, text, count in _steady(schedule, request).sends:
        sends += [(max(0.0, at - 0.002), text[: len(text) // 2], 0), (at, text[len(text) // 2 :], count)]
    return Script(sends=sends)


def _json_body(status: int, body: Answer, headers: dict[str, str] | None = None) -> Script:
    text = json.dumps(body).encode()
    return Script(status, {"Content-Type": "application/json", **(headers or {})}, [(0.0, text, 0)])


def _status(schedule: Schedule, request: Answer) -> Script:
    """Refused with HTTP ``code``."""
    headers = {"Retry-After": "1"} if schedule.code in (429, 503) else {}
    return _json_body(schedule.code, _error(f"refused with {schedule.code}", None), headers)


def _context(schedule: Schedule, request: Answer) -> Script:
    """A prompt of more than ``limit`` words is refused as one over the context."""
    words = _words(request)
    if words <= schedule.limit:
        return _steady(schedule, request)
    message = f"This model's maximum context length is {schedule.limit} tokens; the messages have {words}."
    return _json_body(400, _error(message, "context_length_exceeded"))


def _error(message: str, code: str | None) -> Answer:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def _not_sse(schedule: Schedule, request: Answer) -> Script:
    """A whole answer where a stream was asked for."""
    return _json_body(200, whole(schedule, request))


def whole(schedule: Schedule, request: Answer) -> Answer:
    """The answer that is not streamed."""
    text = "".join(f"word{number} " for number in range(schedule.tokens))
    content = {"message": {"role": "assistant", "content": text}} if "messages" in request else {"text": text}
    choice = {"index": 0, **content, "finish_reason": "length"}
    return {**_shell(request), "choices": [choice], "usage": _usage(schedule, request, schedule.tokens)}


def _web_page(schedule: Schedule, request: Answer) -> Script:
    """What a proxy says, with status 200."""
    return Script(headers={"Content-Type": "text/html"}, sends=[(0.0, b"<html>Bad gateway</html>", 0)])


SCRIPTS: dict[str, Callable[[Schedule, Answer], Script]] = {
    "steady": _steady,
    "cut": _cut("close"),
    "reset": _cut("reset"),
    "stalls": _cut("hang"),
    "ends": _cut("finish"),
    "silent": _nothing("hang"),
    "empty": _nothing("finish"),
    "only-done": _only_done,
    "zero": _zero,
    "early": _early,
    "miscount": _miscount,
    "no-usage": _no_usage,
    "no-done": _no_done,
    "repeats": _repeats,
    "duplicates": _duplicates,
    "broken-sse": _inserted(b'data: {"choices": [{"delta": {"cont\n\n'),
    "not-an-object": _inserted(b"data: [1, 2]\n\n"),
    "no-choices": _inserted(b'data: {"unexpected": true}\n\n'),
    "bad-utf8": _inserted(b"data: \xff\xfe\xc3\x28\n\n"),
    "error-event": _error_event,
    "comments": _inserted(b": keep-alive\n\nevent: ping\nid: 7\nretry: 10\n\n"),
    "crlf": _respelled(lambda text: text.replace(b"\n", b"\r\n")),
    "no-space": _respelled(lambda text: text.replace(b"data: ", b"data:")),
    "pieces": _pieces,
    "status": _status,
    "context": _context,
    "not-sse": _not_sse,
    "web-page": _web_page,
}
