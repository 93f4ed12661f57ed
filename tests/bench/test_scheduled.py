"""The scheduled server keeps its times and does each bad thing that it is asked for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.bench.behaviours import SCRIPTS
from tests.bench.scheduled import running


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running() as url:
        yield url


def _ask(url: str, model: str, words: int = 3, timeout: float = 60, **body: object) -> httpx.Response:
    messages = [{"role": "user", "content": "word " * words}]
    body = {"model": model, "messages": messages, "stream": True, **body}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=timeout, trust_env=False)


def _events(text: str) -> list[dict[str, object]]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_what_is_sent_leaves_on_time(url: str) -> None:
    httpx.get(f"{url}/sent", timeout=60)
    began = time.monotonic()
    answer = _ask(url, "steady?ttft=0.2&itl=0.05&tokens=9&per_event=2")
    assert time.monotonic() - began >= 0.4
    (sent,) = httpx.get(f"{url}/sent", timeout=60).json()
    assert [tokens for _, tokens in sent["events"]] == [2, 2, 2, 2, 1]
    for index, (at, _) in enumerate(sent["events"]):
        assert at >= 0.2 + index * 0.05
    usage = _events(answer.text)[-1]["usage"]
    assert usage == {
        "prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12, "verify_passes": 5, "accepted_tokens": 4,
    }  # fmt: skip


def test_requests_do_not_wait_for_each_other(url: str) -> None:
    limits = httpx.Limits(max_connections=8)
    asked = {"model": "steady?ttft=600", "prompt": "a", "stream": True}
    with httpx.Client(base_url=url, limits=limits, timeout=60, trust_env=False) as client:
        assert client.get("/metrics").text.startswith("fleetctl_requests_running 0\n")
        with (
            client.stream("POST", "/v1/completions", json=asked),
            client.stream("POST", "/v1/completions", json=asked),
        ):
            assert client.get("/metrics").text.startswith("fleetctl_requests_running 2\n")


@pytest.mark.parametrize(
    "kind", sorted(set(SCRIPTS) - {"stalls", "silent", "cut", "reset", "status", "context"})
)
def test_every_other_answer_ends_by_itself(url: str, kind: str) -> None:
    answer = _ask(url, f"{kind}?ttft=0.01&itl=0.001&tokens=8")
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("cut", httpx.RemoteProtocolError),
        ("reset", httpx.ReadError),
        ("stalls", httpx.ReadTimeout),
        ("silent", httpx.ReadTimeout),
    ],
)
def test_a_stream_that_does_not_end_well(url: str, kind: str, error: type[Exception]) -> None:
    silent = 1 if error is httpx.ReadTimeout else 60
    with pytest.raises(error):
        _ask(url, f"{kind}?ttft=0.01&itl=0.001&tokens=8", timeout=silent)


def test_what_each_kind_says(url: str) -> None:
    short = "ttft=0.01&itl=0.001&tokens=8"
    counted = {
        kind: _events(_ask(url, f"{kind}?{short}").text)[-1]["usage"]
        for kind in ("miscount", "early", "zero")
    }
    assert [usage["completion_tokens"] for usage in counted.values()] == [16, 3, 0]  # type: ignore[index]
    assert '"usage"' not in _ask(url, f"no-usage?{short}").text
    assert "[DONE]" not in _ask(url, f"no-done?{short}").text
    assert (
        len(_events(_ask(url, f"duplicates?{short}").text))
        == len(_events(_ask(url, f"steady?{short}").text)) + 8
    )
    with pytest.raises(json.JSONDecodeError):
        _events(_ask(url, f"broken-sse?{short}").text)


def test_refusals(url: str) -> None:
    refused = _ask(url, "status?code=429")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert _ask(url, "status?code=500").status_code == 500
    assert [_ask(url, "status?code=503&first=2&tokens=1").status_code for _ in range(3)] == [503, 503, 200]
    assert _ask(url, "context?limit=10&tokens=1").status_code == 200
    too_long = _ask(url, "context?limit=10", words=11)
    assert too_long.json()["error"]["code"] == "context_length_exceeded"
    assert _ask(url, "gpt").status_code == 404


def test_a_request_may_ask_for_fewer_tokens(url: str) -> None:
    usage = _events(_ask(url, "steady?tokens=64&itl=0.001", max_tokens=5).text)[-1]["usage"]
    assert usage["completion_tokens"] == 5  # type: ignore[index]
