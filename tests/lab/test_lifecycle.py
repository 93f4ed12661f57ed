"""The lab comes up, stays as it is, and goes away without a trace, whatever was killed on the way."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab.conftest import Place, ended, folders_of, processes_of

pytestmark = pytest.mark.lab

# Each is a function that `lab up` calls on its way; the process is killed just before or just after it.
MOMENTS = [
    ("record.LabRecord.save", "after"),
    ("root.mount_ram", "after"),
    ("network.ensure_bridge", "after"),
    ("record.HostRecord.save", "after"),
    ("network.connect", "after"),
    ("root._lay_out", "before"),
    ("root.require_own_overlay", "before"),
    ("machine._start", "after"),
    ("machine.login", "before"),
    ("machine.start_time", "before"),
]
DOWN_MOMENTS = [("machine.end", "after"), ("network.disconnect", "before"), ("root.remove", "after")]


def _killed(place: Place, verb: str, function: str, when: str) -> None:
    module, _, name = function.partition(".")
    owner, _, attribute = f"{module}.{name}".rpartition(".")
    call = "hosts.up(inventory.load())" if verb == "up" else "hosts.down()"
    code = f"""
import os, signal
from fleetctl.lab import hosts, inventory, machine, network, record, root
original = {owner}.{attribute}
def dying(*args, **kwargs):
    if {when!r} == "after":
        original(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
{owner}.{attribute} = dying
{call}
"""
    done = place.python(code)
    assert done.returncode == -9, done.stderr


def _assert_nothing_left(place: Place, before: dict[str, list[str]], machines: list[str]) -> None:
    assert place.seen() == before
    assert ended(machines)
    assert folders_of(machines) == []
    left = sorted(path.name for path in place.folder.iterdir())
    assert left == ["id", "id.pub", "keys", "known_hosts", "lock"]


def test_a_second_up_changes_nothing(place: Place) -> None:
    first = place.lab("up")
    assert "booted ct129, ct200" in first.stdout
    assert "waits for multi-user.target" in first.stderr

    records = {file: file.read_bytes() for file in place.folder.glob("**/record.json")}
    seen = place.seen()
    second = place.lab("up")
    assert "nothing to do" in second.stdout
    assert place.seen() == seen
    assert {file: file.read_bytes() for file in place.folder.glob("**/record.json")} == records


def test_down_leaves_no_mount_namespace_link_or_process(place: Place) -> None:
    before = place.seen()
    place.lab("up")
    machines = place.machines()
    assert len(machines) == 2
    assert len(processes_of(machines)) > 4
    assert place.seen() != before

    place.lab("down")
    _assert_nothing_left(place, before, machines)
    assert "nothing to do" in place.lab("down").stdout


@pytest.mark.parametrize(("function", "when"), MOMENTS)
def test_what_a_killed_up_left_is_cleaned_by_the_next(place: Place, function: str, when: str) -> None:
    before = place.seen()
    _killed(place, "up", function, when)
    machines = place.machines()

    assert "booted ct129, ct200" in place.lab("up").stdout
    assert ended(machines)
    assert folders_of(machines) == []
    fresh = place.machines()
    assert len(fresh) == 2

    place.lab("down")
    _assert_nothing_left(place, before, machines + fresh)


def test_what_a_killed_up_left_is_cleaned_by_down(place: Place) -> None:
    before = place.seen()
    _killed(place, "up", "machine.login", "before")
    machines = place.machines()
    place.lab("down")
    _assert_nothing_left(place, before, machines)


@pytest.mark.parametrize(("function", "when"), DOWN_MOMENTS)
def test_a_killed_down_is_taken_up_by_the_next(place: Place, function: str, when: str) -> None:
    before = place.seen()
    place.lab("up")
    machines = place.machines()
    _killed(place, "down", function, when)
    place.lab("down")
    _assert_nothing_left(place, before, machines)


def test_ssh_keys_outlive_down(place: Place) -> None:
    place.lab("up")
    known, identity = (place.folder / "known_hosts").read_text(), (place.folder / "id").read_text()
    place.lab("down")
    place.lab("up")
    assert (place.folder / "known_hosts").read_text() == known
    assert (place.folder / "id").read_text() == identity
    assert place.lab("ssh", "ct200", "true").stderr == ""


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (["ip", "netns", "add", "ct200"], "ct200"),
        (["ip", "link", "add", "flt0", "type", "bridge"], "flt0"),
        (["ip", "link", "add", "vct129", "type", "veth", "peer", "name", "other"], "vct129"),
    ],
)
def test_what_others_made_under_the_labs_names_is_refused_and_kept(
    place: Place, made: list[str], name: str
) -> None:
    assert place.run(*made).returncode == 0
    before = place.seen()
    refused = place.lab("up", expect=5)
    assert name in refused.stderr
    assert "that this lab did not make" in refused.stderr
    place.lab("down")
    assert place.seen() == before


def test_an_address_of_the_labs_network_in_use_is_refused(place: Place) -> None:
    place.run("ip", "addr", "add", "198.18.0.7/32", "dev", "lo")
    refused = place.lab("up", expect=5)
    assert "198.18.0.7 on lo" in refused.stderr


def test_a_missing_package_is_named_with_the_command_that_brings_it(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in Path("/usr/bin").iterdir():
        if tool.name != "systemd-nspawn":
            (folder / tool.name).symlink_to(tool)

    done = place.run(sys.executable, "-m", "fleetctl", "lab", "up", env={**os.environ, "PATH": str(folder)})
    assert done.returncode == 2
    assert "systemd-nspawn" in done.stderr
    assert "apt-get install -y systemd-container openssh-server iproute2 rsync" in done.stderr
    assert not (place.folder / "record.json").exists()


def test_two_ups_at_once_boot_each_host_once(place: Place) -> None:
    with ThreadPoolExecutor(2) as pool:
        outcomes = sorted(done.stdout for done in pool.map(lambda _: place.lab("up"), range(2)))
    assert "are up already" in outcomes[1]
    assert "booted ct129, ct200" in outcomes[0]


def test_a_host_that_left_the_inventory_is_taken_away(place: Place, tmp_path: Path) -> None:
    place.lab("up")
    code = "from fleetctl.lab import hosts, inventory; print(hosts.up(inventory.load()[:1]))"
    assert place.python(code).stdout == "[]\n"
    assert [file.parent.name for file in place.folder.glob("*/record.json")] == ["ct129"]
