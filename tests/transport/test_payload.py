"""The packed agent: the same bytes for the same sources, and quick."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fleetctl
from fleetctl.transport.payload import pack, payload, sources
from tests.agent.pythons import pythons


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An operator's cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    payload.cache_clear()
    yield tmp_path / "cache" / "fleetctl"
    payload.cache_clear()


def test_the_same_sources_give_the_same_bytes() -> None:
    first = payload()
    assert pack(sources()) == first
    code = "from fleetctl.transport.payload import pack, sources; print(pack(sources()).digest)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == first.digest == hashlib.sha256(first.data).hexdigest()[:12]


def test_what_was_packed_is_kept_and_taken_only_where_it_is_whole(cache: Path) -> None:
    first = payload()
    (kept,) = cache.iterdir()
    assert kept.read_bytes() == first.data
    assert (cache.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o700, 0o600)
    kept.write_bytes(first.data[:1000])
    payload.cache_clear()
    assert payload() == first
    os.utime(kept, (1, 1))
    assert kept.read_bytes() == first.data


def test_a_cache_that_cannot_be_written_costs_only_time(cache: Path) -> None:
    cache.parent.write_text("no folder")
    assert payload() == pack(sources())


@pytest.mark.parametrize("python", pythons())
def test_a_host_with_another_python_takes_the_sources(python: str, tmp_path: Path) -> None:
    packed = tmp_path / "agent.pyz"
    packed.write_bytes(payload().data)
    code = (
        f"import sys; sys.path.insert(0, {str(packed)!r}); import fleetctl.agent.serve as serve\n"
        "print(sys.version_info[:2], serve.__file__)"
    )
    done = subprocess.run([python, "-I", "-S", "-c", code], capture_output=True, text=True)
    same = done.stdout.startswith(str(sys.version_info[:2]))
    assert done.stdout.strip().endswith(".pyc" if same else ".py"), done.stderr


def test_it_holds_what_runs_on_hosts_and_nothing_else() -> None:
    package = Path(fleetctl.__file__).parent
    paths = [path for part in ("agent", "abi") for path in (package / part).rglob("*.py")]
    own = {f"fleetctl/{path.relative_to(package).as_posix()}" for path in paths}
    with zipfile.ZipFile(io.BytesIO(payload().data)) as archive:
        names = {name for name in archive.namelist() if not name.startswith("elftools/")}
        whole = {*own, "__main__.py", "fleetctl/__init__.py"}
        assert names == {*whole, *(f"{name}c" for name in whole)}
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
