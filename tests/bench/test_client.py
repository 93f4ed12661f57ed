"""The client against servers that do bad things: each is a record with its error or warning, and never raises."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from fleetctl.bench import client as client_module
from fleetctl.bench.client import Ask, Client, Limits
from fleetctl.bench.record import Request
from fleetctl.errors import FleetError
from tests.bench.scheduled import running

SHORT = "ttft=0.01&itl=0.001"
MESSAGES = [{"role": "user", "content": "a few words"}]
IDLE = {"timeout": 5.0, "stalls": 5.0}
"""Seconds of silence that end a request where silence is the fault: what comes before it may come late."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running() as url:
        yield url


def ask(
    url: str, model: str, max_tokens: int = 32, limits: Limits | None = None, **fields: object
) -> Request:
    async def one() -> Request:
        async with Client(url, model, limits or Limits(idle=60, total=120)) as client:
            return await client.measure(Ask("p", MESSAGES, max_tokens, **fields))  # type: ignore[arg-type]

    return asyncio.run(one())


def test_an_answer_is_kept_with_its_times(url: str) -> None:
    request = ask(url, "steady?ttft=0.1&itl=0.02&tokens=12&per_event=3", 12)
    assert request.error is None and request.warnings == []
    assert request.tokens == 12 and request.tokens_from == "usage" and request.finish == "length"
    assert [tokens for _, tokens in request.events] == [3, 3, 3, 3]
    times = [at for at, _ in request.events]
    assert times == sorted(times)
    assert request.ttft_s is not None and 0.1 <= request.ttft_s == times[0] <= times[-1] <= request.end_s
    assert times[-1] >= 0.16
    assert request.accepted is not None and request.accepted.length == 3
    assert request.prompt_tokens == 3 and request.text.startswith("word0 word1 ")


@pytest.mark.parametrize(
    ("model", "kind", "said"),
    [
        (f"cut?{SHORT}", "cut", "connection was cut"),
        (f"reset?{SHORT}", "cut", "connection was cut"),
        (f"ends?{SHORT}", "cut", "ended after 3 events"),
        (f"error-event?{SHORT}", "cut", "The generation failed"),
        (f"stalls?{SHORT}", "timeout", "after the first tokens"),
        ("silent", "timeout", "nothing came for"),
        ("empty", "empty", "without an event"),
        ("only-done", "empty", "no text"),
        ("zero", "empty", "no text"),
        (f"broken-sse?{SHORT}", "broken-sse", "no chunk"),
        (f"not-an-object?{SHORT}", "broken-sse", "no chunk"),
        (f"no-choices?{SHORT}", "broken-sse", "without choices"),
        (f"bad-utf8?{SHORT}", "broken-sse", "no chunk"),
        ("web-page", "broken-sse", "text/html"),
        (f"miscount?{SHORT}", "usage", "at most 32 were asked for"),
        (f"miscount?{SHORT}&factor=0.5", "usage", "text came in 32 events"),
        (f"repeats?{SHORT}", "repeats", "again and again"),
        (f"duplicates?{SHORT}", "repeats", "twice"),
        (f"steady?{SHORT}&tokens=9", "early", "9 of 32 tokens"),
        ("status?code=429", "http", "HTTP 429: refused with 429"),
        ("status?code=500", "http", "HTTP 500"),
        ("context?limit=2", "context", "maximum context length"),
        ("gpt", "http", "HTTP 404"),
    ],
)
def test_what_goes_wrong_is_named(url: str, model: str, kind: str, said: str) -> None:
    request = ask(url, model, limits=Limits(idle=IDLE.get(kind, 60), total=120))
    assert request.error is not None
    assert (request.error.kind, said in request.error.what) == (kind, True), request.error
    assert not request.counts
    if kind == "http":
        assert request.error.status == int(request.error.what.split()[1].rstrip(":"))


@pytest.mark.parametrize("kind", ["cut", "stalls", "broken-sse"])
def test_what_came_before_a_failure_is_kept(url: str, kind: str) -> None:
    request = ask(url, f"{kind}?{SHORT}", limits=Limits(idle=IDLE.get(kind, 60)))
    assert request.text == "word0 word1 word2 "
    assert request.ttft_s is not None and len(request.events) == 3 == request.tokens


@pytest.mark.parametrize("kind", ["comments", "crlf", "no-space", "pieces"])
def test_other_spellings_of_a_stream_are_read(url: str, kind: str) -> None:
    request = ask(url, f"{kind}?{SHORT}")
    assert request.error is None and request.warnings == []
    assert request.tokens == 32 == sum(tokens for _, tokens in request.events)


@pytest.mark.parametrize(
    ("model", "max_tokens", "source", "said"),
    [
        (f"no-usage?{SHORT}", 32, "events", "no usage in the answer"),
        (f"no-done?{SHORT}", 32, "usage", "no [DONE]"),
        (f"early?{SHORT}", 256, "usage", "ends after 3 of 256 tokens"),
        ("not-sse", 32, "usage", "as a whole"),
    ],
)
def test_what_is_only_odd_is_a_warning(url: str, model: str, max_tokens: int, source: str, said: str) -> None:
    request = ask(url, model, max_tokens)
    assert request.error is None and request.counts
    assert request.tokens_from == source and any(said in one for one in request.warnings), request.warnings
    assert (request.ttft_s is None) == (model == "not-sse")


def test_a_server_that_is_not_there_and_one_that_never_ends(url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        refused = ask(f"http://127.0.0.1:{taken.getsockname()[1]}", "steady")
    assert refused.error is not None and refused.error.kind == "refused" and refused.ttft_s is None
    slow = ask(url, "steady?itl=0.2&tokens=1000", 1000, Limits(idle=60, total=0.6))
    assert slow.error is not None and (slow.error.kind, "no end" in slow.error.what) == ("timeout", True)
    assert 0.5 <= slow.end_s < 60


def test_a_text_completion(url: str) -> None:
    request = ask(url, f"steady?{SHORT}", 8, endpoint="completions")
    assert request.error is None and request.tokens == 8


def test_no_request_begins_after_its_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(client_module, "time", SimpleNamespace(perf_counter=lambda: now))

    def asks() -> Iterator[Ask]:
        nonlocal now
        for number in range(10_000):
            now += 0.1
            yield Ask("p", MESSAGES, 4, repeat=number)

    async def run() -> list[Request]:
        async with Client(url, f"steady?{SHORT}") as client:
            return await client.load(asks(), 2, seconds=0.55)

    requests = asyncio.run(run())
    assert sorted(one.repeat for one in requests) == list(range(6))
    assert all(one.error is None for one in requests)


def test_each_request_is_told_as_it_ends_and_the_next_turn_follows(url: str) -> None:
    told: list[str] = []

    def second(request: Request) -> Ask:
        history = [*MESSAGES, {"role": "assistant", "content": request.text}]
        return Ask("second", history, 4)

    async def run() -> None:
        async with Client(url, f"steady?{SHORT}") as client:
            await client.load(
                [Ask("first", MESSAGES, 4, follow=second)], 1, on_request=lambda one: told.append(one.prompt)
            )

    asyncio.run(run())
    assert told == ["first", "second"]


def test_what_its_listener_raises_ends_the_loop_as_itself(url: str) -> None:
    told: list[str] = []

    def full(one: Request) -> None:
        told.append(one.prompt)
        raise FleetError("a record could not be written")

    async def run() -> None:
        async with Client(url, f"steady?{SHORT}") as client:
            await client.load([Ask(str(number), MESSAGES, 4) for number in range(40)], 2, on_request=full)

    with pytest.raises(FleetError, match="could not be written"):
        asyncio.run(run())
    assert len(told) <= 2
