"""A real server over HTTP: answers, streams, usage, refusals, the queue, and clients that leave."""

from __future__ import annotations

import json
import threading

import httpx
import pytest

from tests.standalone.conftest import Server

pytestmark = pytest.mark.model
HELLO = [{"role": "user", "content": "Name three colours."}]
LONG = {
    "model": "smol",
    "prompt": "Once upon a time",
    "max_tokens": 4000,
    "temperature": 0,
    "ignore_eos": True,
    "stream": True,
}


def test_a_chat_answer_counts_what_was_drafted_and_accepted(server: Server) -> None:
    answer = server.ask("chat/completions", model="smol", messages=HELLO, max_tokens=24, temperature=0).json()
    usage = answer["usage"]
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert usage["completion_tokens"] == 24
    assert usage["total_tokens"] == usage["prompt_tokens"] + 24
    assert 0 < usage["accepted_tokens"] < usage["drafted_tokens"]
    assert usage["verify_passes"] + usage["accepted_tokens"] >= 23
    assert usage["verify_passes"] < 23


def test_a_stream_says_the_same_as_the_whole_answer(server: Server) -> None:
    asked = {"model": "smol", "messages": HELLO, "max_tokens": 24, "temperature": 0}
    whole = server.ask("chat/completions", **asked).json()
    events = _events(
        server.ask("chat/completions", **asked, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == whole["usage"]


def test_the_trees_of_the_first_passes_come_with_the_usage_where_asked_for(server: Server) -> None:
    asked = {"model": "smol", "messages": HELLO, "max_tokens": 24, "temperature": 0}
    whole = server.ask("chat/completions", **asked, trees=3).json()
    text = whole["choices"][0]["message"]["content"]
    assert [tree["step"] for tree in whole["trees"]] == [0, 1, 2]
    said = whole["trees"][0]["tokens"][0]
    for tree in whole["trees"]:
        assert tree["parents"][0] == -1 and all(up < node for node, up in enumerate(tree["parents"]))
        assert len(tree["tokens"]) == len(tree["parents"]) == len(tree["probs"])
        assert all(0 < prob <= 1 for prob in tree["probs"])
        path = [0, *tree["accepted"]]
        assert [tree["parents"][node] for node in path[1:]] == path[:-1], "accepted nodes are a path"
        said += "".join(tree["tokens"][node] for node in tree["accepted"]) + tree["next"]
    assert text.startswith(said), "the accepted paths, one after the other, are the answer's text"
    streamed = {**asked, "trees": 3, "stream": True}
    events = _events(server.ask("chat/completions", **streamed, stream_options={"include_usage": True}))
    assert events[-1]["trees"] == whole["trees"]
    assert server.ask("chat/completions", **streamed).json()["error"]["param"] == "trees"
    assert "trees" not in server.ask("chat/completions", **asked).json()


def test_a_completion_takes_text_or_tokens_and_stops_before_a_stop_string(server: Server) -> None:
    asked = {"model": "smol", "max_tokens": 16, "temperature": 0}
    plain = server.ask("completions", **asked, prompt="1, 2, 3, 4,").json()["choices"][0]
    assert plain["finish_reason"] == "length"
    stop = plain["text"][8:11]
    stopped = server.ask("completions", **asked, prompt="1, 2, 3, 4,", stop=[stop]).json()["choices"][0]
    assert stopped["finish_reason"] == "stop"
    assert stopped["text"] == plain["text"][: plain["text"].index(stop)]
    tokens = server.ask("completions", **asked, prompt=[33, 28, 216, 34, 28])
    assert tokens.json()["usage"]["prompt_tokens"] == 5


def test_a_seed_repeats_a_sampled_answer(server: Server) -> None:
    asked = {"model": "smol", "messages": HELLO, "max_tokens": 12, "temperature": 1.0}
    texts = [
        server.ask("chat/completions", **asked, seed=seed).json()["choices"][0]["message"]["content"]
        for seed in (5, 5, 6)
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("completions", {"prompt": "x", "max_tokens": 0}, 400, "max_tokens"),
        ("completions", {"prompt": "x", "max_tokens": 9000}, 400, "max_tokens"),
        ("completions", {"prompt": "word " * 9000}, 400, "prompt"),
        ("completions", {"prompt": ""}, 400, "prompt"),
        ("completions", {"prompt": [49152]}, 400, "prompt"),
        ("completions", {}, 400, "prompt"),
        ("completions", {"prompt": "x", "temperature": 3}, 400, "temperature"),
        ("completions", {"prompt": "x", "temperature": "hot"}, 400, "temperature"),
        ("completions", {"prompt": "x", "top_p": 0}, 400, "top_p"),
        ("completions", {"prompt": "x", "n": 2}, 400, "n"),
        ("completions", {"prompt": "x", "trees": 65}, 400, "trees"),
        ("completions", {"prompt": "x", "trees": True}, 400, "trees"),
        ("completions", {"prompt": "x", "logprobs": 0}, 400, "logprobs"),
        ("completions", {"prompt": "x", "logit_bias": {"5": 1}}, 400, "logit_bias"),
        ("completions", {"prompt": "x", "model": "other"}, 404, "model"),
        ("chat/completions", {"messages": []}, 400, "messages"),
        ("chat/completions", {"messages": [{"role": "user"}]}, 400, "messages[0].content"),
        ("chat/completions", {"messages": [{"role": "king", "content": "x"}]}, 400, "messages[0].role"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            400,
            "messages[0].content[0].type",
        ),
        ("chat/completions", {"messages": HELLO, "tools": [{"type": "function"}]}, 400, "tools"),
    ],
)
def test_a_bad_request_is_refused_with_the_fields_name(
    server: Server, path: str, body: dict[str, object], status: int, param: str
) -> None:
    answer = server.ask(path, **{"model": "smol", **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param), error
    assert error["type"] == "invalid_request_error"
    assert param.split("[")[0] in error["message"]


def test_fields_that_change_nothing_are_taken(server: Server) -> None:
    neutral = {
        "user": "me",
        "n": 1,
        "presence_penalty": 0,
        "logprobs": False,
        "metadata": {"a": "b"},
        "stop": None,
    }
    answer = server.ask("chat/completions", model="smol", messages=HELLO, max_tokens=2, **neutral)
    assert answer.status_code == 200, answer.text


def test_a_body_that_is_no_json_object_is_refused(server: Server) -> None:
    for content in (b"{", b"[1]", b"\xff"):
        answer = httpx.post(f"{server.url}/v1/completions", content=content, timeout=60, trust_env=False)
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert server.get("/v1/nothing").status_code == 404
    assert server.get("/v1/completions").json()["error"]["message"]


def test_a_full_queue_says_429_and_clients_that_leave_free_their_places(server: Server) -> None:
    with httpx.stream(
        "POST", f"{server.url}/v1/completions", json=LONG, timeout=280, trust_env=False
    ) as running:
        lines = running.iter_lines()  # kept: a dropped iterator closes the connection
        next(lines)
        server.wait_for("fleetctl_requests_running", 1)
        waiting = _Leaver(server)
        server.wait_for("fleetctl_requests_queued", 1)
        refused = server.ask("completions", model="smol", prompt="x")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "queue_full"
        waiting.leave()
        server.wait_for("fleetctl_requests_queued", 0)
        assert server.metric("fleetctl_requests_running") == 1
    server.wait_for("fleetctl_requests_running", 0)
    assert server.ask("completions", model="smol", prompt="x", max_tokens=2).status_code == 200


def test_a_client_that_leaves_without_streaming_frees_its_place(server: Server) -> None:
    client = _Leaver(server, stream=False)
    server.wait_for("fleetctl_requests_running", 1)
    client.leave()
    server.wait_for("fleetctl_requests_running", 0)


def test_models_health_and_metrics(server: Server) -> None:
    (model,) = server.get("/v1/models").json()["data"]
    assert (model["id"], model["max_model_len"]) == ("smol", 8192)
    assert server.get("/health").status_code == 200
    before = server.metric("fleetctl_generated_tokens_total")
    usage = server.ask("completions", model="smol", prompt="x", max_tokens=5, temperature=0).json()["usage"]
    server.wait_for("fleetctl_generated_tokens_total", before + usage["completion_tokens"])
    assert server.metric("fleetctl_accepted_length") > 1
    assert 'mode="tree"' in server.get("/metrics").text


class _Leaver:
    """A client that asks for a long answer and can go away."""

    def __init__(self, server: Server, stream: bool = True) -> None:
        self._client = httpx.Client(timeout=280, trust_env=False)
        self._url = f"{server.url}/v1/completions"
        self._body = {**LONG, "stream": stream}
        self._sent = threading.Thread(target=self._ask, daemon=True)
        self._sent.start()

    def _ask(self) -> None:
        try:
            self._client.post(self._url, json=self._body)
        except (httpx.HTTPError, RuntimeError, OSError):
            return

    def leave(self) -> None:
        """Close the connection in the middle of the request."""
        for connection in self._client._transport._pool.connections:  # type: ignore[attr-defined]
            stream = connection._connection._network_stream
            stream.get_extra_info("socket").shutdown(2)
        self._sent.join(60)


def _events(answer: httpx.Response) -> list[dict[str, object]]:
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]
