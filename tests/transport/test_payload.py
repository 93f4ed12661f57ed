"""The packed agent: the same bytes for the same sources, and quick."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fleetctl
from fleetctl.transport.payload import payload
from tests.agent.pythons import pythons


def test_the_same_sources_give_the_same_bytes() -> None:
    first = payload()
    payload.cache_clear()
    assert payload() == first
    assert first.digest == hashlib.sha256(first.data).hexdigest()[:12]


def test_it_holds_what_runs_on_hosts_and_nothing_else() -> None:
    package = Path(fleetctl.__file__).parent
    own = {
        f"fleetctl/{part}/{path.name}" for part in ("agent", "abi") for path in (package / part).glob("*.py")
    }
    with zipfile.ZipFile(io.BytesIO(payload().data)) as archive:
        names = {name for name in archive.namelist() if not name.startswith("elftools/")}
        assert names == {*own, "__main__.py", "fleetctl/__init__.py"}
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize("python", pythons())
def test_every_module_of_abi_can_be_imported_out_of_it(python: str, tmp_path: Path) -> None:
    packed = tmp_path / "agent.pyz"
    packed.write_bytes(payload().data)
    modules = [path.stem for path in (Path(fleetctl.__file__).parent / "abi").glob("*.py")]
    code = (
        f"import sys; sys.path.insert(0, {str(packed)!r}); import importlib\n"
        f"for name in {modules}: importlib.import_module('fleetctl.abi.' + name)\n"
        f"from fleetctl.abi.elf import read_library; print(read_library(sys.executable).machine)"
    )
    done = subprocess.run([python, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (os.uname().machine, "")


def test_the_agent_starts_without_what_it_seldom_needs(tmp_path: Path) -> None:
    packed = tmp_path / "agent.pyz"
    packed.write_bytes(payload().data)
    code = (
        f"import sys; sys.path.insert(0, {str(packed)!r}); import fleetctl.agent.serve\n"
        "print([name for name in sys.modules if name.startswith(('elftools', 'fleetctl.abi'))])"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
