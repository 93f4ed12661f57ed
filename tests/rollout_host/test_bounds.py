"""What is promised in figures, measured with nothing else under way; and a disk that is full."""

from __future__ import annotations

import time

import pytest

from tests.rollout_host.host import AgentSaid, Host
from tests.rollout_host.site import Json, Site, once

DEATH_TO_RESTORE_S = 0.5
ADDED_BY_A_SWAP_S = 1.0
OVER_THE_FLOOR = 3.0
FLOOR = "systemd-run -q --wait python3 -I -S -c pass; systemctl daemon-reload; systemctl daemon-reload"
FLOOR_OF_A_LOOK = (
    "journalctl -q -n 20 --no-pager; systemctl is-system-running; journalctl -q -n 20 --no-pager"
)
TRIES = 6


def at(events: list[Json], step: str, state: str) -> float:
    """When the step's event was written."""
    return float(next(event["time"] for event in events if event["step"] == step and event["state"] == state))


@pytest.mark.lab
def test_from_a_process_s_death_to_the_restore(hosts: list[Host]) -> None:
    site = Site(hosts[0])
    old = site.deploy("good")
    took, floors = [], []
    for _ in range(TRIES):
        begun = time.monotonic()
        site.host.run(FLOOR_OF_A_LOOK)
        floors.append(time.monotonic() - begun)
        events, result = site.roll(site.plan(site.target("bad", die=0.4), old))
        assert result["outcome"] == "rolled-back", result
        dead = next(line for line in result["evidence"] if "dead at" in line)
        took.append(at(events, "restore-stop", "begin") - float(dead.rsplit(" ", 1)[1]))
        if took[-1] < DEATH_TO_RESTORE_S:
            break
    print(f"from death to restore: {[round(seconds, 3) for seconds in took]} s")
    print(f"two looks into the journal: {[round(seconds, 3) for seconds in floors]} s")
    assert min(took) < max(DEATH_TO_RESTORE_S, OVER_THE_FLOOR * min(floors))


@pytest.mark.lab
def test_what_a_swap_adds_to_stop_and_load(hosts: list[Host]) -> None:
    site = Site(hosts[1])
    old = site.deploy("one")
    added, floors = [], []
    for number in range(TRIES):
        new = site.target(f"next{number}", load=0.5)
        time.sleep(0.5)
        begun = time.monotonic()
        site.host.run(FLOOR)
        floors.append(time.monotonic() - begun)
        begun = time.monotonic()
        events, result = site.roll(site.plan(new, old))
        took = time.monotonic() - begun
        assert result["outcome"] == "done", result
        journal = site.host.run(f"journalctl -q -o cat -u {new['unit']}")
        said = [line for line in journal.splitlines() if line.startswith("healthy from")]
        healthy = float(said[-1].split()[-1])
        load = healthy - at(events, "start", "ok")
        added.append(took - result["seconds"]["stop"] - load)
        old = new
        if added[-1] < ADDED_BY_A_SWAP_S:
            break
    print(f"added by a swap: {[round(seconds, 3) for seconds in added]} s")
    print(f"two reloads and one start of a process: {[round(seconds, 3) for seconds in floors]} s")
    # A machine on which the bare commands alone take half a second is too busy for the figure, not for the ratio.
    assert min(added) < max(ADDED_BY_A_SWAP_S, OVER_THE_FLOOR * min(floors))


@pytest.mark.lab
def test_a_full_disk_changes_nothing(hosts: list[Host]) -> None:
    site = Site(hosts[0])
    old = site.deploy("good")
    site.wait_ended()
    records = "/var/lib/fleetctl/rollouts"
    site.host.run(f"mount -t tmpfs -o size=64k none {records}")
    try:
        with pytest.raises(AgentSaid) as said:
            site.host.call("rollout.start", {"plan": site.plan(site.target("new"), old)})
        assert said.value.error["exit"] == 5
        assert "No space left" in said.value.error["what"]
        assert site.host.run(f"ls {records}") == ""
    finally:
        site.host.run(f"umount {records}")
    assert site.serves("good")


@pytest.mark.lab
def test_a_disk_that_fills_up_in_the_middle_does_not_stop_the_undo(hosts: list[Host]) -> None:
    site = Site(hosts[1])
    old = site.deploy("good")
    site.wait_ended()
    records = "/var/lib/fleetctl/rollouts"
    site.host.run(f"mount -t tmpfs -o size=16m none {records}")

    gate = site.gate()

    def fill() -> None:
        site.host.run(f"dd if=/dev/zero of={records}/full bs=64k status=none", check=False)
        gate.open()

    try:
        new = site.target("new", until=gate.path, tokens=3)
        _, result = site.roll(site.plan(new, old), once("health", fill))
        assert (result["outcome"], result["exit"]) == ("rolled-back", 6), result
        assert site.serves("good")
        site.wait_ended()
    finally:
        site.host.run(f"umount {records}")


@pytest.mark.lab
def test_a_new_unit_takes_one_reload(hosts: list[Host]) -> None:
    """systemd reads a unit that it does not know by itself; each reload runs all generators of the host."""
    site = Site(hosts[1])
    site.host.run("echo before-the-deploy | systemd-cat; journalctl --sync")
    site.deploy("one")
    said = site.host.run("journalctl --sync; journalctl -q -o cat --no-pager -n 2000").rpartition(
        "before-the-deploy"
    )[2]
    assert said.count("Reloading.") == 1, said
