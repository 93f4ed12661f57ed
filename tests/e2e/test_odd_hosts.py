"""Hosts as they are found: odd shells and banners, no room, nothing writable, a user who is not root."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.conftest import Site

NOISY = """
echo "Welcome to ct200, where 3 updates wait"; printf 'no newline'; echo "to stderr" >&2
"""


@contextmanager
def changed(site: Site, do: str, undo: str) -> Iterator[None]:
    """The host with something done to it, and undone at the end."""
    site.lab.run("ct200", do)
    _until_sshd_answers(site)
    try:
        yield
    finally:
        site.lab.run("ct200", undo)
        _until_sshd_answers(site)


def _until_sshd_answers(site: Site) -> None:
    """An sshd that reads its configuration again takes no connection for a moment."""
    end = time.monotonic() + 200
    while site.lab.run("ct200", "true", check=False).returncode == 255:
        assert time.monotonic() < end, "sshd does not come back"
        time.sleep(0.1)


def deployed(site: Site) -> None:
    """A deploy comes through."""
    assert "serves" in site.run("deploy", "--service", "good")
    assert site.generates()


def reached(site: Site) -> None:
    """The agent is sent, started, asked; and started again."""
    site.lab.run("ct200", "rm -rf /var/lib/fleetctl/agent")
    for _ in range(2):
        assert site.slot in site.run("status")


@pytest.mark.parametrize(
    ("shell", "starts"),
    [
        ("/bin/dash", "/root/.profile"),
        ("/bin/bash", "/root/.bashrc"),
        ("/usr/bin/zsh", "/root/.zshenv"),
        ("/usr/bin/fish", "/root/.config/fish/config.fish"),
        ("/usr/bin/tcsh", "/root/.tcshrc"),
    ],
)
def test_any_login_shell_and_one_that_prints(site: Site, shell: str, starts: str) -> None:
    noise = "echo Welcome to ct200\n" if shell.endswith("tcsh") else NOISY
    kept = "/root/kept-start-up"
    do = f"mkdir -p $(dirname {starts}); test -e {starts} && cp {starts} {kept}; printf %s '{quoted(noise)}' > {starts}"
    undo = f"rm -f {starts}; test -e {kept} && mv {kept} {starts}; usermod -s /bin/bash root"
    with changed(site, f"{do}; usermod -s {shell} root", undo):
        assert site.lab.run("ct200", "echo here").stdout.endswith("here\n")
        reached(site)
    site.lab.run("ct200", "rm -rf /root/.config /root/.local /root/.cache")


def quoted(text: str) -> str:
    """Within single quotes of a shell."""
    return text.replace("'", "'\\''")


def test_a_login_banner_and_a_message_of_the_day(site: Site) -> None:
    say = "for n in $(seq 200); do echo 'AUTHORIZED USE ONLY {\"hello\": 1}'; done"
    setting = "/etc/ssh/sshd_config.d/banner.conf"
    do = f"({say}) > /etc/issue.net; echo 'Banner /etc/issue.net' > {setting}; ({say}) > /etc/motd"
    with changed(site, f"{do}; systemctl reload ssh", f"rm {setting} /etc/motd; systemctl reload ssh"):
        reached(site)


def test_a_full_tmp(site: Site) -> None:
    fill = "mount -t tmpfs -o size=64k tmpfs /tmp; head -c 1M /dev/zero > /tmp/full 2>/dev/null; true"
    with changed(site, fill, "umount /tmp"):
        deployed(site)


def test_a_root_that_is_read_only(site: Site) -> None:
    with changed(site, "mount --bind /etc /etc; mount -o remount,bind,ro /etc", "umount /etc"):
        said = site.run("deploy", "--service", "good", expect=5)
        assert "/etc/systemd/system is read-only" in said and "mount it writable" in said
        assert "nothing was changed" in said
    deployed(site)


def test_a_user_who_is_not_root(site: Site) -> None:
    make = (
        "useradd -m -s /bin/bash worker; mkdir -p ~worker/.ssh; cp ~/.ssh/authorized_keys ~worker/.ssh/; "
        "chown -R worker: ~worker/.ssh; passwd -d worker"
    )
    with changed(site, make, "pkill -u worker; userdel -rf worker"):
        reached(site)
        site.ssh["user"] = "worker"
        site.write()
        said = site.run("deploy", "--service", "good", expect=5)
        assert "needs root" in said and "user: root" in said
