"""Connecting to real sshds: whose key is trusted, which are offered, and every way of not arriving."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.errors import Exit, FleetError
from fleetctl.transport import connection
from fleetctl.transport.connection import connect
from fleetctl.transport.known_hosts import fingerprint, known_keys
from fleetctl.transport.settings import resolve
from tests.transport.sshd import Sshd, SshSettings, TestHost, free_port, make_key, relay, wait_for

Start = Callable[..., Sshd]


def reach(host: TestHost, config: Path | None = None) -> None:
    with connect(resolve(host, config)) as transport:
        assert transport.is_authenticated()


def refused(host: TestHost, config: Path | None = None) -> FleetError:
    with pytest.raises(FleetError) as caught:
        reach(host, config)
    assert caught.value.exit == Exit.UNREACHABLE
    assert caught.value.where.startswith(host.name)
    return caught.value


def public_fingerprint(path: Path) -> str:
    return subprocess.run(
        ["ssh-keygen", "-lf", str(path)], check=True, capture_output=True, text=True
    ).stdout.split()[1]


def test_known_host_and_accepted_key(sshd: Sshd) -> None:
    reach(sshd.host())


def test_unknown_host_key_is_refused_and_the_command_in_the_fix_accepts_it(
    sshd: Sshd, tmp_path: Path
) -> None:
    known = tmp_path / "known_hosts"
    error = refused(sshd.host(known_hosts=known))
    assert "unknown host key" in error.what
    assert public_fingerprint(sshd.folder / "host_key.pub") in error.what
    command = error.fix[error.fix.index("ssh-keyscan") :]
    subprocess.run(command, shell=True, check=True, capture_output=True)
    reach(sshd.host(known_hosts=known))


@pytest.mark.parametrize("own", [True, False], ids=["own", "another"])
def test_known_hosts_that_cannot_be_read_is_to_be_made_readable(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    files = [tmp_path / "mine", tmp_path / "theirs"]
    shut = files[0] if own else files[1]
    opened = Path.open

    def open_(path: Path, *args: Any, **named: Any) -> Any:
        if path == shut:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *args, **named)

    monkeypatch.setattr(Path, "open", open_)
    config = tmp_path / "config"
    config.write_text(f"Host *\n  UserKnownHostsFile {files[0]} {files[1]}\n")
    error = refused(sshd.host(known_hosts=None), config)
    assert f"cannot be read (Permission denied): {shut}" in error.evidence
    assert error.fix.startswith(f"make {shut} readable to this user, or run fleetctl as its owner")
    assert ("ssh-keyscan" in error.fix) == (not own)


def test_changed_host_key_names_both_fingerprints_and_the_line(sshd: Sshd, tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    known = tmp_path / "known_hosts"
    public = (tmp_path / "other.pub").read_text()
    known.write_text(f"# comment\n\n[127.0.0.1]:{sshd.port} {public}")
    error = refused(sshd.host(known_hosts=known))
    assert "HOST KEY CHANGED" in error.what
    assert public_fingerprint(sshd.folder / "host_key.pub") in error.what
    assert f"{known}:3" in error.evidence[0]
    assert public_fingerprint(tmp_path / "other.pub") in error.evidence[0]
    for command in error.fix.split(": ", 1)[1].split("; "):
        subprocess.run(command, shell=True, check=True, capture_output=True)
    reach(sshd.host(known_hosts=known))


def test_revoked_host_key(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    line = sshd.known_hosts.read_text()
    known.write_text(line + "@revoked " + line)
    assert "REVOKED" in refused(sshd.host(known_hosts=known)).what


def test_a_host_with_several_keys_is_asked_for_the_known_one(start_sshd: Start, tmp_path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", str(tmp_path / "rsa")], check=True
    )
    server = start_sshd(f"HostKey {tmp_path}/rsa\n")
    server.trust(tmp_path / "rsa.pub")
    reach(server.host())


def test_known_hosts_patterns(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    key = " ".join((tmp_path / "key.pub").read_text().split()[:2])
    file = tmp_path / "known_hosts"
    file.write_text(
        f"*.lan,!bad.lan {key}\n[10.0.0.?]:2222 {key}\n@cert-authority *.lan {key}\n"
        f"not a line\nplain {key} comment\n"
    )
    found = {
        name: [entry.line for entry in known_keys([file], name)]
        for name in ("a.lan", "A.LAN", "bad.lan", "[10.0.0.7]:2222", "10.0.0.7", "plain", "plai")
    }
    assert found == {
        "a.lan": [1],
        "A.LAN": [1],
        "bad.lan": [],
        "[10.0.0.7]:2222": [2],
        "10.0.0.7": [],
        "plain": [5],
        "plai": [],
    }


def test_hashed_known_hosts(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    file = tmp_path / "known_hosts"
    file.write_text(
        f"other {(tmp_path / 'key.pub').read_text()}[plain]:22022 {(tmp_path / 'key.pub').read_text()}"
    )
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "plain" not in file.read_text()
    (found,) = known_keys([file], "[plain]:22022")
    assert found.line == 2
    assert fingerprint(found.blob) == public_fingerprint(tmp_path / "key.pub")


def test_refused_key_names_the_keys_tried(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    make_key(tmp_path / "stranger")
    error = refused(sshd.host(identity_file=tmp_path / "stranger"))
    assert "takes none of the keys" in error.what
    assert str(tmp_path / "stranger") in error.evidence[0]
    assert public_fingerprint(tmp_path / "stranger.pub") in error.evidence[0]
    assert "authorized_keys" in error.fix


def test_missing_and_locked_identity_files_are_named(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    error = refused(sshd.host(identity_file=tmp_path / "nowhere"))
    assert f"not usable: {tmp_path}/nowhere" in error.evidence[0]
    make_key(tmp_path / "locked", "-N", "secret")
    error = refused(sshd.host(identity_file=tmp_path / "locked"))
    assert "ssh-add" in error.evidence[0]


@pytest.fixture
def ssh_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    wait_for(lambda: subprocess.run(["ssh-add", "-l"], capture_output=True).returncode == 1)
    yield path
    process.terminate()
    process.wait()


def test_a_key_of_ssh_agent_opens_the_host(sshd: Sshd, ssh_agent: Path, tmp_path: Path) -> None:
    subprocess.run(["ssh-add", "-q", str(sshd.identity)], check=True, stderr=subprocess.DEVNULL)
    reach(sshd.host(identity_file=None))
    error = refused(sshd.host(identity_file=tmp_path / "other"))
    assert "not usable" in error.evidence[0], "an identity named in the inventory is the only one offered"


def test_a_named_identity_with_a_passphrase_is_signed_for_by_ssh_agent(
    sshd: Sshd, ssh_agent: Path, tmp_path: Path
) -> None:
    subprocess.run(["ssh-add", "-q", str(sshd.identity)], check=True, stderr=subprocess.DEVNULL)
    locked = tmp_path / "locked"
    locked.write_bytes(sshd.identity.read_bytes())
    locked.chmod(0o600)
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(locked)], check=True, stdout=subprocess.DEVNULL
    )
    (tmp_path / "locked.pub").write_bytes(sshd.identity.with_suffix(".pub").read_bytes())
    reach(sshd.host(identity_file=locked))


def test_identity_agent_of_ssh_config(
    sshd: Sshd, ssh_agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["ssh-add", "-q", str(sshd.identity)], check=True, stderr=subprocess.DEVNULL)
    monkeypatch.delenv("SSH_AUTH_SOCK")
    config = tmp_path / "config"
    config.write_text(f"Host box\n  IdentityAgent {ssh_agent}\n")
    reach(sshd.host(identity_file=None), config)
    config.write_text("Host box\n  IdentityAgent none\n")
    assert "no key to offer" in refused(sshd.host(identity_file=None), config).what


def test_settings_of_ssh_config_are_honoured(sshd: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    included = tmp_path / "included"
    config.write_text(f"Include {included}\nHost *\n  ConnectTimeout 60\n")
    included.write_text(
        f"Host box\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User root\n"
        f"  IdentityFile {sshd.identity}\n  UserKnownHostsFile {sshd.known_hosts}\n"
    )
    host = TestHost("box")
    settings = resolve(host, config)
    assert (settings.hostname, settings.port, settings.user) == ("127.0.0.1", sshd.port, "root")
    assert settings.connect_timeout == 60
    reach(host, config)
    wrong = TestHost("box", SshSettings(port=1))
    assert resolve(wrong, config).port == 1, "the inventory wins"


def test_a_broken_ssh_config_is_the_operators_error(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host box\n  Prot 22\n")
    with pytest.raises(FleetError) as caught:
        resolve(TestHost("box"), config)
    assert caught.value.exit == Exit.INPUT
    assert f"{config}: line 2" in caught.value.evidence[0]


def test_proxy_jump(sshd: Sshd, start_sshd: Start, tmp_path: Path) -> None:
    gate = start_sshd()
    config = tmp_path / "config"
    config.write_text(
        f"Host gate\n  HostName 127.0.0.1\n  Port {gate.port}\n  User root\n  IdentityFile {gate.identity}\n"
        f"  UserKnownHostsFile {gate.known_hosts}\n"
    )
    reach(sshd.host(proxy_jump="gate"), config)
    assert "Accepted publickey" in gate.log.read_text()

    gate.known_hosts.write_text("")
    error = refused(sshd.host(proxy_jump="gate"), config)
    assert "proxy" in error.what
    assert any("Host key verification failed" in line for line in error.evidence)


def test_a_refused_port(sshd: Sshd) -> None:
    port = free_port()
    error = refused(sshd.host(port=port))
    assert "refuses connections" in error.what
    assert f"127.0.0.1:{port}" in error.where


def test_a_name_that_does_not_resolve(sshd: Sshd) -> None:
    error = refused(sshd.host(hostname="no-such-host.invalid"))
    assert "does not resolve" in error.what
    assert "for adopt --ssh" in error.fix


def test_a_host_that_answers_nothing_ends_at_its_connect_timeout(sshd: Sshd) -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for taker in (first, second):
            taker.setblocking(False)
            taker.connect_ex(full.getsockname())
        begin = time.monotonic()
        error = refused(sshd.host(port=full.getsockname()[1], connect_timeout=1))
        assert "no answer within 1 s" in error.what
        assert time.monotonic() - begin < 60


def test_reset_handshakes_are_tried_again(sshd: Sshd) -> None:
    with relay(sshd, resets=2) as (host, seen):
        reach(host)
    assert len(seen) == 3


def test_endless_resets_end_in_an_error(sshd: Sshd) -> None:
    with relay(sshd, resets=99) as (host, seen):
        error = refused(host)
    assert "closed during the SSH handshake" in error.what
    assert "MaxStartups" in error.fix
    assert 1 < len(seen) <= 5


def test_a_port_that_says_nothing_ends_in_time(sshd: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        begin = time.monotonic()
        error = refused(sshd.host(port=mute.getsockname()[1], connect_timeout=1))
    assert "no SSH handshake" in error.what
    assert time.monotonic() - begin < 60


def test_many_threads_at_once_stay_under_the_hosts_limit(start_sshd: Start) -> None:
    server = start_sshd("MaxStartups 9:100:9\n")
    errors: list[BaseException] = []

    def one() -> None:
        try:
            reach(server.host())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_nothing_is_left_open(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ATTEMPTS", 1)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        reach(sshd.host())
    refused(sshd.host(identity_file=sshd.folder / "host_key"))
    refused(sshd.host(known_hosts=sshd.folder / "none"))
    with relay(sshd, resets=99) as (host, _):
        refused(host)
    wait_for(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before)
