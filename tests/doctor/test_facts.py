"""Facts on the controller: in files, of another schema, with parts missing, on one screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.doctor import facts, facts_text
from fleetctl.errors import Exit, FleetError

SMALL: dict[str, Any] = {
    "schema": 1,
    "hostname": "box",
    "gpus": {
        "gpus": [
            {
                "index": 0,
                "name": "A",
                "compute_cap": "12.0",
                "memory_used_mib": 5,
                "memory_total_mib": 9,
                "state": "ok",
            },
            {"index": 1, "name": None, "compute_cap": None, "state": "lost", "said": "GPU is lost"},
        ],
        "apps": [{"pid": 7, "name": "python3", "used_mib": 5, "gpu": 0, "unit": None}],
        "error": "nvidia-smi ended with status 15",
    },
    "driver": {"version": "580.1", "cuda": "13.0"},
    "toolkits": [{"path": "/usr/local/cuda-12.8", "version": "12.8", "default": True}],
    "environments": {
        "/v": {"error": "there is no such environment"},
        "/w": {"distributions": [], "files": 3},
    },
    "models": {
        "/m": {"exists": True, "config": None, "bytes": 5, "fs": "tmpfs", "problems": ["x: not there"]}
    },
    "kernel_log": {
        "xid": [{"time": None, "bus_id": "0000:21:00", "code": 79}],
        "oom": [{"pid": 1, "name": "py"}],
    },
    "deep": [{"gpu": 0, "ok": False, "error": "has not ended"}],
    "errors": {"topology": "no answer within 11 s"},
}
KEYS = st.sampled_from(
    ["gpus", "apps", "gpus", "schema", "toolkits", "models", "errors", "deep", "kernel_log", "index"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    facts.save_facts(SMALL, tmp_path / "box.json")
    assert facts.load_facts(tmp_path / "box.json") == SMALL
    assert [file.name for file in tmp_path.iterdir()] == ["box.json"]
    with pytest.raises(FleetError) as caught:
        facts.save_facts(SMALL, tmp_path / "none" / "box.json")
    assert caught.value.exit == Exit.INPUT


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{torn", "not JSON"),
        ("[]", "no schema"),
        ('{"hostname": "old"}', "no schema"),
        ('{"schema": 0}', "schema 0; this fleetctl reads 1"),
        ('{"schema": 9}', "schema 9; this fleetctl reads 1"),
        ('{"schema": 1, "distributions": []}', "a bill of materials"),
        ("[" * 100_000, "not JSON"),
        ("\xff\xfe", "not JSON"),
    ],
)
def test_a_file_that_is_not_what_it_says(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "facts.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(FleetError) as caught:
        facts.load_facts(file)
    assert (caught.value.exit, what in caught.value.what) == (Exit.INPUT, True)
    assert "fleetctl facts HOST --json -o FILE" in caught.value.fix
    with pytest.raises(FleetError):
        facts.load_facts(tmp_path / "gone.json")


def test_looking_up() -> None:
    assert facts.pick(SMALL, "driver", "cuda") == "13.0"
    assert facts.pick(SMALL, "driver", "cuda", "deeper") is None
    assert facts.pick(SMALL, "gpus", "gpus", 1, "state") == "lost"
    assert facts.pick(SMALL, "gpus", "gpus", 9, default=3) == 3
    assert facts.capabilities(SMALL) == ["12.0"]
    assert facts.capabilities(SMALL, [1]) == []
    assert facts.default_toolkit(SMALL) == SMALL["toolkits"][0]
    assert facts.bom_of(SMALL, "/v") is None and facts.bom_of(SMALL, "/w") == SMALL["environments"]["/w"]
    assert (
        facts.version("12.8.93")
        == (12, 8, 93)
        > facts.version("12.8")
        > facts.version("12")
        > facts.version(None)
    )


def test_one_screen_names_what_is_wrong() -> None:
    text = "\n".join(facts_text.lines(SMALL))
    for words in (
        "there is no such environment",
        "x: not there",
        "Xid 79",
        "py (pid 1)",
        "FAILED: has not ended",
    ):
        assert words in text
    assert "not read     gpus: nvidia-smi ended with status 15" in text
    assert [row[-1] for row in facts_text.rows(SMALL)] == ["ok", "lost GPU is lost"]
    assert facts_text.rows(SMALL)[0][4] == "python3 (pid 7)"


@given(JSON)
def test_no_facts_break_looking_up_or_the_screen(found: Any) -> None:
    facts.gpus(found), facts.capabilities(found), facts.default_toolkit(found)
    if isinstance(found, dict):
        assert len(facts_text.lines(found)) >= 3
        facts_text.rows(found)


def test_gathered_here_without_ssh(tmp_path: Path) -> None:
    found = facts.gather_local(environments=[str(tmp_path / "none")])
    assert found["schema"] == facts.SCHEMA
    assert "error" in found["environments"][str(tmp_path / "none")]
    facts.save_facts(found, tmp_path / "here.json")
    assert facts.load_facts(tmp_path / "here.json") == json.loads(json.dumps(found))
