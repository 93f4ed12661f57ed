"""Bulk by rsync over a real sshd: whole files, resumed, with progress, and errors that say what is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.errors import Exit, FleetError
from fleetctl.transport.bulk import Progress, parse_progress, push
from tests.transport.sshd import Sshd, relay, wait_for

Start = Callable[..., Sshd]


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder of three files, 6 MB."""
    folder = tmp_path / "my wheels"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.whl").write_bytes(os.urandom(2_000_000))
    return folder


def test_files_and_folders_arrive_once_with_progress(sshd: Sshd, wheels: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    target = "/var/lib/fleetctl/deep er/wheels"
    sent = push(sshd.host(), [wheels, wheels / "0.whl"], target, seen.append)
    assert sent == 8_000_000
    assert seen[-1].bytes == 8_000_000
    assert seen[-1].percent == 100
    assert [step.bytes for step in seen] == sorted(step.bytes for step in seen)
    listed = sshd.inside(f"cd '{target}' && find . -type f -printf '%p %s\\n' | sort").splitlines()
    assert listed == [
        "./0.whl 2000000",
        *(f"./my wheels/{number}.whl 2000000" for number in range(3)),
    ]
    assert push(sshd.host(), [wheels, wheels / "0.whl"], target) == 0


def test_a_cut_transfer_goes_on_and_shows_only_whole_files(start_sshd: Start, tmp_path: Path) -> None:
    server = start_sshd()
    model = tmp_path / "model.bin"
    model.write_bytes(os.urandom(6_000_000))
    with (
        relay(server, cut_after=3_000_000) as (host, _),
        pytest.raises(FleetError, match="link failed") as caught,
    ):
        push(host, [model], "/var/lib/fleetctl/models")
    assert caught.value.exit == Exit.UNREACHABLE
    wait_for(lambda: "rsync --server" not in " ".join(server.descendants().values()))
    assert server.inside("ls /var/lib/fleetctl/models") == ""
    half = int(server.inside("stat -c %s /var/lib/fleetctl/models/.fleetctl-partial/model.bin"))
    assert half > 100_000
    seen: list[Progress] = []
    push(server.host(), [model], "/var/lib/fleetctl/models", seen.append)
    assert server.inside("ls -A /var/lib/fleetctl/models").split() == ["model.bin"]
    with relay(server, cut_after=6_000_000 - half // 2) as (host, _):
        server.inside(
            "cd /var/lib/fleetctl/models && mkdir .fleetctl-partial && mv model.bin .fleetctl-partial"
        )
        push(host, [model], "/var/lib/fleetctl/models")


def test_a_full_disk(start_sshd: Start, wheels: Path) -> None:
    server = start_sshd()
    server.inside("head -c 5M /dev/zero >/var/lib/fleetctl/fill")
    with pytest.raises(FleetError, match="the disk is full") as caught:
        push(server.host(), [wheels], "/var/lib/fleetctl/wheels")
    assert caught.value.exit == Exit.PREFLIGHT
    assert caught.value.where == "box:/var/lib/fleetctl/wheels"


def test_a_read_only_folder(start_sshd: Start, wheels: Path) -> None:
    server = start_sshd()
    server.inside("mount -o remount,ro /var/lib/fleetctl")
    with pytest.raises(FleetError, match="cannot be written") as caught:
        push(server.host(), [wheels], "/var/lib/fleetctl/wheels")
    assert caught.value.exit == Exit.PREFLIGHT


def test_a_host_without_rsync(start_sshd: Start, wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("sh", "mkdir"):
        (tmp_path / "bin" / name).symlink_to(f"/bin/{name}")
    server = start_sshd(f'ForceCommand /usr/bin/env PATH={tmp_path}/bin sh -c "$SSH_ORIGINAL_COMMAND"\n')
    with pytest.raises(FleetError, match="has no rsync") as caught:
        push(server.host(), [wheels], "/var/lib/fleetctl/wheels")
    assert caught.value.exit == Exit.PREFLIGHT
    assert "apt-get install rsync" in caught.value.fix


def test_no_rsync_here(sshd: Sshd, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").symlink_to("/usr/bin/ssh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(FleetError, match="rsync is not installed here"):
        push(sshd.host(), [wheels], "/var/lib/fleetctl/wheels")


def test_an_unknown_host_key_is_refused_here_too(sshd: Sshd, wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(FleetError) as caught:
        push(sshd.host(known_hosts=tmp_path / "none"), [wheels], "/var/lib/fleetctl/wheels")
    assert caught.value.exit == Exit.UNREACHABLE
    assert any("Host key verification failed" in line for line in caught.value.evidence)


def test_a_missing_source(sshd: Sshd, tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="no such file") as caught:
        push(sshd.host(), [tmp_path / "nothing"], "/var/lib/fleetctl/wheels")
    assert caught.value.exit == Exit.INPUT


def test_progress_lines() -> None:
    assert parse_progress("      1234567  45%   12.50MB/s    0:01:12") == Progress(
        1234567, 45, 12.5 * 1024**2, 72
    )
    assert parse_progress("  6000000 100%  1.00kB/s    0:00:05 (xfr#3, to-chk=0/4)") == Progress(
        6000000, 100, 1024.0, 0
    )
    assert parse_progress("sending incremental file list") is None
