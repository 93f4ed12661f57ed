"""A folder of wheels that is all the index pip has, and the real uv in it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fleetctl.environment.platform import HostPlatform
from fleetctl.environment.wheelhouse import BUILDER


@pytest.fixture(scope="session")
def builder_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """uv's wheel for this machine, by pip (from its cache the second time)."""
    folder = tmp_path_factory.mktemp("uv")
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        str(folder),
    ]
    subprocess.run([*argv, BUILDER], check=True)
    return next(folder.glob("uv-*.whl"))


@pytest.fixture(scope="session")
def uv(builder_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """uv's binary, out of its wheel."""
    path = tmp_path_factory.mktemp("uv-binary") / "uv"
    with zipfile.ZipFile(builder_wheel) as archive:
        packed = next(name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
        path.write_bytes(archive.read(packed))
    path.chmod(0o755)
    return path


@pytest.fixture
def index(tmp_path: Path, builder_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, but for uv, that pip takes for all there is."""
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / builder_wheel.name).hardlink_to(builder_wheel)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def platform() -> HostPlatform:
    """A Debian 12 host."""
    return HostPlatform("3.11.2", "x86_64", "2.36")
