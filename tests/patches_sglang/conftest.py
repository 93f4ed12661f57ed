"""The real wheel of sglang 0.5.11: from the folder FLEETCTL_WHEELS names, else from the package registry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NAME = "sglang-0.5.11-cp312-cp312-manylinux_2_34_x86_64.whl"
DOWNLOAD = (
    "download --quiet --no-deps --only-binary=:all: --implementation cp --python-version 3.12 "
    "--platform manylinux_2_34_x86_64 sglang==0.5.11"
)


@pytest.fixture(scope="session")
def sglang_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it was published (10 MB)."""
    kept = os.environ.get("FLEETCTL_WHEELS")
    if kept and (Path(kept) / NAME).is_file():
        return Path(kept) / NAME
    folder = tmp_path_factory.mktemp("wheels")
    argv = [sys.executable, "-m", "pip", *DOWNLOAD.split(), "--dest", str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)
    assert (folder / NAME).is_file(), f"sglang 0.5.11 cannot be downloaded: {done.stderr.strip()[-400:]}"
    return folder / NAME
