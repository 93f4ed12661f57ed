"""A real sshd for each module that asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.transport.sshd import Sshd


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """An sshd shared by a module's tests."""
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture
def start_sshd(tmp_path: Path) -> Iterator[Callable[[str], Sshd]]:
    """Start an sshd of the test's own, with extra lines at the top of its configuration."""
    started: list[Sshd] = []

    def start(extra: str = "") -> Sshd:
        folder = tmp_path / f"sshd{len(started)}"
        folder.mkdir()
        started.append(Sshd(folder, extra))
        return started[-1]

    yield start
    for server in started:
        server.stop()
