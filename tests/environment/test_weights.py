"""A model's digest: of names and contents, read once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetctl.environment import wheelhouse
from fleetctl.environment.weights import fingerprint
from fleetctl.errors import Exit, FleetError


def model(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_digest_is_of_names_and_contents_alone(tmp_path: Path) -> None:
    one, sizes = fingerprint(model(tmp_path / "a", config="{}", weights="www"), tmp_path / "c")
    assert sizes == {"config": 2, "weights": 3}
    copy = model(tmp_path / "b", weights="www", config="{}")
    os.utime(copy / "config", (1, 1))
    assert fingerprint(copy, tmp_path / "c")[0] == one
    (copy / "config").rename(copy / "konfig")
    assert fingerprint(copy, tmp_path / "c")[0] != one


def test_unchanged_files_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = model(tmp_path / "a", config="{}", weights="www")
    first = fingerprint(source, tmp_path / "c")
    read: list[str] = []
    real = wheelhouse.sha256
    monkeypatch.setattr(wheelhouse, "sha256", lambda path: (read.append(path.name), real(path))[1])
    assert fingerprint(source, tmp_path / "c") == first
    assert read == []
    (source / "weights").write_text("wwx")
    assert fingerprint(source, tmp_path / "c")[0] != first[0]
    assert read == ["weights"]


def test_a_damaged_memory_is_made_anew(tmp_path: Path) -> None:
    source = model(tmp_path / "a", config="{}")
    first = fingerprint(source, tmp_path / "c")
    for memory in (tmp_path / "c").iterdir():
        memory.write_text("[1")
    assert fingerprint(source, tmp_path / "c") == first


@pytest.mark.parametrize("kind", ["missing", "file", "empty", "link"])
def test_a_source_that_cannot_be_sent(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "a"
    if kind == "file":
        source.write_text("x")
    if kind in ("empty", "link"):
        source.mkdir()
    if kind == "link":
        (source / "weights").symlink_to("/etc/hostname")
    with pytest.raises(FleetError) as caught:
        fingerprint(source, tmp_path / "c")
    assert caught.value.exit == Exit.INPUT
    assert str(source) in caught.value.where


def test_digests_that_cannot_be_kept_are_computed_again(tmp_path: Path) -> None:
    source, cache = model(tmp_path / "a", weights="www"), tmp_path / "c"
    cache.write_text("no folder")
    assert fingerprint(source, cache) == fingerprint(source, tmp_path / "d")
    full = Path("/dev/full")
    (kept,) = (tmp_path / "d").iterdir()
    kept.unlink()
    kept.with_suffix(f".{os.getpid()}.new").symlink_to(full)
    assert fingerprint(source, tmp_path / "d") == fingerprint(source, cache)
    assert list((tmp_path / "d").iterdir()) == []
