"""Logs as they come: encodings, prefixes, tracebacks, several starts; and nothing that makes doctor fall over."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.doctor.logs import check_claim, diagnose_log, diagnose_text
from fleetctl.doctor.logs.lines import parts
from fleetctl.doctor.logs.reader import LONGEST_LINE, blocks
from fleetctl.doctor.rule import Context
from fleetctl.doctor.signatures import SIGNATURES, table
from fleetctl.doctor.signatures.words import words
from fleetctl.errors import FleetError
from tests.doctor.builders import context

SYMBOL = (
    "ImportError: /e/sgl_kernel/sm100/common_ops.abi3.so: undefined symbol: _ZN3c1013MessageLoggerC1EPKciib"
)
CHAIN = """\
[2026-01-29 00:51:38 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/e/lib/python3.12/site-packages/flashinfer/jit/core.py", line 10, in build
    return table[name]
           ~~~~~^^^^^^
KeyError: 'batch_of_mine'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/e/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 99, in run
    raise RuntimeError("cannot go on") from error
RuntimeError: cannot go on
[2026-01-29 00:51:39] Received sigquit from a child process. It usually means the child failed.
"""


def rules(text: str) -> list[str]:
    return [one.rule for one in diagnose_text(text)]


@pytest.mark.parametrize(
    "data",
    [
        SYMBOL.encode(),
        b"\xef\xbb\xbf" + SYMBOL.encode(),
        SYMBOL.encode("utf-16"),
        SYMBOL.encode("utf-16-le"),
        SYMBOL.encode("utf-16-be"),
        ("größe\n" + SYMBOL).encode("latin-1"),
        b"\x00\x00" + SYMBOL.encode() + b"\x00",
        b"\x1b[31m" + SYMBOL.encode() + b"\x1b[0m",
        b"Loading:  10%|#   |\rLoading: 100%|####|\r" + SYMBOL.encode() + b"\r\n",
        b"x" * 3_000_000 + b"\n" + SYMBOL.encode(),
        b"x" * 1_000_000 + b" " + SYMBOL.encode(),
        gzip.compress(SYMBOL.encode()),
        bz2.compress(SYMBOL.encode()),
        lzma.compress(SYMBOL.encode()),
        gzip.compress(SYMBOL.encode() + b"\n" + bytes(range(256)) * 999)[:-400],
    ],
)
def test_reads_whatever_a_log_is_written_in(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(data)
    assert [one.rule for one in diagnose_log(path)] == ["abi-torch-symbol"]
    assert [one.rule for one in diagnose_log(io.BytesIO(data))] == ["abi-torch-symbol"]


@pytest.mark.parametrize(
    "prefix",
    [
        "Jan 29 00:51:38 ct200 python[812]: ",
        "10月 29 00:51:38 ct200 python[812]: ",
        "déc. 29 00:51:38 ct200 python[812]: ",
        "2026-01-29T00:51:38+0000 ct200 python[812]: ",
        "2026-01-29T00:51:38.123456+00:00 ct200 sglang-ddtree.service[812]: ",
        "1769647898.123456 ct200 python[812]: ",
        "[ 1843.308145] ct200 python[812]: ",
        "[2026-01-29 00:51:38] ",
        "[2026-01-29 00:51:38 DP0 TP3 EP3] ",
        "(EngineCore pid=812) ERROR 01-29 00:51:38 [core.py:708] ",
        "(Worker_TP1 pid=812) ERROR 01-29 00:51:38 [multiproc_executor.py:880] ",
        "ERROR 01-29 00:51:38 core.py:708] ",
        "[rank0]: ",
        "[rank0]:[E129 00:51:38.1 ProcessGroupNCCL.cpp:1] ",
        "2026-01-29T00:51:38.123456789Z stderr F ",
        "2026-01-29T00:51:38.123456789Z ",
        "sglang-1  | ",
        "[pod/llm-0/server] 2026-01-29T00:51:38.1Z [2026-01-29 00:51:38] ",
        "2026-01-29 00:51:38,123 - sglang - ERROR - ",
        "2026-01-29 00:51:38.123 | ERROR | sglang.srt:run:12 - ",
        "MESSAGE=",
        "    MESSAGE=",
        "Jan 29 00:51:38 ct200 docker[1]: sglang-1  | \x1b[31m[2026-01-29 00:51:38 TP0] ",
    ],
)
def test_looks_behind_what_is_put_before_a_line(prefix: str) -> None:
    assert parts((prefix + SYMBOL).encode())[0].text == SYMBOL
    assert rules(prefix + SYMBOL) == ["abi-torch-symbol"]
    trace = "".join(
        prefix + line + "\n" for line in ("Traceback (most recent call last):", *CHAIN.splitlines()[1:12])
    )
    assert rules(trace) == ["arch-exception"], "an exception in flashinfer's own code"


def test_reads_journals_as_json() -> None:
    entry = {"MESSAGE": SYMBOL, "_PID": "12", "SYSLOG_IDENTIFIER": "python"}
    assert rules(json.dumps(entry)) == ["abi-torch-symbol"]
    assert rules(json.dumps({**entry, "MESSAGE": list((SYMBOL + "\nx").encode())})) == ["abi-torch-symbol"]
    assert rules(json.dumps({"log": SYMBOL + "\n", "stream": "stderr"})) == ["abi-torch-symbol"]
    killed = {
        "MESSAGE": "x.service: Failed with result 'oom-kill'.",
        "_PID": "1",
        "SYSLOG_IDENTIFIER": "systemd",
    }
    assert rules(json.dumps(killed)) == ["sys-out-of-memory"]


def test_an_unknown_exception_is_named_with_its_first_of_the_chain() -> None:
    (found,) = diagnose_text(CHAIN)
    assert found.rule == "arch-exception"
    assert "KeyError: 'batch_of_mine'" in found.what
    assert "flashinfer" in found.what
    assert found.evidence[0].startswith("line 5: ")
    assert any("jit/core.py:10, build" in line for line in found.evidence)


@pytest.mark.parametrize(
    ("path", "said", "rule"),
    [
        ("/e/site-packages/triton/compiler/code.py", "ValueError: odd", "arch-exception"),
        ("/e/site-packages/transformers/configuration_utils.py", "ValueError: odd", "model-exception"),
        ("/usr/lib/python3.12/argparse.py", "TypeError: odd", "cfg-exception"),
        ("/e/site-packages/sglang/srt/server_args.py", "ValueError: odd", "cfg-exception"),
        ("/e/site-packages/torch/cuda/streams.py", "RuntimeError: odd", "gpu-exception"),
        ("/e/site-packages/sglang/srt/managers/scheduler.py", "IndexError: odd", "svc-exception"),
    ],
)
def test_the_module_that_raised_says_where_to_look(path: str, said: str, rule: str) -> None:
    text = f'Traceback (most recent call last):\n  File "{path}", line 1, in f\n    g()\n{said}\n'
    assert rules(text) == [rule]


def test_several_processes_that_write_at_once() -> None:
    one = [
        "Traceback (most recent call last):",
        '  File "/e/site-packages/triton/a.py", line 1, in f',
        "    f()",
    ]
    two = ["Traceback (most recent call last):", '  File "/e/argparse.py", line 1, in f', "    f()"]
    mixed = [line for a, b in zip(one, two, strict=True) for line in ("(A pid=1) " + a, "(B pid=2) " + b)]
    said = "\n".join([*mixed, "(B pid=2) ValueError: b", "(A pid=1) ValueError: a"])
    (found,) = diagnose_text(said)
    assert found.rule == "cfg-exception"
    assert "ValueError: b" in found.what


STARTED = "Jan 29 00:51:3{n} h systemd[1]: llm.service: Scheduled restart job, restart counter is at {n}.\n"
FAILED = "Jan 29 00:51:3{n} h systemd[1]: llm.service: Main process exited, code=exited, status=1/FAILURE\n"


def test_the_last_start_counts_and_how_often_it_failed_so() -> None:
    first = "Jan 29 00:51:30 h python[1]: OSError: [Errno 28] No space left on device\n"
    then = "Jan 29 00:51:31 h python[2]: ModuleNotFoundError: No module named 'soundfile'\n"
    text = first + FAILED.format(n=0)
    for n in range(1, 4):
        text += STARTED.format(n=n) + then + FAILED.format(n=n)
    text += "Jan 29 00:51:39 h systemd[1]: llm.service: Start request repeated too quickly.\n"
    text += "Jan 29 00:51:39 h systemd[1]: Failed to start llm.service.\n"
    (found,) = diagnose_text(text)
    assert found.rule == "pkg-soundfile"
    assert "in 3 of 4 starts" in found.evidence


def test_a_start_that_came_up_after_one_that_did_not() -> None:
    text = SYMBOL + "\n" + STARTED.format(n=1) + "[2026-01-29 00:52:00] server_args=ServerArgs(x)\n"
    text += "[2026-01-29 00:52:40] The server is fired up and ready to roll!\n"
    (found,) = diagnose_text(text)
    assert (found.rule, found.severity) == ("abi-torch-symbol", "info")


def test_what_killed_the_service_and_not_what_its_clients_say_after() -> None:
    text = CHAIN + "\n".join(["requests.exceptions.ConnectionError: Connection refused"] * 5)
    assert rules(text) == ["arch-exception"]
    assert rules("requests.exceptions.ConnectionError: [Errno 111] Connection refused") == [
        "net-connection-lost"
    ]


def test_many_files_are_one_finding_a_cause(tmp_path: Path) -> None:
    for n in range(12):
        (tmp_path / f"{n:02}.log").write_text(SYMBOL if n % 2 else "all is well\n")
    (found,) = diagnose_log(sorted(tmp_path.glob("*.log")))
    assert found.where.count(".log") == 6


def test_what_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04" + b"\x00" * 99)
    (found,) = diagnose_log(tmp_path / "a.zip")
    assert "zip" in found.what
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(FleetError, match="the log is empty"):
        diagnose_log(tmp_path / "empty")
    with pytest.raises(FleetError) as caught:
        diagnose_log(tmp_path / "none")
    assert caught.value.exit == 2


def test_a_long_line_is_cut_and_still_one_line() -> None:
    read = list(blocks(io.BytesIO(b"a" * 5_000_000 + b"\nb\n")))
    lines = b"".join(read).split(b"\n")
    assert len(lines[0]) <= LONGEST_LINE
    assert lines[1:] == [b"b", b""]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=4000))
def test_no_bytes_make_it_fall_over(data: bytes) -> None:
    diagnose_log(io.BytesIO(data))


PIECES = st.sampled_from(
    [
        *CHAIN.splitlines(),
        "Jan 29 00:51:38 h python[1]: ",
        "(A pid=1) ERROR 01-29 00:51:38 [a.py:1] ",
        "\r",
        "\x1b[31m",
        '{"MESSAGE": ',
        "[rank0]: ",
        "  | ",
        "MESSAGE=",
        "\n",
        "NCCL INFO comm 0x1 rank 0 nranks 2 - Init COMPLETE",
        "[x] server_args=ServerArgs(",
        "Remaining number of requests 1",
        SYMBOL,
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=20)), max_size=60).map("".join))
def test_no_text_makes_it_fall_over(text: str) -> None:
    diagnose_text(text, Context(facts={"gpus": {"gpus": []}}))


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["gpus", "compute_cap", "version", "exists", "path", "gpu", "xid"]), inner
        )
    ),
    max_leaves=12,
)
PARTS = ["gpus", "toolkits", "libraries", "ports", "disks", "models", "kernel_log", "driver", "ptxas"]


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.sampled_from(PARTS), ODD),
    st.dictionaries(st.sampled_from(["distributions", "extensions"]), ODD),
)
def test_no_facts_make_a_check_fall_over(facts: dict[str, object], bom: dict[str, object]) -> None:
    known = Context(facts=facts, bom=bom)
    for text in (
        SYMBOL,
        "ImportError: libnuma.so.1: cannot open shared object file",
        "[Errno 98] port 80 is in use",
    ):
        for one in diagnose_text(text):
            assert check_claim(one, known).rule == one.rule


def checked(log: str, **parts: object) -> str:
    (found,) = diagnose_text(log, context(parts))
    return "\n".join([found.what, found.remedy.text, *found.evidence])


def test_no_kernel_image_where_there_is_one_points_elsewhere() -> None:
    said = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    library = "lib/python3.12/site-packages/sgl_kernel/sm100/common_ops.abi3.so"
    other = "lib/python3.12/site-packages/sgl_kernel/sm90/common_ops.abi3.so"
    there = checked(said, facts={"gpus": ["12.0"]}, bom={"extensions": {library: {"gpu": ["sass:120a"]}}})
    assert "another" in there
    assert "caches" in there
    lacks = checked(
        said, facts={"gpus": ["8.6"]}, bom={"extensions": {library: {"gpu": ["sass:90a"]}, other: None}}
    )
    assert f"{library} has none for SM 8.6" in lacks


def test_a_missing_symbol_is_looked_for_in_the_environment() -> None:
    library = "lib/python3.12/site-packages/sgl_kernel/sm100/common_ops.abi3.so"
    lacking = {"undefined": ["_ZN3c1013MessageLoggerC1EPKciib"], "undefined_count": 1}
    bad = checked(
        SYMBOL, facts={}, bom={"extensions": {library: lacking}, "distributions": {"torch": "2.12.0+cu130"}}
    )
    assert "which nothing gives; torch 2.12.0+cu130" in bad
    assert "the file fits its libraries" in checked(SYMBOL, facts={}, bom={})


def test_flashinfers_refusal_with_the_toolkit_at_hand() -> None:
    said = "RuntimeError: FlashInfer requires GPUs with sm75 or higher"
    assert "older than 12.9" in checked(said, facts={"gpus": ["12.0"], "toolkits": ["12.8"]})
    assert "the service runs with another one" in checked(
        said, facts={"gpus": ["12.0"], "toolkits": ["13.0"]}
    )
    assert "older than SM 7.5" in checked(said, facts={"gpus": ["7.0"], "toolkits": ["12.8"]})


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_each_match_holds_one_of_the_words(data: st.DataObject) -> None:
    one = data.draw(
        st.sampled_from([each for each in SIGNATURES if "(?" not in each.pattern.replace("(?:", "")])
    )
    text = data.draw(st.from_regex(one.pattern))
    assert not words(one.pattern) or any(word in text for word in words(one.pattern)), (one.id, text)


def test_plans_carry_what_ends_a_wait() -> None:
    carried = table()
    assert {one["verdict"] for one in carried} == {"fatal", "likely", "harmless"}
    assert all(one["words"] for one in carried if one["verdict"] == "fatal"), (
        "else each line is tried against each"
    )


FAULTS = Path(__file__).parent
LEARNED = yaml.safe_load((FAULTS / "learned.yaml").read_text())
ASIDE = [
    one for path in sorted((FAULTS / "holdout").glob("*.yaml")) for one in yaml.safe_load(path.read_text())
]


@pytest.mark.parametrize("fault", LEARNED, ids=lambda one: str(one["id"]))
def test_reported_faults_that_were_learned_from(fault: dict[str, Any]) -> None:
    found = diagnose_text(fault["log"])
    assert found, "nothing is said"
    assert found[0].family in fault["family"]
    text = f"{found[0].what} {found[0].remedy.text}"
    assert [part for part in fault["says"] if not re.search(part, text, re.IGNORECASE)] == []


def test_what_is_set_aside_is_answered_mostly_right() -> None:
    families = sum(
        1 for one in ASIDE for found in diagnose_text(one["log"])[:1] if found.family in one["family"]
    )
    assert len(ASIDE) >= 30
    assert families / len(ASIDE) >= 0.8


FAMILIES = [line.split(" | ", 1) for line in (FAULTS / "families.txt").read_text().splitlines()]


@pytest.mark.parametrize(
    ("families", "log"), FAMILIES, ids=[f"{one[0]}-{at}" for at, one in enumerate(FAMILIES)]
)
def test_what_is_said_names_the_family(families: str, log: str) -> None:
    """Messages as engines, libraries and hosts word them; ``|`` stands for the end of a line."""
    found = diagnose_text(log.replace("|", "\n"))
    assert found[0].severity == "error"
    assert found[0].family in families.split(","), f"{found[0].rule}: {log}"


def test_each_line_of_a_healthy_log_is_silent() -> None:
    text = (FAULTS / "healthy.log").read_text()
    assert not diagnose_text(text)
    lines = [line for line in text.splitlines() if not diagnose_text(line)]
    assert lines == text.splitlines()


def test_a_warning_before_explains_what_the_end_does_not() -> None:
    warned = "WARNING 01-01 00:00:00 [_custom_ops.py:20] Failed to import from vllm._C with "
    warned += "ImportError('libcudart.so.13: cannot open shared object file')\n"
    ended = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
    assert diagnose_text(warned + ended)[0].rule == "abi-cuda-major-12-needs-13"


def test_an_assertion_without_words_is_told_by_its_code() -> None:
    trace = """Traceback (most recent call last):
  File "/e/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 9, in __init__
    assert self.server_args.chunked_prefill_size % self.page_size == 0
AssertionError
"""
    assert diagnose_text(trace)[0].family == "CFG"


def test_the_exception_that_a_wrapper_quotes_is_the_one_that_counts() -> None:
    said = "torch._inductor.exc.InductorError: LoweringException: AssertionError: out of memory on the device"
    (found,) = diagnose_text(f'Traceback (most recent call last):\n  File "/e/x.py", line 1, in f\n{said}\n')
    assert found.family == "GPU"
