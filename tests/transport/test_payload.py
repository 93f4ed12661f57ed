"""The packed agent: the same bytes for the same sources, and quick."""

from __future__ import annotations

import hashlib
import io
import time
import zipfile
from pathlib import Path

import fleetctl.agent
from fleetctl.transport.payload import payload


def test_the_same_sources_give_the_same_bytes() -> None:
    first = payload()
    payload.cache_clear()
    assert payload() == first
    assert first.digest == hashlib.sha256(first.data).hexdigest()[:12]


def test_it_holds_every_module_of_the_agent_and_nothing_else() -> None:
    sources = {f"fleetctl/agent/{path.name}" for path in Path(fleetctl.agent.__file__).parent.glob("*.py")}
    with zipfile.ZipFile(io.BytesIO(payload().data)) as archive:
        assert set(archive.namelist()) == {*sources, "__main__.py", "fleetctl/__init__.py"}
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_packing_is_quick() -> None:
    begin = time.perf_counter()
    for _ in range(20):
        payload.cache_clear()
        payload()
    assert (time.perf_counter() - begin) / 20 < 0.05
