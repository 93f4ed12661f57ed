"""A load generator's results as our own records: on a real export of aiperf 0.13, and with a stand-in of its program.

``aiperf-raw.jsonl`` is what aiperf 0.13.0 wrote of the scheduled server's good and bad answers, one request each.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetctl.bench import aiperf
from fleetctl.bench.client import Ask, Limits
from fleetctl.bench.loadgen import LoadGenerator, load_generator
from fleetctl.errors import Exit, FleetError
from tests.transport.sshd import wait_for

EXPORT = Path(__file__).parent / "data" / "aiperf-raw.jsonl"
KINDS = [
    "steady", "status", "status", "cut", "broken-sse", "empty", "zero", "early", "no-usage", "reset", "error-event",
    "stalls", "not-sse",
]  # fmt: skip


def _asks(count: int = len(KINDS)) -> list[Ask]:
    return [
        Ask(f"p{number}", [{"role": "user", "content": f"prompt {number} of them"}], 20, point="host/slot/service@c1")
        for number in range(count)
    ]  # fmt: skip


def test_an_export_is_told_by_the_rules_of_our_own_client() -> None:
    found = aiperf.read(EXPORT.read_bytes(), _asks(), 0.0, "aiperf 0.13.0")
    errors = {
        f"{kind}{number}": one.error.kind
        for number, (kind, one) in enumerate(zip(KINDS, found, strict=True))
        if one.error
    }
    assert errors == {
        "status1": "http", "status2": "http", "cut3": "cut", "broken-sse4": "broken-sse", "empty5": "empty",
        "zero6": "empty", "reset9": "cut", "error-event10": "cut", "stalls11": "timeout",
    }  # fmt: skip
    assert {one.by for one in found} == {"aiperf 0.13.0"}
    steady, whole = found[0], found[12]
    assert (steady.tokens, steady.tokens_from, steady.finish, steady.prompt_tokens) == (
        20,
        "usage",
        "length",
        4,
    )
    assert steady.text.split() == [f"word{number}" for number in range(20)]
    assert steady.ttft_s == pytest.approx(0.1622, abs=1e-4)  # the machine was busy: scheduled was 0.05
    assert steady.end_s == pytest.approx(0.3262, abs=1e-4)
    assert [tokens for _, tokens in steady.events] == [1] * 20
    assert found[1].error is not None and found[1].error.status == 500
    assert found[8].tokens_from == "events"
    assert whole.ttft_s is None and aiperf.AS_A_WHOLE in whole.warnings


def test_a_request_that_the_export_lacks_is_a_failed_one() -> None:
    lines = EXPORT.read_bytes().splitlines()
    (lost,) = [line for line in lines if b'"session_000007"' in line]
    found = aiperf.read(b"\n".join(line for line in lines if line != lost), _asks(), 0.0, "aiperf 0.13.0")
    assert len(found) == len(KINDS)
    assert found[7].error is not None and "recorded nothing" in found[7].error.what


@pytest.mark.parametrize("line", [b"no json", b"{}", b'{"metadata": {"conversation_id": "session_000099"}}'])
def test_an_export_of_another_form_is_refused(line: bytes) -> None:
    with pytest.raises(FleetError, match="is not as aiperf 9 writes it") as error:
        aiperf.read(line, _asks(), 0.0, "aiperf 9")
    assert "--by" in error.value.fix


def test_its_requests_are_those_that_our_client_would_send() -> None:
    asks = _asks(2)
    lines = aiperf.payloads(asks, "m").splitlines()
    assert [json.loads(line) for line in lines] == [ask.body("m") for ask in asks]


def _program(folder: Path, script: str) -> LoadGenerator:
    program = folder / "aiperf"
    program.write_text(f"#!/bin/sh\n[ $1 = --version ] && {{ echo 0.13.0; exit; }}\n{script}\n")
    program.chmod(0o755)
    return LoadGenerator(program, "aiperf 0.13.0", lambda event: None)


def test_it_runs_with_the_requests_and_their_number_at_once(tmp_path: Path) -> None:
    generator = _program(tmp_path, f'echo "$@" > {tmp_path}/words; cp asks.jsonl {tmp_path}; mkdir out; cp {EXPORT} out/profile_export_raw.jsonl')  # fmt: skip  # noqa: E501
    found = generator.load("http://127.0.0.1:1", "m", _asks(), 4, 0.0, Limits())
    assert len(found) == len(KINDS) and found[0].tokens == 20
    words = (tmp_path / "words").read_text()
    assert "--concurrency 4 --request-count 13" in words and "--url http://127.0.0.1:1" in words
    assert len((tmp_path / "asks.jsonl").read_text().splitlines()) == 13


def test_one_that_fails_says_its_last_lines(tmp_path: Path) -> None:
    generator = _program(tmp_path, "echo no such option >&2; exit 2")
    with pytest.raises(FleetError, match="exit status 2 and no results") as error:
        generator.load("http://127.0.0.1:1", "m", _asks(), 1, 0.0, Limits())
    assert error.value.evidence == ["no such option"] and error.value.exit == Exit.PREFLIGHT


def test_one_that_never_ends_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"
    hours = itertools.count(step=3600)
    clock = SimpleNamespace(monotonic=lambda: next(hours) if child.exists() else 0, sleep=time.sleep)
    monkeypatch.setattr("fleetctl.bench.loadgen.time", clock)
    generator = _program(tmp_path, f"sleep 3000 & echo $! > {tmp_path}/new; mv {tmp_path}/new {child}; wait")
    with pytest.raises(FleetError, match="was not done after"):
        generator.load("http://127.0.0.1:1", "m", _asks(1), 1, 0.0, Limits(total=0.5))
    pid = int(child.read_text())
    wait_for(lambda: not runs(pid))


def runs(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_one_on_the_path_is_taken_and_an_unknown_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path, "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert load_generator(tmp_path, "aiperf", lambda event: None).by == "aiperf 0.13.0"
    with pytest.raises(FleetError, match="no load generator wrk"):
        load_generator(tmp_path, "wrk", lambda event: None)
