"""What NVIDIA's aiperf 0.13 recorded, as this project's own requests. Pure.

Its raw export keeps every event of every stream with its time, so tokens, failures and texts are told from that by the
same rules as the own client's; none of aiperf's own metrics is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from fleetctl.bench.answer import DONE, Answer, read_chunk, refusal
from fleetctl.bench.client import Ask, as_request
from fleetctl.bench.record import Failure, Request
from fleetctl.bench.sse import BrokenStream
from fleetctl.errors import FleetError

AS_A_WHOLE = "the server sent the answer as a whole: no time to the first token is known"


def payloads(asks: Sequence[Ask], model: str) -> bytes:
    """The dataset (``raw-payload``): one body a line, just as the own client sends it."""
    return b"".join(msgspec.json.encode(ask.body(model)) + b"\n" for ask in asks)


def read(lines: bytes, asks: Sequence[Ask], origin: float, by: str) -> list[Request]:
    """``profile_export_raw.jsonl`` as requests, in the order of ``asks``; one that it lacks is a failed request.

    ``origin``: the monotonic clock that ``started_s`` counts from. FleetError (exit 1: not a mistake of the
    operator's) where the export has another form.
    """
    found: dict[int, Request] = {}
    for number, line in enumerate(lines.splitlines(), 1):
        try:
            data = msgspec.json.decode(line)
            index = int(str(data["metadata"]["conversation_id"]).rpartition("_")[2])
            if data["metadata"]["benchmark_phase"] != "profiling":
                continue
            found[index] = replace(_request(data, asks[index], origin), by=by)
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
            raise FleetError(
                f"aiperf's export is not as {by} writes it: {error!r}",
                f"profile_export_raw.jsonl:{number}",
                "measure with fleetctl's own client: leave out --by",
            ) from None
    lost = Failure("cut", None, "the load generator recorded nothing of this request")
    return [
        found.get(index) or replace(as_request(ask, Answer(), lost, [], 0.0, 0.0), by=by)
        for index, ask in enumerate(asks)
    ]


def _request(data: dict[str, Any], ask: Ask, origin: float) -> Request:
    began = data["start_perf_ns"]
    answer, warnings = Answer(), list[str]()
    failure: Failure | None = None
    ended = _seconds(data["metadata"]["request_end_ns"] - data["metadata"]["request_start_ns"])
    try:
        for at, text in _events(data, began, warnings):
            ended = at
            if text.strip() == DONE:
                answer.done = True
            else:
                answer.take(at, read_chunk(text))
    except BrokenStream as error:
        failure = Failure("broken-sse", 200, str(error))
    if failure is None:
        failure = _failure(data.get("error"), data.get("status"), answer)
    return as_request(ask, answer, failure, warnings, _seconds(began) - origin, ended)


def _events(data: dict[str, Any], began: int, warnings: list[str]) -> Iterator[tuple[float, bytes]]:
    """Seconds since the request was sent and the data of each event; a whole answer counts as one."""
    for response in data.get("responses") or []:
        at = _seconds(response["perf_ns"] - began)
        if "packets" not in response:
            warnings.append(AS_A_WHOLE)
            yield at, str(response.get("text") or "").encode()
            yield at, DONE
            continue
        for packet in response["packets"]:
            if packet["name"] == "data":
                yield at, str(packet["value"]).encode()


def _failure(error: dict[str, Any] | None, status: int | None, answer: Answer) -> Failure | None:
    """The failure in this project's words; what aiperf alone calls one (no text) is judged from the answer."""
    if status is not None and status != 200:
        return refusal(status, str((error or {}).get("message", "")).encode())
    if answer.said is not None:
        return Failure("cut", 200, answer.said)
    kind = str((error or {}).get("type", ""))
    said = str((error or {}).get("message", kind))[:500]
    if "Timeout" in kind:
        after = " after the first tokens" if answer.pieces else ""
        return Failure("timeout", None, f"no end of the answer in time{after}")
    if "Connect" in kind and not answer.pieces:
        return Failure("refused", None, f"no connection: {said}")
    if error is not None and kind != "InvalidInferenceResultError":
        return Failure("cut", None, f"the connection was cut: {said}")
    if not answer.done and answer.finish is None:
        if not answer.pieces:
            return Failure("empty", 200, "the stream ended without an event")
        return Failure("cut", 200, f"the stream ended after {len(answer.pieces)} events, without an end")
    return None


def _seconds(nanoseconds: int) -> float:
    return nanoseconds / 1e9
