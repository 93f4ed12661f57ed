"""Streams read in any pieces, and what is said of answers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.bench.answer import Answer, looped, read_chunk, refusal, spread
from fleetctl.bench.sse import BrokenStream, EventReader

DATA = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), max_size=6)


@given(DATA, st.lists(st.integers(1, 40), max_size=20), st.sampled_from(["\n", "\r\n", "\r"]))
def test_a_stream_reads_the_same_in_any_pieces(said: list[str], cuts: list[int], end: str) -> None:
    stream = "".join(f": note{end}data: {text}{end}{end}" for text in said).encode() + b"\n"
    reader, found = EventReader(), []
    for cut in [*cuts, len(stream)]:
        found += reader.feed(stream[:cut])
        stream = stream[cut:]
    assert [data.decode() for data in found] == said
    assert not reader.unfinished


@given(st.binary(max_size=200), st.integers(1, 20))
def test_any_bytes_are_events_or_a_broken_stream(raw: bytes, size: int) -> None:
    reader, answer = EventReader(), Answer()
    try:
        for start in range(0, len(raw), size):
            for data in reader.feed(raw[start : start + size]):
                answer.take(0.1, read_chunk(data))
    except BrokenStream as error:
        assert str(error)
    answer.judge(16)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["choices", "usage", "error", "delta", "content", "text", "completion_tokens"]
                ),
                inner,
            )
        ),
    )
)
def test_any_json_is_a_chunk_or_broken(data: object) -> None:
    answer = Answer()
    try:
        answer.take(0.0, read_chunk(json.dumps(data).encode()))
    except BrokenStream:
        return
    tokens, _ = answer.tokens()
    assert tokens >= 0 and (not answer.pieces or sum(count for _, count in answer.events()) == tokens)
    answer.judge(16)


@given(st.integers(0, 500), st.lists(st.integers(0, 50), max_size=40))
def test_shares_are_whole_and_all_there(total: int, weights: list[int]) -> None:
    shares = spread(total, weights)
    assert len(shares) == len(weights) and all(share >= 0 for share in shares)
    if weights and sum(weights):
        assert sum(shares) == total
    if weights and total >= len(weights):
        assert all(share >= 1 for share in shares)


def test_tokens_of_each_event_where_the_server_says() -> None:
    answer = Answer()
    for at, (text, count) in enumerate([("a long piece of text", 1), ("b", 5), ("c", 6)]):
        chunk = {"choices": [{"delta": {"content": text}}], "usage": {"completion_tokens": count}}
        answer.take(float(at), read_chunk(json.dumps(chunk).encode()))
    assert answer.events() == [(0.0, 1), (1.0, 4), (2.0, 1)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("!" * 200, ("!", 1.0)),
        ("abc " * 40, ("abc ", 1.0)),
        ("Once upon a time " + "and then " * 30, ("and then ", 0.94)),
        ("The quick brown fox jumps over the lazy dog. " * 2, None),
        ("a text without a loop, however long it may go on, as texts do when they are written", None),
        ("", None),
    ],
)
def test_loops(text: str, found: tuple[str, float] | None) -> None:
    loop = looped(text)
    if found is None or loop is None:
        assert loop is found
    else:
        assert sorted(loop[0]) == sorted(found[0]) and loop[1] == pytest.approx(found[1], abs=0.01)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, '{"error": {"code": "context_length_exceeded", "message": "too long"}}', "context"),
        (
            400,
            '{"message": "The input is longer than the model\'s context length (32768 tokens)."}',
            "context",
        ),
        (400, '{"error": {"message": "temperature: too warm"}}', "http"),
        (502, "<html>Bad gateway</html>", "http"),
        (500, "", "http"),
        (503, "[1, 2", "http"),
        (418, '"tea"', "http"),
    ],
)
def test_refusals(status: int, body: str, kind: str) -> None:
    failure = refusal(status, body.encode())
    assert (failure.kind, failure.status) == (kind, status) and str(status) in failure.what
