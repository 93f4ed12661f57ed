"""Bills of materials on the controller: files of them, and how they read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleetctl.environment.bom import load_bom, save_bom
from fleetctl.environment.bom_text import drifted, headline, screen
from fleetctl.errors import Exit, FleetError
from tests.environment.venvs import bom_of, make_venv, site
from tests.environment.wheels import make_wheel


@pytest.fixture(scope="module")
def bom(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("bom")
    venv = make_venv(folder / "venv", make_wheel(folder, "alpha", blob=2_000_000), make_wheel(folder, "beta"))
    (site(venv) / "beta" / "__init__.py").write_text("x")
    (site(venv) / "loop").symlink_to("loop")
    return bom_of(venv)


def test_a_bom_is_read_as_it_was_written(bom: dict[str, Any], tmp_path: Path) -> None:
    save_bom(bom, tmp_path / "a.json")
    assert load_bom(tmp_path / "a.json") == bom
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no schema"),
        ('{"schema": 2}', "schema 2; this fleetctl reads 1"),
        ('{"schema": 1, "kind": "venv"}', "it has no path"),
        ("\udcff", "not JSON"),
    ],
)
def test_what_is_no_bom_is_refused(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(FleetError) as caught:
        load_bom(file)
    assert caught.value.exit == Exit.INPUT
    assert what in caught.value.what
    assert caught.value.fix and caught.value.where == str(file)


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("distributions", {"a": 1}, "distributions is no list"),
        ("distributions", [{"name": "a"}], "distributions[0].version is missing"),
        ("distributions", ["a"], "distributions[0] is no object"),
        ("python", [], "python is no object"),
        ("abi", {"tag": 3, "torch": None, "cuda": {}}, "abi.tag is no text"),
        ("unowned", None, "unowned is no object"),
    ],
)
def test_a_bom_of_the_wrong_shape_names_the_key(
    bom: dict[str, Any], tmp_path: Path, key: str, value: Any, what: str
) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps({**bom, key: value}))
    with pytest.raises(FleetError) as caught:
        load_bom(file)
    assert (caught.value.exit, caught.value.where) == (Exit.INPUT, str(file))
    assert caught.value.what == f"not a bill of materials: {what}"


def test_files_that_cannot_be_read_or_written(bom: dict[str, Any], tmp_path: Path) -> None:
    for work in (lambda: load_bom(tmp_path / "none.json"), lambda: save_bom(bom, tmp_path / "no" / "a.json")):
        with pytest.raises(FleetError) as caught:
            work()
        assert caught.value.exit == Exit.INPUT


def test_one_screen_says_what_matters(bom: dict[str, Any]) -> None:
    lines, columns, rows = screen(bom)
    text = "\n".join(lines)
    assert bom["digest"] in text and bom["python"]["version"] in text
    assert "drift       1 files: beta (1)" in text
    assert "loop: a loop of links" in text
    assert len(lines) + len(rows) < 24
    assert rows[0] == ["alpha", "1.0", "10", "2 MB", "-"]
    assert len(columns) == len(rows[0])
    assert drifted(bom) == {"beta": 1}
    assert headline(bom).startswith(f"venv {bom['digest']}, 2 distributions, ")


def test_the_screen_of_a_broken_environment(bom: dict[str, Any]) -> None:
    broken = json.loads(json.dumps(bom))
    broken["python"] |= {"runs": False, "why": "it is a link to /gone"}
    broken["unowned"]["packages"] = ["sglang/sglang"]
    broken["abi"] |= {"torch": "2.11.0+cu128", "cuda": {"12": ["a", "b"], "13": ["c"]}}
    broken["twice"] = [{"name": "beta", "versions": ["1.0", "2.0"], "infos": ["x", "y"]}]
    text = "\n".join(screen(broken)[0])
    for said in (
        "DOES NOT RUN: it is a link to /gone",
        "sglang/sglang",
        "12 (2 libraries), 13 (1 libraries)",
        "beta 1.0 and 2.0",
    ):
        assert said in text
