"""Work on many hosts at once: results and errors side by side."""

from __future__ import annotations

import threading

import pytest

from fleetctl.errors import Exit, FleetError
from fleetctl.transport.fleet import exit_code, on_hosts
from tests.transport.sshd import TestHost

HOSTS = [TestHost(f"box{number}") for number in range(50)]


def test_results_in_order_with_the_errors_of_those_that_failed() -> None:
    def work(host: TestHost) -> str:
        if host.name.endswith("3"):
            raise FleetError("no answer", exit=Exit.UNREACHABLE)
        return host.name.upper()

    results = on_hosts(HOSTS, work)
    assert list(results) == [host.name for host in HOSTS]
    assert results["box1"] == "BOX1"
    failed = [name for name, result in results.items() if isinstance(result, FleetError)]
    assert failed == ["box3", "box13", "box23", "box33", "box43"]
    assert exit_code(results) == Exit.PARTIAL


def test_hosts_do_not_wait_for_each_other() -> None:
    together = threading.Barrier(10, timeout=120)
    results = on_hosts(HOSTS[:10], lambda host: together.wait() >= 0)
    assert all(results.values())


def test_a_bug_is_raised_and_not_taken_for_a_hosts_error() -> None:
    with pytest.raises(ZeroDivisionError):
        on_hosts(HOSTS[:2], lambda host: 1 / 0)


def test_exit_codes() -> None:
    unreached = FleetError("", exit=Exit.UNREACHABLE)
    refused = FleetError("", exit=Exit.PREFLIGHT)
    assert exit_code({}) == Exit.OK
    assert exit_code({"a": 1, "b": 2}) == Exit.OK
    assert exit_code({"a": refused}) == Exit.PREFLIGHT
    assert exit_code({"a": unreached, "b": unreached}) == Exit.UNREACHABLE
    assert exit_code({"a": unreached, "b": refused}) == Exit.PARTIAL
    assert exit_code({"a": 1, "b": unreached}) == Exit.PARTIAL
