"""From one host to another through the controller, on two real hosts that hold no key of each other."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.errors import Exit, FleetError
from fleetctl.lab import hosts
from fleetctl.transport import relay as relay_module
from fleetctl.transport import settings
from fleetctl.transport.bulk import PARTIAL, Progress
from fleetctl.transport.relay import relay
from tests.conftest import Lab
from tests.transport.sshd import SshSettings, TestHost, wait_for

pytestmark = pytest.mark.lab
SOURCE, TARGET = "/var/lib/fleetctl/relay src", "/var/lib/fleetctl/relay/it's a copy"
BIG = 120_000_000
PROCESSES = "ps -eo args | grep -c '[r]sync\\|[f]leetctl-bridge\\|[f]d/. connect' || true"


class Pair:
    """ct129 with a tree, and ct200 that it is copied to."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.tree, self.copy = (lab.state(n) / p.removeprefix("/var/lib/fleetctl/") for n, p in self.ends)
        self.tree.mkdir()

    ends = (("ct129", SOURCE), ("ct200", TARGET))

    def host(self, name: str) -> TestHost:
        lab = self.lab
        ssh = SshSettings(lab.address(name), "root", identity_file=lab.identity, known_hosts=lab.known_hosts)
        return TestHost(name, ssh)

    def relay(self, target: str = TARGET, source: str = SOURCE, **options: object) -> int:
        return relay(self.host("ct129"), self.host("ct200"), source, target, **options)  # type: ignore[arg-type]

    def nothing_runs(self) -> bool:
        return all(self.lab.run(name, PROCESSES).stdout.strip() == "0" for name in self.lab.hosts)

    def remove(self) -> None:
        for folder in (self.tree, self.copy.parent):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def pair(lab: Lab) -> Iterator[Pair]:
    pair = Pair(lab)
    yield pair
    pair.remove()


def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 MB/s, so that there is a middle."""
    options = relay_module._options
    monkeypatch.setattr(relay_module, "_options", lambda *a: [*options(*a), "--bwlimit=4m"])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead links are found after 2 s, silent transfers after 4 s."""
    slow(monkeypatch)
    strict = settings.strict_options

    def quick(connect_timeout: int) -> list[str]:
        words = strict(connect_timeout)
        return [w.replace("Interval=5", "Interval=1").replace("CountMax=4", "CountMax=2") for w in words]

    monkeypatch.setattr(settings, "strict_options", quick)
    monkeypatch.setattr(relay_module, "SILENCE_S", 4)


def fill(tree: Path) -> None:
    """Names, kinds and rights that a copy may get wrong."""
    for name in (b"new\nline", b"not utf-8 \xff\xfe", b"-rf", b"a b'c\"d$(id)`x`\\", b"deep/er/file", b"*"):
        path = Path(os.fsdecode(os.fsencode(tree) + b"/" + name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name * 1000)
    (tree / "empty").mkdir()
    (tree / "none").write_bytes(b"")
    (tree / "dangling").symlink_to("/nowhere/at all")
    (tree / "link").symlink_to("deep/er")
    (tree / "linked").hardlink_to(tree / "none")
    for mode in (0o400, 0o755, 0o644):
        (tree / f"mode{mode}").write_bytes(os.urandom(100_000))
        (tree / f"mode{mode}").chmod(mode)
    (tree / "empty").chmod(0o700)


def listed(tree: Path) -> dict[bytes, tuple[object, ...]]:
    """What a tree is: each entry's mode, time, and content or target."""
    found: dict[bytes, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(os.fsencode(tree)):
        for name in [*folders, *files]:
            path = Path(os.fsdecode(folder), os.fsdecode(name))
            state = path.lstat()
            content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            time_ns = 0 if path.is_symlink() else state.st_mtime_ns
            found[os.fsencode(path.relative_to(tree))] = (state.st_mode, time_ns, content)
    return found


def test_a_tree_arrives_as_it_is_and_only_once(pair: Pair) -> None:
    fill(pair.tree)
    seen: list[Progress] = []
    first = pair.relay(on_progress=seen.append, hard_links=True)
    assert listed(pair.copy) == listed(pair.tree)
    assert (pair.copy / "none").samefile(pair.copy / "linked")
    assert first > 300_000
    assert seen[-1].percent >= 99
    assert pair.relay(hard_links=True) < 1500
    (pair.tree / "mode420").write_bytes(os.urandom(100_000))
    assert 100_000 < pair.relay(hard_links=True) < 103_000
    assert listed(pair.copy) == listed(pair.tree)
    assert pair.nothing_runs()


def test_only_the_files_asked_for_and_only_inside_the_folder(pair: Pair) -> None:
    fill(pair.tree)
    names = ["new\nline", "not utf-8 \udcff\udcfe", "deep/er/file", "link", "-rf"]
    for name in ("../outside", "/etc/hostname", "deep/../../x", "", "a\0b"):
        with pytest.raises(FleetError, match="not a path inside"):
            pair.relay(files=[*names, name])
    pair.relay(files=names)
    wanted = {os.fsencode(name) for name in [*names, "deep", "deep/er"]}
    assert set(listed(pair.copy)) == wanted
    with pytest.raises(FleetError, match="could not be read") as caught:
        pair.relay(files=["no such file"])
    assert caught.value.exit == Exit.PREFLIGHT
    assert caught.value.where == f"ct129:{SOURCE}"


def test_what_the_source_has_not_goes_where_asked(pair: Pair) -> None:
    fill(pair.tree)
    pair.copy.mkdir(parents=True)
    (pair.copy / "old").write_text("")
    pair.relay()
    assert (pair.copy / "old").exists()
    pair.relay(delete=True)
    assert listed(pair.copy) == listed(pair.tree)


def test_equal_files_come_from_a_reference(pair: Pair) -> None:
    fill(pair.tree)
    reference, by_time, by_content = (pair.copy.parent / name for name in ("reference", "t", "c"))
    paths = [f"/var/lib/fleetctl/relay/{folder.name}" for folder in (reference, by_time, by_content)]
    pair.relay(paths[0])
    assert pair.relay(paths[1], references=[paths[0]]) < 1500
    assert (by_time / "mode420").samefile(reference / "mode420")
    assert listed(by_time) == listed(pair.tree)
    os.utime(reference / "mode420", (1, 1))
    assert pair.relay(paths[2], references=[paths[0]], compare="content") < 2500
    assert listed(by_content) == listed(pair.tree)
    assert not (by_content / "mode420").samefile(reference / "mode420")
    assert (by_content / "mode493").samefile(reference / "mode493")
    assert (reference / "mode420").stat().st_mtime == 1


@pytest.mark.parametrize("which", ["ct129", "ct200"])
def test_a_cut_link_is_named_and_the_copy_goes_on(
    pair: Pair, impatient: None, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pair.tree / "small").write_bytes(os.urandom(1000))
    with (pair.tree / "zeros").open("wb") as big:
        big.truncate(BIG)

    def cut(progress: Progress) -> None:
        if progress.bytes > 2_000_000:
            hosts.link_down(pair.lab.hosts[which])

    begin = time.monotonic()
    try:
        with pytest.raises(FleetError, match=f"link to {which} failed") as caught:
            pair.relay(on_progress=cut)
    finally:
        hosts.link_up(pair.lab.hosts[which])
    assert caught.value.exit == Exit.UNREACHABLE
    assert time.monotonic() - begin < 60
    wait_for(pair.nothing_runs)
    assert not (pair.copy / "zeros").exists()
    half = (pair.copy / PARTIAL / "zeros").stat().st_size
    assert half > 1_000_000
    monkeypatch.undo()
    assert pair.relay() < BIG - half // 2
    assert (pair.copy / "zeros").stat().st_size == BIG
    assert set(listed(pair.copy)) == {b"small", b"zeros"}


def mounted(lab: Lab, options: str) -> Callable[[], None]:
    lab.run("ct200", f"mkdir -p /mnt/small && mount -t tmpfs -o {options} tmpfs /mnt/small")
    return lambda: lab.run("ct200", "umount /mnt/small") and None


@pytest.mark.parametrize(
    ("options", "words"),
    [("size=1m", "disk is full"), ("nr_inodes=6", "disk is full"), ("ro", "cannot be written")],
)
def test_a_destination_that_refuses(pair: Pair, options: str, words: str) -> None:
    for number in range(20):
        (pair.tree / str(number)).write_bytes(os.urandom(100_000))
    unmount = mounted(pair.lab, options)
    try:
        with pytest.raises(FleetError, match=words) as caught:
            pair.relay("/mnt/small/copy")
        assert caught.value.where == "ct200:/mnt/small/copy"
        assert caught.value.exit == Exit.PREFLIGHT
        wait_for(pair.nothing_runs)
    finally:
        unmount()


def test_no_folder_to_copy_from(pair: Pair) -> None:
    with pytest.raises(FleetError, match="no such folder") as caught:
        pair.relay(source="/var/lib/fleetctl/nothing")
    assert (caught.value.where, caught.value.exit) == ("ct129:/var/lib/fleetctl/nothing", Exit.INPUT)


@pytest.mark.parametrize(("name", "path"), Pair.ends)
def test_a_host_without_rsync(pair: Pair, name: str, path: str) -> None:
    pair.lab.run(name, "mv /usr/bin/rsync /usr/bin/rsync.away")
    try:
        with pytest.raises(FleetError, match="no rsync") as caught:
            pair.relay()
    finally:
        pair.lab.run(name, "mv /usr/bin/rsync.away /usr/bin/rsync")
    assert (caught.value.where, caught.value.exit) == (f"{name}:{path}", Exit.PREFLIGHT)


@pytest.mark.parametrize("name", ["ct129", "ct200"])
def test_a_host_whose_key_is_unknown(pair: Pair, name: str, tmp_path: Path) -> None:
    ends = {other: pair.host(other) for other in pair.lab.hosts}
    ends[name].ssh.known_hosts = tmp_path / "none"
    with pytest.raises(FleetError, match=f"link to {name} failed") as caught:
        relay(ends["ct129"], ends["ct200"], SOURCE, TARGET)
    assert caught.value.exit == Exit.UNREACHABLE
    assert any("Host key verification failed" in line for line in caught.value.evidence)


def test_a_second_copy_into_the_folder_waits_and_then_gives_up(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(relay_module, "LOCK_WAIT_S", 1)
    pair.copy.mkdir(parents=True)
    with subprocess.Popen(["flock", str(pair.copy), "sleep", "3000"]) as holder:
        try:
            wait_for(lambda: subprocess.run(["flock", "-n", str(pair.copy), "true"]).returncode)
            with pytest.raises(FleetError, match="another copy") as caught:
                pair.relay(on_wait=lambda what, left: waits.append(left))
        finally:
            subprocess.run(["pkill", "-P", str(holder.pid)], check=True)
    assert caught.value.exit == Exit.LOCKED
    assert waits


def test_an_interrupt_leaves_nothing_running(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    slow(monkeypatch)
    with (pair.tree / "zeros").open("wb") as big:
        big.truncate(BIG)

    def interrupt(progress: Progress) -> None:
        if progress.bytes > 2_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pair.relay(on_progress=interrupt)
    wait_for(pair.nothing_runs)
    assert (pair.copy / PARTIAL / "zeros").exists()


def test_a_killed_controller_leaves_nothing_running(pair: Pair) -> None:
    with (pair.tree / "zeros").open("wb") as big:
        big.truncate(BIG)
    code = (
        "import os, signal; from fleetctl.transport.relay import relay\n"
        "from tests.transport.sshd import SshSettings, TestHost\n"
        f"def host(name, address): return TestHost(name, SshSettings(address, 'root', identity_file="
        f"{str(pair.lab.identity)!r}, known_hosts={str(pair.lab.known_hosts)!r}))\n"
        f"relay(host('a', {pair.lab.address('ct129')!r}), host('b', {pair.lab.address('ct200')!r}), "
        f"{SOURCE!r}, {TARGET!r}, on_progress=lambda p: p.bytes and os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    wait_for(pair.nothing_runs)
