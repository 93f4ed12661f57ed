"""What comes from another host is proved before it gets a name, and what cannot come is refused before it is sent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.environment.bom import Bom, capture
from fleetctl.environment.bring import bring_environment
from fleetctl.environment.overlay import plan_overlay
from fleetctl.environment.overlay_act import overlay_from
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import load_fleet
from fleetctl.inventory.models import Host
from fleetctl.transport.agent import open_agent
from tests.conftest import LAB_INVENTORY, Lab
from tests.standins.hosts import install
from tests.standins.stack import reference

pytestmark = pytest.mark.lab

ROOT = LAB_INVENTORY.parents[1]
SOURCE, BASE = "/root/bring-source", "/root/bring-base"
STATE = "/var/lib/fleetctl"
SITE = "lib/python3.*/site-packages"


class Hosts:
    """ct129, which has an environment, and ct200, to which it is to come."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        hosts = load_fleet(ROOT, "inventories/lab").hosts
        self.source, self.target = hosts["ct129"], hosts["ct200"]

    def bom(self, host: Host, path: str) -> Bom:
        with open_agent(host) as agent:
            return capture(agent, path)

    def edit(self, command: str) -> None:
        self.lab.run("ct129", f"cd {SOURCE}/{SITE} && {command}")

    def left(self) -> str:
        return self.lab.run(
            "ct200", f"cd {STATE} && ls -d envs/brought-* incoming/* 2>/dev/null || true"
        ).stdout

    def env(self, *words: str, expect: int) -> str:
        argv = [sys.executable, "-m", "fleetctl", "--fleet", str(ROOT), "--inventory", "inventories/lab"]
        done = subprocess.run([*argv, "env", *words], capture_output=True, text=True, timeout=280)
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def both(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("wheels")
    small = [one for one in reference() if one.name in ("soundfile", "xgrammar")]
    install(lab, "ct129", f"{SOURCE}.whole", small, folder)
    install(lab, "ct200", BASE, [one for one in small if one.name == "xgrammar"], folder)
    yield lab
    lab.run("ct129", f"rm -rf {SOURCE} {SOURCE}.whole")
    lab.run("ct200", f"bash -c 'rm -rf {BASE} {STATE}/envs/brought-*'")


@pytest.fixture
def hosts(both: Lab) -> Hosts:
    both.run("ct129", f"rm -rf {SOURCE}; cp -a {SOURCE}.whole {SOURCE}")
    both.run("ct200", f"bash -c 'rm -rf {STATE}/envs/brought-* {STATE}/incoming/*'")
    return Hosts(both)


def test_a_clone_of_what_changed_after_it_was_looked_at_is_not_named(hosts: Hosts) -> None:
    bom = hosts.bom(hosts.source, SOURCE)
    hosts.edit("sed -i 's/read/raed/' soundfile.py")
    with (
        open_agent(hosts.target) as agent,
        pytest.raises(FleetError, match="changed while it was copied") as caught,
    ):
        bring_environment(agent, hosts.source, hosts.target, bom, "brought", lambda event: None)
    assert caught.value.exit == Exit.PREFLIGHT
    assert hosts.left() == ""


def test_an_overlay_of_what_changed_after_it_was_looked_at_is_not_named(hosts: Hosts) -> None:
    source = hosts.bom(hosts.source, SOURCE)
    plan = plan_overlay(hosts.bom(hosts.target, BASE), source, ["soundfile"])
    hosts.edit("sed -i 's/read/raed/' soundfile.py")
    with (
        open_agent(hosts.target) as agent,
        pytest.raises(FleetError, match="not what its RECORD says") as caught,
    ):
        overlay_from(agent, hosts.target, hosts.source, plan, "brought", lambda event: None)
    assert caught.value.exit == Exit.PREFLIGHT
    assert hosts.left() == ""


def test_a_record_that_names_the_interpreter_is_refused_before_anything_is_sent(hosts: Hosts) -> None:
    hosts.edit("echo ../../../bin/python,, >>soundfile-*.dist-info/RECORD")
    words = ("overlay", f"ct200:{BASE}", "brought", "--from", f"ct129:{SOURCE}", "--dist", "soundfile")
    said = hosts.env(*words, expect=Exit.PREFLIGHT)
    assert "names ../../../bin/python, which makes the venv itself" in said and "bring:" not in said
    assert hosts.left() == ""


def test_links_that_cannot_come_are_refused_before_anything_is_sent(hosts: Hosts) -> None:
    hosts.edit("ln -s /etc/hostname name && mkfifo pipe")
    for more in (("--plan",), ()):
        said = hosts.env("clone", f"ct129:{SOURCE}", "ct200:brought", *more, expect=Exit.PREFLIGHT)
        assert "2 entries cannot come along" in said and "bring" not in said.replace(SOURCE, "")
    assert hosts.left() == ""


@pytest.mark.parametrize("lacking", ["ct129", "ct200"])
def test_a_host_without_rsync_is_refused_by_the_plan(hosts: Hosts, lacking: str) -> None:
    hosts.lab.run(lacking, "mount --bind /dev/null $(command -v rsync)")
    try:
        for words in (
            ("clone", f"ct129:{SOURCE}", "ct200:brought"),
            ("overlay", f"ct200:{BASE}", "brought", "--from", f"ct129:{SOURCE}", "--dist", "soundfile"),
        ):
            for more in (("--plan",), ()):
                said = hosts.env(*words, *more, expect=Exit.PREFLIGHT)
                assert "no rsync" in said and lacking in said
    finally:
        hosts.lab.run(lacking, "umount /usr/bin/rsync")
    assert hosts.left() == ""


def test_a_copy_that_never_began_leaves_no_folder(hosts: Hosts) -> None:
    bom = hosts.bom(hosts.source, SOURCE)
    hosts.lab.run("ct129", f"mv {SOURCE} {SOURCE}.away")
    with open_agent(hosts.target) as agent, pytest.raises(FleetError, match="no such folder"):
        bring_environment(agent, hosts.source, hosts.target, bom, "brought", lambda event: None)
    hosts.lab.run("ct129", f"mv {SOURCE}.away {SOURCE}")
    assert hosts.left() == ""


def test_what_is_wrong_with_a_source_is_told_and_comes_along(hosts: Hosts, tmp_path: Path) -> None:
    hosts.edit("cp soundfile.py kernel.so && : >xgrammar-*.dist-info/RECORD && echo >>soundfile.py")
    said = hosts.env("clone", f"ct129:{SOURCE}", "ct200:brought", expect=Exit.OK)
    assert "RECORD of xgrammar cannot be read whole" in said
    assert "1 file differs from what soundfile" in said
    assert f"wrong with it and will come along: fleetctl env verify ct129:{SOURCE}" in said
    hosts.edit("mkfifo pipe")
    said = hosts.env("capture", f"ct129:{SOURCE}", "-o", str(tmp_path / "bom.json"), expect=Exit.OK)
    assert "warning: 1 problem with" in said and "is a fifo" in said


def test_a_sound_one_comes_and_verifies_without_a_word(hosts: Hosts) -> None:
    said = hosts.env("clone", f"ct129:{SOURCE}", "ct200:brought", expect=Exit.OK)
    assert "wrong with it" not in said
    assert "is what it says it is" in hosts.env("verify", "ct200:brought", expect=Exit.OK)
    assert "incoming" not in hosts.left()
