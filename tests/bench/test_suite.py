"""Suites and prompts: what files say, and what is refused, with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetctl.bench import prompts
from fleetctl.bench.prompts import load_prompts
from fleetctl.bench.suite import load_suite, suites
from fleetctl.errors import Exit, FleetError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", suites(ROOT))
def test_every_suite_of_the_repository_is_one(name: str) -> None:
    suite = load_suite(ROOT, name)
    assert suite.suite == name and suite.read_prompts(ROOT)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("suite: x\nrepeat: 3\n", 2, "unknown key repeat"),
        ("suite: x\nrepeats: 0\n", 2, "repeats is 0"),
        ("suite: x\nrepeats: 1000000000\n", 2, "repeats is 1000000000: should be less than or equal to 1000"),
        ("suite: x\nwarmup: 100000\n", 2, "less than or equal to 1000"),
        ("suite: x\nmax_tokens: 10000000\n", 2, "less than or equal to 1000000"),
        ("suite: x\ncontext_tokens: [10000000]\n", 2, "context_tokens[0] is 10000000"),
        ("suite: x\nconcurrency: [1, 100000]\n", 2, "concurrency[1] is 100000"),
        ("suite: x\nrepeats: three\n", 2, "repeats is 'three', not a whole number"),
        ("suite: x\norder: inter\n", 2, "order is 'inter'"),
        ("suite: x\nconcurrency: []\n", 2, "concurrency is an empty list: it needs at least 1 entry"),
        ("suite: x\nvary: {budget: []}\n", 2, "vary.budget"),
        ("suite: x\nvary:\n  budget: [8, [1]]\n", 3, "vary.budget[1]"),
        ("suite: x\ntime_limit: -1\n", 2, "time_limit is -1"),
        ("prompts:\n- name: a\n  txt: b\n", 3, "unknown key prompts[0].txt"),
        ("prompts:\n- name: a\n", 2, "exactly one of text and messages"),
        ("prompts:\n- {name: a, text: ''}\n", 2, "prompts[0] has an empty text"),
        ("prompts:\n- {name: a, text: b}\n- {name: a, text: c}\n", 3, "two prompts are called a"),
        ("prompts:\n- name: a\n  messages: [{role: assistant, content: b}]\n", 2, "none of a user"),
        ("prompts: 5\n", 1, "prompts is 5"),
        ("- a\n", 1, "describes no suite"),
        ("a: [\n", 2, "not YAML"),
    ],
)
def test_faults_are_named_with_their_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(FleetError) as caught:
        load_suite(tmp_path, str(path))
    assert said in caught.value.what and caught.value.where == f"x.yaml:{line}"
    assert caught.value.exit == Exit.INPUT


def test_an_unknown_suite_names_those_there_are() -> None:
    with pytest.raises(FleetError) as caught:
        load_suite(ROOT, "five-promts")
    assert "did you mean five-prompts?" in caught.value.fix


def test_prompts_come_from_beside_the_suite_or_from_the_fleet(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("Say one.\n\nSay two.\n")
    (tmp_path / "x.yaml").write_text("prompts: own.txt\n")
    suite = load_suite(tmp_path, str(tmp_path / "x.yaml"))
    assert [one.text for one in suite.read_prompts(ROOT)] == ["Say one.", "Say two."]
    assert suite.with_(repeats=7).read_prompts(ROOT) == suite.read_prompts(ROOT)
    (tmp_path / "y.yaml").write_text("prompts: five-prompts.yaml\n")
    assert len(load_suite(tmp_path, str(tmp_path / "y.yaml")).read_prompts(ROOT)) == 5


@pytest.mark.parametrize("name", ["five-promts.yaml", "five-promts.txt"])
def test_prompts_that_are_not_there_are_named_with_where_they_were_looked_for(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "z.yaml").write_text(f"prompts: {name}\n")
    with pytest.raises(FleetError, match=f"No such file: {name}, the prompts of the suite z") as caught:
        load_suite(tmp_path, str(tmp_path / "z.yaml")).read_prompts(ROOT)
    assert all(str(place) in caught.value.what for place in (tmp_path, ROOT / "playbooks/bench", ROOT))
    assert "did you mean five-prompts.yaml?" in caught.value.fix and caught.value.exit == Exit.INPUT
    with pytest.raises(FleetError, match=f"No such file: {name}") as caught:
        load_prompts(ROOT / "playbooks/bench" / name)
    assert "did you mean five-prompts.yaml?" in caught.value.fix


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("x.txt", "one prompt a line"),
        ("x.jsonl", "one conversation a line"),
        ("x.json", "list of conversations"),
    ],
)
def test_an_empty_file_is_told_what_its_form_needs(tmp_path: Path, name: str, fix: str) -> None:
    (tmp_path / name).write_text("[]" if name.endswith(".json") else "\n")
    with pytest.raises(FleetError, match="no prompt in the file") as caught:
        load_prompts(tmp_path / name)
    assert fix in caught.value.fix


def test_a_text_of_several_lines_is_parted_by_rulers(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("Read this:\nhello\n---\nAnd that.\n---\n")
    assert [(one.name, one.text) for one in load_prompts(path)] == [
        ("mine-1", "Read this:\nhello"),
        ("mine-2", "And that."),
    ]


def test_sharegpt_conversations(tmp_path: Path) -> None:
    said = [("system", "Be short."), ("human", "Hi"), ("gpt", "Hello."), ("human", "2+2?"), ("gpt", "4")]
    lines = [
        {"id": "c1", "conversations": [{"from": who, "value": what} for who, what in said]},
        {"messages": [{"role": "user", "content": "Write."}]},
    ]
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    first, second = load_prompts(path)
    assert first.name == "c1" and [one.role for one in first.messages] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert second.name == "chats-2" and second.conversation()[0].content == "Write."
    path.with_suffix(".json").write_text(json.dumps(lines))
    assert [one.messages for one in load_prompts(path.with_suffix(".json"))] == [
        first.messages,
        second.messages,
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[]", "no prompt in the file"),
        ("5", "no conversation"),
        ('{"conversations": []}', "no conversation"),
        ('{"conversations": [{"from": "gpt", "value": "x"}]}', "no conversation"),
        ('{"conversations": [{"from": "ghost", "value": "x"}]}', "unknown speaker 'ghost'"),
        ('{"conversations": [{"from": "human", "value": 5}]}', "says nothing"),
    ],
)
def test_what_is_no_conversation_is_refused(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(line)
    with pytest.raises(FleetError) as caught:
        load_prompts(path)
    assert said in caught.value.what and str(path) in caught.value.where


@given(st.binary(max_size=60), st.sampled_from(["yaml", "jsonl", "txt", "json"]))
@example(b"a\0", "txt")
@example(b'[{"messages": [{"role": "user", "content": "\\u0000"}]}]', "json")
@example(b'{"id": "\\u0000", "messages": [{"role": "user", "content": "a"}]}', "jsonl")
@example(b'prompts: [{name: a, text: "\\0"}]', "yaml")
def test_any_file_is_prompts_or_an_error_of_the_operator(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes, kind: str
) -> None:
    path = tmp_path_factory.mktemp("any") / f"x.{kind}"
    path.write_bytes(raw)
    try:
        found = load_prompts(path)
    except FleetError as error:
        assert error.exit == Exit.INPUT
    else:
        assert found and all(one.conversation() for one in found)
        assert len(prompts.digest(found)) == 16
