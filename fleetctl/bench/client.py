"""A client that measures: streams answers of an OpenAI-compatible server and keeps what came when.

Nothing that a server does raises out of here: a request that fails is a record with its ``error``.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, cast

import httpx

from fleetctl.bench.answer import DONE, Answer, read_chunk, refusal
from fleetctl.bench.reach import bearer
from fleetctl.bench.record import Failure, Request
from fleetctl.bench.sse import BrokenStream, EventReader, shown

Endpoint = Literal["chat", "completions"]
PATHS: Mapping[Endpoint, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
BODY_SHOWN = 4096
CONNECT_S = 10.0
OnRequest = Callable[[Request], None]


@dataclass(frozen=True)
class Ask:
    """One request to make, and whose it is. ``trees``: describe the drafted trees of so many steps.

    ``messages``: ``{"role", "content"}`` each; ``completions`` takes the last one's words alone. ``follow``: what to
    ask next, once this is answered.
    """

    prompt: str
    messages: Sequence[Mapping[str, str]]
    max_tokens: int
    kind: str = "text"
    point: str = ""
    repeat: int = 1
    round: int = 1
    warmup: bool = False
    seed: int | None = None
    trees: int = 0
    endpoint: Endpoint = "chat"
    follow: Callable[[Request], Ask | None] | None = None

    def body(self, model: str) -> dict[str, Any]:
        """The request's body: greedy, streamed, with usage."""
        asked = (
            {"messages": list(self.messages)}
            if self.endpoint == "chat"
            else {"prompt": self.messages[-1]["content"]}
        )
        body = {
            "model": model,
            **asked,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.seed is not None:
            body["seed"] = self.seed
        if self.trees:
            body["trees"] = self.trees
        return body


@dataclass(frozen=True)
class Limits:
    """How long to wait for the next byte, and for a whole answer, in seconds."""

    idle: float = 120.0
    total: float = 900.0


@dataclass
class Client:
    """Requests to one server. ``origin``: the clock (``time.perf_counter``) that ``started_s`` counts from.

    ``socket``: a Unix socket that leads to the server, in place of the address in ``base_url``. ``key``: the API key
    that it asks for.
    """

    base_url: str
    model: str
    limits: Limits = field(default_factory=Limits)
    origin: float = field(default_factory=time.perf_counter)
    socket: str | None = None
    key: str = field(default="", repr=False)

    async def __aenter__(self) -> Self:
        self._idle: list[httpx.AsyncClient] = []
        self._open: list[httpx.AsyncClient] = []
        self._tls = ssl.create_default_context() if self.base_url.startswith("https:") else False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for lane in self._open:
            await lane.aclose()

    @contextmanager
    def _lane(self) -> Iterator[httpx.AsyncClient]:
        """One connection for one request at a time: a pool of many takes milliseconds to choose one of them."""
        if not self._idle:
            pool = httpx.Limits(max_connections=1, max_keepalive_connections=1)
            lane = httpx.AsyncClient(
                trust_env=False,
                transport=httpx.AsyncHTTPTransport(verify=self._tls, limits=pool, uds=self.socket),
                timeout=httpx.Timeout(self.limits.idle, connect=CONNECT_S, pool=None),
                headers={"Accept": "text/event-stream", "Accept-Encoding": "identity", **bearer(self.key)},
            )
            self._open.append(lane)
            self._idle.append(lane)
        lane = self._idle.pop()
        try:
            yield lane
        finally:
            self._idle.append(lane)

    async def measure(self, ask: Ask) -> Request:
        """Make one request and read its answer to the end."""
        answer, failure, warnings = Answer(), None, list[str]()
        clock = _Clock()
        try:
            async with asyncio.timeout(self.limits.total):
                failure = await self._stream(ask, answer, clock, warnings)
        except TimeoutError:
            failure = Failure("timeout", None, f"no end of the answer within {self.limits.total:g} s")
        except BrokenStream as error:
            failure = Failure("broken-sse", 200, str(error))
        except httpx.HTTPError as error:
            failure = _failure(error, self.limits, bool(answer.pieces))
        except (OSError, httpx.InvalidURL, ValueError) as error:
            failure = Failure("refused", None, repr(error))
        ended = clock.passed()
        return as_request(ask, answer, failure, warnings, clock.began - self.origin, ended)

    async def load(
        self,
        asks: Iterable[Ask],
        concurrency: int,
        *,
        seconds: float | None = None,
        on_request: OnRequest = lambda request: None,
    ) -> list[Request]:
        """A closed loop: ``concurrency`` requests at a time, in ``asks``' order, none begun after ``seconds``.

        Requests come back in the order in which they ended. What ``on_request`` raises ends the loop.
        """
        left: Iterator[Ask] = iter(asks)
        until = None if seconds is None else time.perf_counter() + seconds
        done: list[Request] = []

        async def work() -> None:
            while until is None or time.perf_counter() < until:
                ask = next(left, None)
                if ask is None:
                    return
                while ask is not None:
                    request = await self.measure(ask)
                    done.append(request)
                    on_request(request)
                    ask = ask.follow(request) if ask.follow else None

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return done

    async def _stream(self, ask: Ask, answer: Answer, clock: _Clock, warnings: list[str]) -> Failure | None:
        url = self.base_url.rstrip("/") + PATHS[ask.endpoint]
        traced = {"trace": clock.trace}
        with self._lane() as lane:
            async with lane.stream("POST", url, json=ask.body(self.model), extensions=traced) as response:
                return await self._answer(response, answer, clock, warnings)

    async def _answer(
        self, response: httpx.Response, answer: Answer, clock: _Clock, warnings: list[str]
    ) -> Failure | None:
        if response.status_code != 200:
            return refusal(response.status_code, await _beginning(response, BODY_SHOWN))
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.headers.get("content-encoding", "identity") != "identity":
            raise BrokenStream("the answer is compressed, though that was not asked for")
        if kind == "application/json":
            answer.take(clock.passed(), read_chunk(await response.aread()))
            answer.done = True
            warnings.append("the server sent the answer as a whole: no time to the first token is known")
            return _told(answer)
        if kind != "text/event-stream":
            raise BrokenStream(f"the answer is {kind or 'of no type'}, not text/event-stream")
        await _read_events(response, answer, clock)
        return _told(answer)


class _Clock:
    """Seconds since a request was sent: since its headers went out, on a connection that stands."""

    def __init__(self) -> None:
        self.began = time.perf_counter()

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """What httpcore tells of a request's steps."""
        if event == "http11.send_request_headers.started":
            self.began = time.perf_counter()

    def passed(self) -> float:
        """Seconds until now."""
        return time.perf_counter() - self.began


async def _read_events(response: httpx.Response, answer: Answer, clock: _Clock) -> None:
    reader = EventReader()
    async for piece in response.aiter_raw():
        at = round(clock.passed(), 6)
        for data in reader.feed(piece):
            if answer.done:
                raise BrokenStream(f"an event behind [DONE]: {shown(data)}")
            if data.strip() == DONE:
                answer.done = True
            else:
                answer.take(at, read_chunk(data))
    if reader.unfinished and not answer.done:
        answer.said = answer.said or f"the stream ended inside an event: {shown(reader.unfinished)}"


def _told(answer: Answer) -> Failure | None:
    if answer.said is not None:
        return Failure("cut", 200, answer.said)
    if not answer.done and answer.finish is None:
        if not answer.pieces:
            return Failure("empty", 200, "the stream ended without an event")
        return Failure("cut", 200, f"the stream ended after {len(answer.pieces)} events, without an end")
    return None


async def _beginning(response: httpx.Response, most: int) -> bytes:
    body = b""
    async for piece in response.aiter_raw():
        body += piece
        if len(body) >= most:
            break
    return body[:most]


def _failure(error: httpx.HTTPError, limits: Limits, began: bool) -> Failure:
    match error:
        case httpx.ConnectTimeout():
            return Failure("refused", None, f"no connection within {CONNECT_S:g} s")
        case httpx.ConnectError():
            return Failure("refused", None, f"no connection: {error}")
        case httpx.TimeoutException():
            after = " after the first tokens" if began else ""
            return Failure("timeout", None, f"nothing came for {limits.idle:g} s{after}")
        case _:
            return Failure("cut", None, f"the connection was cut: {error or type(error).__name__}")


def as_request(
    ask: Ask, answer: Answer, failure: Failure | None, warnings: list[str], started: float, ended: float
) -> Request:
    """An answer as its record; one that came without ``failure`` is judged by what it says. Times in seconds."""
    if failure is None:
        failure, odd = answer.judge(ask.max_tokens)
        warnings += odd
        if not answer.done:
            warnings.append("the stream has no [DONE]")
    tokens, source = answer.tokens()
    whole = len(answer.pieces) == 1 and any("as a whole" in one for one in warnings)
    return Request(
        point=ask.point,
        prompt=ask.prompt,
        prompt_kind=ask.kind,
        repeat=ask.repeat,
        round=ask.round,
        warmup=ask.warmup,
        started_s=round(started, 6),
        ttft_s=answer.pieces[0][0] if answer.pieces and not whole else None,
        end_s=round(ended, 6),
        events=answer.events(),
        tokens=tokens,
        tokens_from=cast("Literal['usage', 'events', 'text']", source),
        prompt_tokens=answer.prompt_tokens,
        text=answer.text,
        finish=answer.finish,
        usage=answer.usage,
        accepted=answer.accepted(),
        trees=answer.trees,
        error=failure,
        warnings=warnings,
    )


async def measure(base_url: str, model: str, prompt: str, max_tokens: int = 256, **ask: Any) -> Request:
    """One request of a user's ``prompt`` to the server at ``base_url``; further fields as of :class:`Ask`."""
    messages = [{"role": "user", "content": prompt}]
    async with Client(base_url, model) as client:
        return await client.measure(Ask(ask.pop("name", "prompt"), messages, max_tokens, **ask))


async def load(
    base_url: str, model: str, asks: Iterable[Ask], concurrency: int, seconds: float | None = None
) -> list[Request]:
    """A closed loop of ``asks`` against the server at ``base_url``; see :meth:`Client.load`."""
    async with Client(base_url, model) as client:
        return await client.load(asks, concurrency, seconds=seconds)
