"""The record of a fleet rollout: what a later one reads of it, even where it ends in the middle of a line."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.errors import FleetError
from fleetctl.inventory.loader import load_fleet
from fleetctl.rollout.fleet_record import FleetRecord, done_before, host_digest

REQUEST = {"kind": "deploy", "service": "dflash"}
DIGESTS = {"a": "1", "b": "2", "c": "3"}


def write(root: Path, request: dict[str, str], **ends: str) -> FleetRecord:
    record = FleetRecord(root, request, {name: {"digest": digest} for name, digest in DIGESTS.items()}, {})
    for host, end in ends.items():
        record.write({"host": host, "step": "fleet", "state": "ok", "end": end})
    record.close()
    return record


def test_hosts_that_are_done_by_the_same_request_and_digest(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="no fleet rollout of this to resume"):
        done_before(tmp_path, REQUEST, DIGESTS)
    first = write(tmp_path, REQUEST, a="done", b="failed", c="not-begun")
    write(tmp_path, {**REQUEST, "service": "other"}, a="failed", b="done", c="done")
    assert done_before(tmp_path, REQUEST, DIGESTS) == (first.id, {"a"})
    assert done_before(tmp_path, REQUEST, {**DIGESTS, "a": "changed"}) == (first.id, set())
    assert done_before(tmp_path, REQUEST, {"b": "2"}) == (first.id, set())


def test_a_host_that_was_done_and_then_failed_is_not_done(tmp_path: Path) -> None:
    record = FleetRecord(tmp_path, REQUEST, {"a": {"digest": "1"}}, {})
    record.write({"host": "a", "end": "done"})
    record.write({"host": "a", "end": "failed"})
    record.close()
    assert done_before(tmp_path, REQUEST, DIGESTS)[1] == set()
    record.write({"host": "a", "end": "done"})


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 1))
def test_a_record_cut_anywhere_never_says_more_is_done(
    tmp_path_factory: pytest.TempPathFactory, kept: float
) -> None:
    root = tmp_path_factory.mktemp("record")
    record = write(root, REQUEST, a="done", b="unchanged", c="failed")
    whole = record.path.read_bytes()
    record.path.write_bytes(whole[: int(kept * len(whole))])
    try:
        assert done_before(root, REQUEST, DIGESTS)[1] <= {"a", "b"}
    except FleetError as error:
        assert "to resume" in error.what


def test_lines_of_many_threads_are_whole(tmp_path: Path) -> None:
    record = FleetRecord(tmp_path, REQUEST, {}, {})
    threads = [
        threading.Thread(target=lambda: [record.write({"host": "x" * 500}) for _ in range(50)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record.close()
    lines = [json.loads(line) for line in record.path.read_text().splitlines()]
    assert len(lines) == 401 and all(line.get("host") == "x" * 500 for line in lines[1:])


def test_the_digest_is_of_what_would_be_brought(tmp_path: Path) -> None:
    cases = Path(__file__).parents[1] / "inventory/cases/good"
    fleet = load_fleet(cases, ".")
    host = fleet.hosts["alpha"]
    first = host_digest(fleet, host, "dflash", REQUEST)
    assert first == host_digest(fleet, host, "dflash", REQUEST)
    assert first != host_digest(fleet, host, "plain", REQUEST)
    assert first != host_digest(fleet, host, "dflash", {**REQUEST, "fix": "yes"})
    other = host.services["dflash"].model_copy(update={"args": {"x": 1}})
    changed = host.model_copy(update={"services": {**host.services, "dflash": other}})
    assert first != host_digest(fleet, changed, "dflash", REQUEST)
    unrelated = host.model_copy(update={"description": "another word"})
    assert first == host_digest(fleet, unrelated, "dflash", REQUEST)
