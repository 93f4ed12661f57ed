"""fleetctl's own wheel: the same sources make the same bytes, and it installs."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename
from wheel.wheelfile import WheelFile

from fleetctl.environment import localwheel


def test_same_sources_make_the_same_bytes(tmp_path: Path) -> None:
    first = localwheel.write_local_wheel("standalone", tmp_path / "a")
    time.sleep(2.1)
    previous = os.umask(0o077)
    try:
        second = localwheel.write_local_wheel("standalone", tmp_path / "b")
    finally:
        os.umask(previous)
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_it_is_a_wheel_of_the_server_alone(tmp_path: Path) -> None:
    path = localwheel.write_local_wheel("standalone", tmp_path)
    name, version, _, tags = parse_wheel_filename(path.name)
    assert (name, {str(tag) for tag in tags}) == ("fleetctl-standalone", {"py3-none-any"})
    assert version.local is not None
    with WheelFile(path) as wheel:
        names = wheel.namelist()
        for entry in names:
            if not entry.endswith("/RECORD"):
                wheel.read(entry)
    tops = {"/".join(entry.split("/")[:2]) for entry in names if entry.startswith("fleetctl/")}
    assert tops == {"fleetctl/__init__.py", "fleetctl/errors.py", "fleetctl/standalone", "fleetctl/ddtree"}
    assert not [entry for entry in names if "__pycache__" in entry]


def test_other_sources_make_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = localwheel.write_local_wheel("standalone", tmp_path)
    monkeypatch.setitem(localwheel.PARTS, "standalone", ("__init__.py", "errors.py", "standalone"))
    second = localwheel.write_local_wheel("standalone", tmp_path)
    assert first.name != second.name


def test_no_draft_is_left(tmp_path: Path) -> None:
    path = localwheel.write_local_wheel("standalone", tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    assert zipfile.ZipFile(path).testzip() is None
