"""Readers and writers of adopting, on whatever may stand on a host."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Environment

from fleetctl.adoption.templates import as_template
from fleetctl.adoption.words import own_arguments, parse
from fleetctl.adoption.yaml import dump
from fleetctl.agent import secrets
from fleetctl.agent.host import serving
from fleetctl.agent.units import unitfile
from fleetctl.inventory.document import read
from fleetctl.services.quoting import exec_line
from tests.adoption.conftest import adopt_into
from tests.adoption.recorded import seen, server, text_of, unit

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
VALUES = st.one_of(TEXT, st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
WORDS = st.lists(
    st.one_of(
        TEXT, st.sampled_from(["--port", "--tp", "--host=0.0.0.0", "8", "-1", "--x", "triton", "--api-key"])
    ),
    max_size=12,
)


@given(st.dictionaries(NAMES, st.one_of(VALUES, st.lists(TEXT, min_size=1, max_size=3)), max_size=5), TEXT)
def test_yaml_is_read_back_as_it_was_meant(data: dict[str, Any], note: str) -> None:
    whole = {"host": "x", "flow": {"in": data}, "block": data}
    notes = {(): [note], ("block",): [note], **{("block", name): [note] for name in data}}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.yaml"
        file.write_text(dump(whole, notes, [("flow", "*")], [("block",)]), newline="")
        document = read(file)
    assert document.problems == []
    assert document.data == whole


@given(TEXT, TEXT)
def test_a_template_renders_to_the_text(text: str, header: str) -> None:
    text = text.replace("\r", "\n")
    jinja = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    for one in (text, "{% raw %}" + text, text + "{% endraw %}{{", "{#" + text + "\n"):
        assert jinja.from_string(as_template(one, header)).render() == one


@given(st.lists(TEXT, min_size=1, max_size=6), st.from_regex(r"/[a-z]{1,9}", fullmatch=True))
def test_a_units_command_line_is_read_as_it_is_written(words: list[str], program: str) -> None:
    line = exec_line([program, *words])
    found = unitfile.settings([f"[Service]\nExecStart={line}\n"])
    if "\n" not in line and not line.endswith("\\") and line.isprintable():
        assert unitfile.exec_words(found["ExecStart"][0], "x.service", {}) == [program, *words]


@given(WORDS)
def test_args_give_the_arguments_back(words: list[str]) -> None:
    kept, _ = secrets.without(words)
    found = parse(kept, "sglang")
    standard: dict[str, Any] = {"port": 30000, "host": "0.0.0.0", "enable-metrics": True, "tp-size": 8}
    own = own_arguments(standard, found.given)
    merged = {**standard, **own}
    there = {name: value for name, value in merged.items() if value is not False}
    assert {name: str(value) for name, value in there.items()} == {
        name: str(value) for name, value in found.given.items()
    }


@settings(max_examples=60, deadline=None)
@given(
    WORDS,
    TEXT,
    st.sampled_from([None, "x.service", "y@1.service", r"odd\x2d.service"]),
    st.dictionaries(TEXT, st.one_of(TEXT, st.none()), max_size=3),
    st.lists(st.integers(0, 9), unique=True, max_size=3),
)
def test_whatever_runs_there_the_file_loads(
    words: list[str], path: str, name: str | None, variables: dict[str, str | None], gpus: list[int]
) -> None:
    line = shlex.join(["/v/bin/python", "-m", "sglang.launch_server", "--model-path", "/" + path, *words])
    found = server(line, gpus=gpus, unit=name, variables=variables)
    described = {name: unit(text_of("/x/start.sh") + path, name)} if name else {}
    with tempfile.TemporaryDirectory() as folder:
        fleet, _ = adopt_into(Path(folder), seen(found, units=described))
    assert fleet.hosts["box"].gpus.count == 8


@given(st.text(max_size=200))
def test_readers_of_a_host_take_any_text(text: str) -> None:
    unitfile.settings([text])
    unitfile.words(text)
    secrets.within(text)
    serving.command(text.split())


@given(
    st.from_regex(r"(hf_|sk-)[A-Za-z0-9]{16,30}", fullmatch=True), st.sampled_from(["A", "HF_TOKEN", "X_Y"])
)
def test_a_token_is_seen_wherever_it_stands(token: str, name: str) -> None:
    assert secrets.within(f"[Service]\nEnvironment=Q=1 {name}={token}\n")
    assert secrets.within(f"[Service]\nExecStart=/bin/x --model y --auth {token}\n")
    assert token not in secrets.without(["--model", token, f"--x={token}", token])[0]
