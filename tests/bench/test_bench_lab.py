"""``bench run`` on a lab host: real swaps, real streams, and what stood there before comes back."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fleetctl.bench.records import Recording, load, recordings
from tests.e2e.conftest import Site, site  # noqa: F401

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
PROMPTS = "Say one.\nSay two two.\n"


@pytest.fixture
def fleet(site: Site) -> Site:  # noqa: F811
    """``good`` serves; ``fast`` and ``slow`` are to be measured."""
    for name, itl in (("good", 0.01), ("fast", 0.005), ("slow", 0.1)):
        site.service(name, address="0.0.0.0", itl=itl)
    suites = site.folder / "playbooks/bench"
    suites.mkdir(parents=True)
    (suites / "own.txt").write_text(PROMPTS)
    (suites / "quick.yaml").write_text("prompts: own.txt\nmax_tokens: 12\nrepeats: 2\n")
    site.run("deploy", "ct200", "--service", "good")
    return site


def last(fleet: Site) -> Recording:
    return load(recordings(fleet.folder)[0])


def bench(fleet: Site, *words: str, expect: int = 0) -> str:
    return fleet.run("bench", "ct200", *words, "--suite", "quick", expect=expect)


def serving(fleet: Site) -> str:
    slots = json.loads(fleet.run("status", "ct200", "--json"))["hosts"][0]["slots"]
    assert slots[0]["health"] == "ready"
    return str(slots[0]["service"])


def test_services_are_measured_in_turn_and_the_old_one_is_back(fleet: Site) -> None:
    plan = json.loads(bench(fleet, "fast", "slow", "--plan", "--json", expect=10))["plan"]
    assert [point["service"] for point in plan["points"]] == ["fast", "slow"] and plan["swaps"] == 4
    assert plan["requests"] == 12 and not recordings(fleet.folder) and fleet.active("good") == "active"

    lines = [json.loads(line) for line in bench(fleet, "fast", "slow", "--json").splitlines()]
    recording = last(fleet)
    assert recording.end.outcome == "done" and recording.problems == []
    counted = [one for one in recording.requests if not one.warmup]
    names = {point.id: point.service for point in recording.points}
    order = [(names[one.point], one.round, one.prompt) for one in counted]
    assert order == [(s, r, p) for r in (1, 2) for s in ("fast", "slow") for p in ("own-1", "own-2")]
    assert all(one.error is None and one.tokens == 12 and one.accepted for one in counted)
    fast, slow = recording.points
    assert fast.digest != slow.digest and fast.unit_sha256 != slow.unit_sha256
    assert (fast.via, fast.model["id"], fast.environment) == ("direct", "m", None)
    for point in recording.points:
        end = recording.ends[point.id]
        made = end.metrics["after"], end.metrics["before"]
        counters = [side["fleetctl_generated_tokens_total"] for side in made]
        assert (counters[0] - counters[1], end.outcome, end.visits) == (2 * 12 * 3, "done", 2)
        assert end.swap_s is not None and end.wall_s > 0 and end.clock_jump_s == 0
    assert recording.hosts[0].facts["hostname"] == "ct200"
    outcome = lines[-1]["outcome"]
    assert [point["requests"] for point in outcome["points"]] == [4, 4]
    assert outcome["points"][0]["tokens_per_second"] > outcome["points"][1]["tokens_per_second"]
    assert serving(fleet) == "good" and fleet.active("slow") == "inactive"


def test_a_server_on_the_loopback_is_reached_through_ssh(fleet: Site) -> None:
    fleet.service("fast", itl=0.005)
    bench(fleet, "fast", "--repeats", "1", "--concurrency", "3")
    (point,) = last(fleet).points
    assert point.via == "ssh" and point.concurrency == 3
    counted = [one for one in last(fleet).requests if not one.warmup]
    assert len(counted) == 6 and all(one.error is None for one in counted)
    assert serving(fleet) == "good"

    fleet.run("stop", "ct200")
    assert "as empty as before, fast is stopped" in bench(fleet, "fast", "--repeats", "1")
    assert [fleet.active(name) for name in ("good", "fast")] == ["inactive", "inactive"]


def test_a_service_that_does_not_start_is_left_out(fleet: Site) -> None:
    fleet.service("dead", die=0.1, says=["no room"])
    said = bench(fleet, "dead", "fast", "--repeats", "1", expect=5)
    assert "dead@c1 is left out" in said and "fast@c1 round 1: 2 requests" in said
    recording = last(fleet)
    ends = {recording.point(end.point).service: end.outcome for end in recording.ends.values()}
    assert ends == {"dead": "failed", "fast": "done"} and recording.end.outcome == "done"
    assert serving(fleet) == "good"


def test_interrupted_while_measuring_it_keeps_what_it_has(fleet: Site) -> None:
    fleet.service("slow", address="0.0.0.0", itl=1.5)
    process = fleet.start("bench", "ct200", "fast", "slow", "--suite", "quick", "--repeats", "1")
    fleet.until(process, "ct200/" + fleet.slot + "/fast@c1 round 1")
    wait_for_stream(fleet)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130 and "Traceback" not in err, out + err
    assert "interrupted after" in err and "good is back" in err
    recording = last(fleet)
    assert recording.end.outcome == "interrupted" and not recording.problems
    ends = {recording.point(end.point).service: end.outcome for end in recording.ends.values()}
    assert ends == {"fast": "done", "slow": "interrupted"}
    assert serving(fleet) == "good"


def test_killed_at_once_it_leaves_readable_records(fleet: Site) -> None:
    fleet.service("slow", address="0.0.0.0", itl=1.5)
    process = fleet.start("bench", "ct200", "fast", "slow", "--suite", "quick", "--repeats", "1")
    fleet.until(process, "ct200/" + fleet.slot + "/fast@c1 round 1")
    process.kill()
    process.communicate(timeout=60)
    recording = last(fleet)
    assert recording.end.outcome == "interrupted" and "killed" in recording.end.why
    assert sum(not one.warmup for one in recording.requests) >= 2
    assert "killed" in fleet.run("bench", "show", "last")


@contextmanager
def room(fleet: Site, kilobytes: int) -> Iterator[None]:
    """The disk of the records has no more than this."""
    place = fleet.folder / ".fleetctl/bench"
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_ends_it_in_a_line_and_the_old_one_is_back(fleet: Site) -> None:
    with room(fleet, 8):
        said = bench(fleet, "fast", "slow", "--repeats", "9", expect=1)
        recording = last(fleet)
    assert said.count("error: a record could not be written: No space left on device") == 1, said
    assert "fix: make room" in said and "what was measured is recorded" in said
    assert recording.problems == [] and any(not one.warmup for one in recording.requests)
    assert recording.end.outcome != "done" and serving(fleet) == "good"


def test_a_page_that_finds_no_room_is_said(fleet: Site) -> None:
    with room(fleet, 16):
        said = bench(fleet, "fast", "--repeats", "1", expect=1)
        assert last(fleet).end.outcome == "done"
    assert "error: the report cannot be written: No space left on device" in said and "records: " in said


def test_nothing_is_measured_beside_other_requests(fleet: Site) -> None:
    fleet.service("slow", address="0.0.0.0", itl=0.01, slow=600)
    fleet.services["slow"]["deadlines"]["drain"] = 3
    fleet.write()
    fleet.run("deploy", "ct200", "--service", "slow")
    body = json.dumps({"prompt": "slow", "max_tokens": 4})
    ask = f"curl -s -m 600 -d '{body}' 127.0.0.1:{fleet.port}/v1/completions"
    process = subprocess.Popen(stranger(fleet, ask), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_stream(fleet)
        said = bench(fleet, "slow", "--repeats", "1", expect=5)
        assert "1 request in flight at slow" in said and "nothing is measured" in said
        assert not last(fleet).requests
    finally:
        process.terminate()
        process.wait(20)


def stranger(fleet: Site, command: str) -> list[str]:
    options = ["-i", str(fleet.lab.identity), "-o", f"UserKnownHostsFile={fleet.lab.known_hosts}"]
    return ["ssh", *options, f"root@{fleet.lab.address('ct200')}", command]


def wait_for_stream(fleet: Site) -> None:
    """Until the slot's server says that a request is in flight."""
    look = f"curl -s -m 60 127.0.0.1:{fleet.port}/metrics | grep -q '^fleetctl_requests_running [1-9]'"
    fleet.until_on_host(look)


def test_arguments_that_would_not_reach_the_process_are_refused(fleet: Site) -> None:
    fleet.services["fast"]["mode"] = "tree"
    fleet.services["fast"]["drafter"] = "m"
    fleet.write()
    suite = fleet.folder / "playbooks/bench/quick.yaml"
    suite.write_text(suite.read_text() + "vary: {budget: [8, 16]}\n")
    said = bench(fleet, "fast", "--repeats", "1", expect=5)
    assert said.count("cannot be measured with other arguments (budget)") >= 2
    assert last(fleet).end.outcome == "failed" and fleet.active("good") == "active"


def test_another_interrupt_does_not_stop_the_putting_back(fleet: Site) -> None:
    fleet.service("good", address="0.0.0.0", shut=fleet.gate)
    fleet.service("slow", address="0.0.0.0", itl=1.5)
    fleet.run("deploy", "ct200", "--service", "good")
    fleet.hold()
    process = fleet.start("bench", "ct200", "slow", "--suite", "quick")
    process_waits(fleet, "slow")
    process.send_signal(signal.SIGINT)
    fleet.until_on_host(f"systemctl is-active -q {fleet.slot}-good.service")
    process.send_signal(signal.SIGINT)
    warned = fleet.until(process, "interrupt: ^C: what stood here before is being put back; ^C again")
    fleet.release()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130 and "Traceback" not in warned + err, out + warned + err
    assert "good is back" in err
    assert serving(fleet) == "good"


def test_the_end_of_a_ci_job_puts_back_too(fleet: Site) -> None:
    fleet.service("slow", address="0.0.0.0", itl=1.5)
    process = fleet.start("bench", "ct200", "slow", "--suite", "quick")
    process_waits(fleet, "slow")
    process.terminate()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130 and "good is back" in err, out + err


def process_waits(fleet: Site, name: str) -> None:
    """Until ``name`` serves and has a request in flight."""
    fleet.until_on_host(f"systemctl is-active -q {fleet.slot}-{name}.service")
    wait_for_stream(fleet)
