"""A host that is worked on by a user who becomes root with sudo: agent, bulk and rollouts, on a real sshd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.inventory.loader import load_fleet
from fleetctl.transport.bulk import push
from fleetctl.transport.relay import relay
from tests.e2e.conftest import Site

USER = "ops"
SUDOERS = "/etc/sudoers.d/fleetctl-test"


@pytest.fixture
def ops(site: Site) -> Iterator[Site]:
    """The site's host is reached as a user without rights."""
    home = f"/home/{USER}"
    site.lab.run(
        "ct200",
        f"id {USER} || useradd --create-home --shell /bin/sh {USER}; install -d -o {USER} -m 700 {home}/.ssh;"
        f"install -o {USER} -m 600 /root/.ssh/authorized_keys {home}/.ssh/authorized_keys; rm -f {SUDOERS}",
    )
    site.ssh |= {"user": USER}
    site.write()
    yield site
    site.lab.run(
        "ct200",
        f"rm -rf {SUDOERS} /srv/fleetctl-test; userdel --force --remove {USER} 2>/dev/null",
        check=False,
    )


def become_root(site: Site, rule: str = "NOPASSWD: ALL") -> None:
    site.lab.run("ct200", f"echo '{USER} ALL=(root) {rule}' > {SUDOERS}; chmod 440 {SUDOERS}")
    site.ssh |= {"sudo": True}
    site.write()


def test_without_sudo_the_way_on_is_named(ops: Site) -> None:
    ops.lab.run("ct200", "rm -rf /var/lib/fleetctl/agent")
    said = ops.run("deploy", "ct200", expect=3)
    assert "needs root" in said
    assert "ssh: {sudo: true}" in said
    become_root(ops)
    ops.run("status", "ct200")
    ops.ssh.pop("sudo")
    ops.write()
    assert "needs root" in ops.run("deploy", "ct200", expect=5)
    assert "ssh: {sudo: true}" in said


def test_a_sudo_that_wants_a_password_is_named(ops: Site) -> None:
    become_root(ops, "ALL")
    said = ops.run("deploy", "ct200", expect=3)
    assert f"{USER} does not become root there: a password is required" in said
    assert f"{USER} ALL=(root) NOPASSWD: ALL" in said


def test_deploy_and_rollback_by_sudo(ops: Site) -> None:
    become_root(ops)
    assert "serves" in ops.run("deploy", "ct200")
    assert ops.generates()
    assert "nothing to do" in ops.run("deploy", "ct200")
    assert "sudo" not in ops.run("status", "ct200")


def test_bulk_goes_by_sudo_too(ops: Site, tmp_path: Path) -> None:
    become_root(ops)
    host = load_fleet(ops.folder, "inventories").hosts["ct200"]
    (tmp_path / "it's here").write_text("weights")
    push(host, [tmp_path / "it's here"], "/srv/fleetctl-test/a b")
    assert relay(host, host, "/srv/fleetctl-test/a b", "/srv/fleetctl-test/copy") > 0
    listed = ops.lab.run("ct200", "stat -c '%U %n' '/srv/fleetctl-test/copy/it'\"'\"'s here'").stdout
    assert listed.startswith("root ")
