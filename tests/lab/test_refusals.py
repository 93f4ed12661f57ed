"""What the lab refuses: roots that are not its own, machines that cannot carry it, wrong inventories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetctl.errors import Exit, FleetError
from fleetctl.lab import inventory, record, root, system
from fleetctl.lab.paths import HostPaths
from tests.lab.conftest import Place

GOOD = "host: one\nssh: {hostname: 198.18.0.21}\ngpus: {count: 2}\n"


@pytest.mark.lab
@pytest.mark.parametrize(
    "cover",
    [
        "umount {root}",
        "mount -t tmpfs tmpfs {root}",
        "mkdir -p {ram}/other/u {ram}/other/w && "
        "mount -t overlay overlay -o lowerdir=/,upperdir={ram}/other/u,workdir={ram}/other/w {root}",
        "umount {root} && rmdir {root} && ln -s {dir} {root}",
    ],
    ids=["a plain folder", "a tmpfs", "another overlay", "a symlink"],
)
def test_a_root_that_is_not_the_labs_own_overlay_is_not_booted(place: Place, cover: str) -> None:
    place.lab("up")
    lab = "/var/lib/fleetctl-lab"
    folder = f"{lab}/ct200"
    change = cover.format(root=f"{folder}/root", ram=f"{lab}/ram", dir=folder)
    boot = "hosts.boot(inventory.find('ct200', inventory.load()))"
    done = place.python(
        "import subprocess\n"
        "from fleetctl.lab import hosts, inventory\n"
        "hosts.kill(inventory.find('ct200', inventory.load()))\n"
        f"subprocess.run({change!r}, shell=True, check=True)\n"
        f"{boot}\n"
    )
    assert "refuses to boot /var/lib/fleetctl-lab/ct200/root" in done.stderr
    place.run("sh", "-c", f"umount {folder}/root; test ! -L {folder}/root || rm {folder}/root")


def test_the_machines_own_root_is_never_an_own_overlay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostPaths, "root", Path("/"))
    with pytest.raises(FleetError, match="refuses to boot /:") as refused:
        root.require_own_overlay(HostPaths("ct200"))
    assert refused.value.exit == Exit.PREFLIGHT


def test_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(FleetError, match="needs root"):
        system.require()


def test_needs_cgroup_v2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(system, "_NEEDED", {})
    monkeypatch.setattr(system, "mounts", lambda: [])
    with pytest.raises(FleetError, match="cgroup v2") as refused:
        system.require()
    assert refused.value.exit == Exit.PREFLIGHT


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("host: one\n", "not a lab host's inventory"),
        ("- one\n", "not a lab host's inventory"),
        ("host: [\n", "not a lab host's inventory"),
        (GOOD.replace("one", "../one"), "cannot be a host name"),
        (GOOD.replace("198.18.0.21", "10.1.2.200"), "no address for a lab host"),
        (GOOD.replace("198.18.0.21", "198.18.0.1"), "no address for a lab host"),
        (GOOD.replace("198.18.0.21", "one.example"), "no address for a lab host"),
    ],
)
def test_a_wrong_inventory_is_refused_with_its_file(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "one.yaml").write_text(text)
    with pytest.raises(FleetError, match=what) as refused:
        inventory.load(tmp_path)
    assert refused.value.where.endswith("one.yaml")
    assert refused.value.exit == Exit.INPUT


def test_two_hosts_on_one_address_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(GOOD)
    (tmp_path / "two.yaml").write_text(GOOD.replace("one", "two"))
    with pytest.raises(FleetError, match=r"two lab hosts have the address 198\.18\.0\.21"):
        inventory.load(tmp_path)


def test_an_empty_inventory_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="no lab host is described"):
        inventory.load(tmp_path)


def test_a_held_lock_is_waited_for_and_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LAB_DIR", tmp_path)
    monkeypatch.setattr(record, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(record, "LOCK_WAIT_S", 0.1)
    said: list[str] = []
    with record.locked(said.append), pytest.raises(FleetError) as refused, record.locked(said.append):
        pass
    assert refused.value.exit == Exit.LOCKED
    assert said == ["waits for another lab command to end, at most 0 s"]
