"""A fleet folder to render units in: the repository's inventories and templates."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fleetctl.inventory.loader import Fleet, load_fleet

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of what an operator writes, to change."""
    for name in ("inventories", "templates"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def lab_fleet() -> Fleet:
    """The lab's hosts."""
    return load_fleet(REPOSITORY, "inventories/lab")


@pytest.fixture
def own_fleet() -> Fleet:
    """The operator's example hosts."""
    return load_fleet(REPOSITORY, "inventories")


@pytest.fixture
def environment(tmp_path: Path) -> str:
    """A venv's folder with a Python that can be run, as systemd-analyze verify looks for it."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    return str(tmp_path / "venv")
