"""What commands print: plain where piped, coloured on a terminal, JSON where asked."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.cli.output import clean
from tests.cli.terminal import in_terminal, piped

FLEET = {**os.environ, "FLEETCTL_FLEET": str(Path(__file__).parents[2])}
ERROR = """
from fleetctl.cli.output import Output
from fleetctl.errors import FleetError
Output(json={json}).print_error(FleetError("no host ct20", where="inventories/ct200.yaml:14",
    fix="did you mean [ct200]?", evidence=["a line\\nand another", "\\x1b[31mred\\x1b[0m\\x07 " + "x" * 120]))
"""
TABLE = """
from fleetctl.cli.output import Output
output = Output()
output.table(["host", "services"], [["ct200", "y" * 150], ["[bold]", "\\x1b[2Jcleared"]])
output.line("done [red]")
"""
DOCUMENTS = """
from fleetctl.cli.output import Output
output = Output(json=True)
output.document({"a": "é"})
output.event({"b": "x\\ny"})
"""
PLAIN_ERROR = [
    "error: no host ct20",
    "  at inventories/ct200.yaml:14",
    "  | a line",
    "  | and another",
    "  | red " + "x" * 120,
    "fix: did you mean [ct200]?",
]


def test_a_piped_error_is_plain_lines_on_stderr() -> None:
    said = piped(ERROR.format(json=False))
    assert said.err.splitlines() == PLAIN_ERROR
    assert said.out == ""


def test_an_error_with_json_is_one_object_on_stdout() -> None:
    said = piped(ERROR.format(json=True))
    error = json.loads(said.out)["error"]
    assert error["what"] == "no host ct20"
    assert error["exit"] == 2
    assert said.err == ""
    assert len(said.out.splitlines()) == 1, "it can stand among events"


def test_an_error_on_a_terminal_has_colours_unless_refused() -> None:
    coloured = in_terminal(ERROR.format(json=False))
    assert "\x1b[1;31merror: " in coloured.out
    plain = in_terminal(ERROR.format(json=False), NO_COLOR="1")
    assert "\x1b[31m" not in plain.out and "\x1b[1;31m" not in plain.out


def test_a_piped_table_is_aligned_and_never_wrapped() -> None:
    said = piped(TABLE, COLUMNS="80")
    assert said.out.splitlines() == [
        "HOST    SERVICES",
        "ct200   " + "y" * 150,
        "[bold]  cleared",
        "done [red]",
    ]


def test_a_table_on_a_terminal_fits_its_width() -> None:
    said = in_terminal(TABLE, columns=80, NO_COLOR="1")
    assert "y" * 150 not in said.out
    assert all(len(clean(line)) <= 80 for line in said.out.splitlines())
    assert "[bold]" in said.out, "what the operator wrote is no markup"
    assert "\x1b[2J" not in said.out


WIDE = """
from fleetctl.cli.output import Output
Output().table(["id", "host", "reason"], [["a" * 40, "ct200", "z" * 90], ["b" * 40, "ct129", "-"]])
"""


def test_a_table_wider_than_the_terminal_is_a_block_a_row() -> None:
    said = in_terminal(WIDE, columns=60, NO_COLOR="1")
    lines = [line.rstrip() for line in clean(said.out).splitlines()]
    assert lines == [
        "id      " + "a" * 40,
        "host    ct200",
        "reason  " + "z" * 52,
        "        " + "z" * 38,
        "",
        "id      " + "b" * 40,
        "host    ct129",
        "reason  -",
    ]
    beside = clean(in_terminal(WIDE, columns=80, NO_COLOR="1").out).splitlines()[0].split()
    assert beside == ["id", "host", "reason"]


def test_documents_and_events_are_json() -> None:
    said = piped(DOCUMENTS)
    assert said.out == '{\n  "a": "é"\n}\n{"b": "x\\ny"}\n'


def test_rich_is_not_loaded_for_results_in_a_pipe() -> None:
    code = TABLE + "import sys; print([name for name in sys.modules if name == 'rich' or name == 'pydantic'])"
    assert piped(code).out.splitlines()[-1] == "[]"


def test_a_reader_that_leaves_changes_neither_the_work_nor_its_exit_code() -> None:
    code = "from fleetctl.cli.output import Output\no = Output(json=True)\nfor n in range(99999): o.event({'n': n})"
    python = f"{sys.executable} -c {shlex.quote(code)}"
    done = subprocess.run(
        ["bash", "-c", f"{python} | head -1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"n": 0}\n', "")


def test_a_full_disk_is_said_and_an_encoding_that_lacks_a_letter_loses_nothing() -> None:
    code = "from fleetctl.cli.output import Output\nOutput().line('\\xe9 \\u2713')"
    python = f"{sys.executable} -c {shlex.quote(code)}"
    full = subprocess.run(
        ["bash", "-c", f"{python} > /dev/full"], capture_output=True, text=True, timeout=240
    )
    assert (full.returncode, full.stderr) == (0, "error: the output is lost: No space left on device\n")
    verb = f"{sys.executable} -m fleetctl hosts"
    for options in ("", " --json"):
        lost = subprocess.run(
            ["bash", "-c", f"{verb}{options} > /dev/full"],
            capture_output=True,
            text=True,
            timeout=240,
            env=FLEET,
        )
        assert (lost.returncode, lost.stderr) == (1, "error: the output is lost: No space left on device\n")
    plain = {**os.environ, "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    said = subprocess.run(["bash", "-c", python], capture_output=True, text=True, timeout=240, env=plain)
    assert (said.returncode, said.stdout) == (0, "\\xe9 \\u2713\n")


@pytest.mark.parametrize(
    ("closing", "out", "err"),
    [
        (">&-", "", "error: stdout is closed; send it to /dev/null where it is not wanted\n"),
        ("2>&-", "error: stderr is closed; send it to /dev/null where it is not wanted\n", ""),
        (">&- 2>&-", "", ""),
    ],
)
def test_a_closed_stream_is_refused_in_a_line(closing: str, out: str, err: str) -> None:
    verb = f"{sys.executable} -m fleetctl hosts --json {closing}"
    said = subprocess.run(["bash", "-c", verb], capture_output=True, text=True, timeout=240, env=FLEET)
    assert (said.returncode, said.stdout, said.stderr) == (2, out, err)


def test_a_verb_whose_reader_leaves_is_quiet_and_done() -> None:
    verb = f"{sys.executable} -m fleetctl hosts --json | true; exit ${{PIPESTATUS[0]}}"
    said = subprocess.run(["bash", "-c", verb], capture_output=True, text=True, timeout=240, env=FLEET)
    assert (said.returncode, said.stderr) == (0, "")
