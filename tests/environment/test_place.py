"""How the place of an environment is read, and what is said of what fits nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.environment.place import Place, choose, host_place, parse_place
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet, load_fleet

REPOSITORY = Path(__file__).parents[2]
BUILT = {"name": "standalone-cpu", "built_at": "2026-11-29T17:05:01Z", "slots": {}}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """The repository's example inventory, beside one specification and a host of two environments."""
    root = tmp_path_factory.mktemp("fleet")
    shutil.copytree(REPOSITORY / "inventories", root / "inventories")
    spec = "name: standalone-cpu\npython: '3.12'\nrequirements: []\n"
    (root / "envs").mkdir()
    (root / "envs" / "standalone-cpu.yaml").write_text(spec)
    (root / "envs" / "ct129.yaml").write_text(spec.replace("standalone-cpu", "ct129"))
    bare = "host: spare\ngpus: {count: 0}\nslots: {}\nservices: {}\n"
    (root / "inventories" / "spare.yaml").write_text(bare)
    two = bare.replace("spare", "two") + "environments:\n  a: {path: /srv/a}\n  b: {spec: standalone-cpu}\n"
    (root / "inventories" / "two.yaml").write_text(two)
    return load_fleet(root, "inventories")


def read(fleet: Fleet, text: str) -> tuple[str | None, str | None, str | None, str | None]:
    place = parse_place(fleet, text)
    host = place.host.name if place.host else None
    return host, place.path, place.name, place.spec or (str(place.file) if place.file else None)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("ct200", ("ct200", None, "sglang-0.5.11-ddtree", None)),  # the environment of its default slot
        ("ct129:reference", ("ct129", "/root/ml-env", None, None)),
        ("ct200:training", ("ct200", "/root/venv", None, None)),
        ("ct200:/usr/bin/python3", ("ct200", "/usr/bin/python3", None, None)),
        ("ct200:/root/venv/", ("ct200", "/root/venv", None, None)),
        ("two:b", ("two", None, "standalone-cpu", None)),
        ("ct200:serving", ("ct200", None, "serving", None)),
        (
            "ct200:serving-0123456789ab",
            ("ct200", "/var/lib/fleetctl/envs/serving-0123456789ab", None, None),
        ),
        ("standalone-cpu", (None, None, None, "standalone-cpu")),
        ("envs/standalone-cpu", (None, None, None, "standalone-cpu")),
        ("envs/standalone-cpu.yaml", (None, None, None, "standalone-cpu")),
        ("envs/ct129", (None, None, None, "ct129")),
    ],
)
def test_each_form(fleet: Fleet, text: str, meant: tuple[str | None, ...]) -> None:
    assert read(fleet, text) == meant


def test_a_file(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ct129.json", "odd:name.json", "plain"):
        Path(name).write_text("{}")
        assert read(fleet, name) == (None, None, None, name)
    assert read(fleet, str(tmp_path / "plain"))[3] == str(tmp_path / "plain")


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ("", "not the place", "HOST:/path"),
        ("ct200:\x1b[2J", "not the place", "HOST:/path"),
        ("ct20", "ct20 is no host, no specification and no file", "did you mean ct200?"),
        ("ct20:/root/venv", "no host ct20", "did you mean ct200?"),
        ("standalone-gpu", "is no host", "did you mean standalone-cpu?"),
        ("envs/standalone-gpu", "no specification standalone-gpu", "did you mean standalone-cpu?"),
        ("ct200:", "nothing behind ct200:", "environments of ct200 in its inventory: sglang, training"),
        ("ct200:root/venv", "root/venv behind ct200:", "ct200:/path"),
        ("ct200:/root/../etc", "has no ..", "from / on"),
        ("nowhere/bom.json", "no file nowhere/bom.json", "HOST:NAME"),
        ("spare", "spare names no environment", "spare:/path"),
        ("two", "which environment of two? It has 2", "two:a or two:b"),
        ("ct129", "ct129 is a host and a specification", "ct129:NAME for its environment, or envs/ct129"),
        ("/", "is a folder here", "HOST:/path"),
        ("/dev/null", "/dev/null is no BOM", "env capture"),
    ],
)
def test_what_fits_nothing_or_too_much(fleet: Fleet, text: str, what: str, fix: str) -> None:
    with pytest.raises(FleetError) as caught:
        parse_place(fleet, text)
    assert caught.value.exit == Exit.INPUT
    assert what in caught.value.what
    assert fix in caught.value.fix


def test_a_file_of_nearly_that_name(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "reference.json").write_text("{}")
    with pytest.raises(FleetError) as caught:
        parse_place(fleet, str(tmp_path / "refrence.json"))
    assert f"did you mean {tmp_path / 'reference.json'}?" in caught.value.fix


def test_what_must_be_on_a_host(fleet: Fleet) -> None:
    assert host_place(fleet, "ct200:training").path == "/root/venv"
    with pytest.raises(FleetError, match="is on no host"):
        host_place(fleet, "envs/ct129")


def named(fleet: Fleet, name: str) -> Place:
    return parse_place(fleet, f"two:{name}")


def test_a_built_environment_by_its_name_alone(fleet: Fleet) -> None:
    one: dict[str, Any] = {**BUILT, "path": "/var/lib/fleetctl/envs/standalone-cpu-0123456789ab"}
    assert choose(named(fleet, "standalone-cpu"), [one]) == one["path"]
    other = {**one, "path": one["path"].replace("0123", "4567"), "slots": {"native": "current"}}
    with pytest.raises(FleetError) as caught:
        choose(named(fleet, "standalone-cpu"), [one, other])
    assert "two:standalone-cpu-4567456789ab" in caught.value.fix
    assert any("native (current)" in line for line in caught.value.evidence)
    with pytest.raises(FleetError) as caught:
        choose(named(fleet, "standalon-cpu"), [one])
    assert "did you mean standalone-cpu?" in caught.value.fix


def test_an_environment_of_the_inventory_that_is_not_built_yet(fleet: Fleet) -> None:
    with pytest.raises(FleetError) as caught:
        choose(named(fleet, "b"), [])
    assert caught.value.exit == Exit.INPUT
    assert caught.value.what == "the environment standalone-cpu is not built on two yet"
    assert caught.value.fix == "fleetctl env build two standalone-cpu"


@given(st.text(max_size=40))
def test_any_text_is_a_place_or_an_error_of_input(fleet: Fleet, text: str) -> None:
    try:
        place = parse_place(fleet, text)
    except FleetError as error:
        assert error.exit == Exit.INPUT and error.fix
    else:
        assert sum(part is not None for part in (place.host, place.file, place.spec)) == 1
