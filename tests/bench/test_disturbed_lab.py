"""What is measured is swapped, restarted or stopped under the measurement: it is noticed, and never averaged."""

from __future__ import annotations

import getpass
import json

import pytest

from fleetctl.bench.records import glance, recordings
from tests.bench.test_bench_lab import fleet, last, process_waits, serving  # noqa: F401
from tests.e2e.conftest import Site, site  # noqa: F401
from tests.warm import Command

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]


def measuring(fleet: Site, *words: str, itl: float = 2) -> Command:  # noqa: F811
    """A bench of ``slow`` and ``fast`` whose first request is in flight at ``slow``, for 12 times ``itl``."""
    fleet.service("slow", address="0.0.0.0", itl=itl)
    fleet.services["slow"]["deadlines"]["drain"] = 5
    fleet.write()
    process = fleet.start("bench", "ct200", "slow", "fast", "--suite", "quick", *words)
    process_waits(fleet, "slow")
    return process


def ends(fleet: Site) -> dict[str, tuple[str, str]]:  # noqa: F811
    recording = last(fleet)
    return {recording.point(end.point).service: (end.outcome, end.why) for end in recording.ends.values()}


def test_a_swap_under_it_fails_the_point_and_its_requests_do_not_count(fleet: Site) -> None:  # noqa: F811
    process = measuring(fleet, "--repeats", "1")
    fleet.run("swap", "slow", "good", "--host", "ct200")
    out, err = process.communicate(timeout=280)
    assert process.returncode == 5 and "Traceback" not in err, out + err
    outcome, why = ends(fleet)["slow"]
    assert outcome == "failed" and f"of {getpass.getuser()})" in why, why
    assert "good took its place" in why and why in out + err
    assert ends(fleet)["fast"][0] == "done" and serving(fleet) == "good"
    recording = last(fleet)
    slow = [one for one in recording.requests if recording.point(one.point).service == "slow"]
    assert any(not one.warmup for one in slow) and not any(one.counts for one in slow)
    assert "No request failed" not in out
    assert glance(recordings(fleet.folder)[0]).failed == sum(not one.warmup for one in slow)


def test_what_another_has_put_there_meanwhile_stays_in_the_end(fleet: Site) -> None:  # noqa: F811
    assert serving(fleet) == "good"
    process = measuring(fleet, "--repeats", "1")
    fleet.run("swap", "slow", "fast", "--host", "ct200")
    out, err = process.communicate(timeout=280)
    assert process.returncode == 5 and "another rollout has put fast there" in out + err, out + err
    assert ends(fleet)["fast"][0] == "done" and serving(fleet) == "fast"
    fleet.run("swap", "fast", "good", "--host", "ct200")


def test_a_second_measurement_of_a_slot_is_refused_and_changes_nothing(fleet: Site) -> None:  # noqa: F811
    process = measuring(fleet, "--repeats", "1")
    said = fleet.run("bench", "ct200", "fast", "--suite", "quick", expect=4)
    assert f"being measured by {getpass.getuser()}" in said and "abort" not in said
    assert serving(fleet) == "slow"
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0 and serving(fleet) == "good", out + err


def test_a_restart_under_it_fails_the_point(fleet: Site) -> None:  # noqa: F811
    process = measuring(fleet, "--repeats", "1", "--json", itl=1)
    fleet.lab.run("ct200", f"systemctl restart {fleet.slot}-slow.service")
    out, err = process.communicate(timeout=280)
    assert process.returncode == 5, out + err
    failed = json.loads(out.splitlines()[-1])["outcome"]["failed"]
    assert [error["what"].endswith("slow.service was restarted") for error in failed.values()] == [True]


def test_a_service_that_dies_is_told_from_one_that_somebody_touched(fleet: Site) -> None:  # noqa: F811
    process = measuring(fleet, "--repeats", "1", itl=1)
    fleet.lab.run("ct200", f"systemctl kill -s KILL {fleet.slot}-slow.service")
    out, err = process.communicate(timeout=280)
    assert process.returncode == 5, out + err
    outcome, why = ends(fleet)["slow"]
    assert outcome == "failed" and ("slow.service ended, and is" in why or "slow.service failed" in why), why
    assert "fleetctl logs ct200 slow tells why" in out + err and "fleetctl history" not in out + err


def test_a_service_stopped_by_hand_is_not_asked_on(fleet: Site) -> None:  # noqa: F811
    (fleet.folder / "playbooks/bench/own.txt").write_text("".join(f"Say {n}.\n" for n in range(8)))
    process = measuring(fleet, "--repeats", "3", "--order", "blocks")
    fleet.lab.run("ct200", f"systemctl stop {fleet.slot}-slow.service")
    out, err = process.communicate(timeout=280)
    assert process.returncode == 5, out + err
    outcome, why = ends(fleet)["slow"]
    assert outcome == "failed" and "does not run any more: it is" in why
    assert "fleetctl logs ct200 slow tells why" in out + err
    recording = last(fleet)
    slow = [one for one in recording.requests if recording.point(one.point).service == "slow"]
    assert 1 <= len(slow) <= 3, [(one.prompt, one.error) for one in slow]
    assert ends(fleet)["fast"][0] == "done" and serving(fleet) == "good"


def test_others_see_who_measures_until_it_is_over_or_killed(fleet: Site) -> None:  # noqa: F811
    assert "being measured" not in fleet.run("status", "ct200")
    process = measuring(fleet, "--repeats", "1")
    words = f"being measured by {getpass.getuser()} from "
    said = fleet.run("status", "ct200")
    assert words in said and "(fleetctl bench ct200 slow fast" in said
    plan = fleet.run("swap", "slow", "good", "--host", "ct200", "--plan", expect=10)
    assert f"warning: the slot is {words}" in plan
    assert f"warning: the slot is {words}" in fleet.run(
        "stop", "ct200", "--slot", fleet.slot, "--plan", expect=10
    )
    process.kill()
    process.communicate(timeout=60)
    fleet.until_on_host(f"flock -n /run/fleetctl/{fleet.slot}.measured true")
    assert "being measured" not in fleet.run("status", "ct200")
    metrics = f"curl -s -m 60 127.0.0.1:{fleet.port}/metrics"
    fleet.until_on_host(
        f"{metrics} | grep -q '^fleetctl_requests_running 0'"
    )  # the killed one's stream is over

    process = measuring(fleet, "--repeats", "1")
    assert f"is {words}" in fleet.run("swap", "slow", "good", "--host", "ct200")
    out, err = process.communicate(timeout=280)
    assert process.returncode == 5 and words not in out + err, out + err
    assert "being measured" not in fleet.run("status", "ct200")
