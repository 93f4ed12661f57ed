"""The agent over a real sshd: sent once, one session, asked from many threads, gone with its link."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleetctl.errors import Exit, FleetError
from fleetctl.transport.agent import Agent, open_agent
from fleetctl.transport.payload import payload
from tests.transport.sshd import Sshd, wait_for

Start = Callable[..., Sshd]
NOW = 30.0
"""Half of the silence after which an agent ends in any case."""


def agents(sshd: Sshd) -> list[int]:
    return [
        pid
        for pid, command in sshd.descendants().items()
        if ".pyz serve" in command and "sh -c" not in command
    ]


@contextmanager
def mute(sshd: Sshd) -> Iterator[int]:
    """The one agent answers nothing meanwhile; its pid."""
    (pid,) = agents(sshd)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)


def kept(sshd: Sshd) -> list[str]:
    return sorted(sshd.inside("cd /var/lib/fleetctl/agent && find . -name '*.pyz*' -printf '%f\\n'").split())


@pytest.fixture
def agent(sshd: Sshd) -> Iterator[Agent]:
    with open_agent(sshd.host()) as opened:
        yield opened


def test_the_agent_is_sent_once_and_one_session_does_it_all(start_sshd: Start) -> None:
    server = start_sshd()
    for sessions in (1, 2, 3):
        with open_agent(server.host()) as opened:
            assert opened.hello["agent"] == payload().digest
            assert opened.hello["uid"] == 0
            assert opened.call("facts")["hostname"] == socket.gethostname()
        assert server.sessions() == sessions
        assert kept(server) == [f"{payload().digest}.pyz"]
    assert server.log.read_text().count("Accepted publickey") == 3


def test_the_agent_ends_with_its_controller(sshd: Sshd) -> None:
    with open_agent(sshd.host()):
        assert len(agents(sshd)) == 1
    wait_for(lambda: not agents(sshd), NOW)


def test_the_agent_ends_when_its_controller_is_killed(sshd: Sshd) -> None:
    program = (
        "import sys, json, time\n"
        "from tests.transport.sshd import TestHost, SshSettings\n"
        "from fleetctl.transport.agent import open_agent\n"
        "with open_agent(TestHost('box', SshSettings(**json.loads(sys.argv[1])))) as agent:\n"
        "    print('open', flush=True)\n"
        "    time.sleep(600)\n"
    )
    settings = {
        key: value if isinstance(value, int) else str(value)
        for key, value in vars(sshd.host().ssh).items()
        if value
    }
    controller = subprocess.Popen(
        [sys.executable, "-c", program, json.dumps(settings)], stdout=subprocess.PIPE
    )
    assert controller.stdout and controller.stdout.readline() == b"open\n"
    assert len(agents(sshd)) == 1
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    wait_for(lambda: not agents(sshd), NOW)


def test_a_link_that_dies_during_a_call(sshd: Sshd) -> None:
    wait_for(lambda: not agents(sshd))
    with open_agent(sshd.host()) as opened:
        with mute(sshd) as pid:
            session = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            threading.Timer(0.3, os.kill, (session, signal.SIGKILL)).start()
            with pytest.raises(FleetError) as caught:
                opened.call("facts", timeout=NOW)
        assert caught.value.what == "link to box lost during facts"
        assert caught.value.exit == Exit.UNREACHABLE
        assert caught.value.fix == "is the host up and the network stable?"
        with pytest.raises(FleetError, match="lost during history"):
            opened.call("history")
        for call, after in (
            ("rollout.follow", "A rollout goes on there by itself; `fleetctl attach box` follows it"),
            ("environment.derive", "What was being made is removed there; run it again"),
        ):
            with pytest.raises(FleetError) as caught:
                opened.call(call)
            assert caught.value.fix == f"is the host up and the network stable? {after}"


def test_an_agent_that_dies_says_so(sshd: Sshd) -> None:
    wait_for(lambda: not agents(sshd))
    with open_agent(sshd.host()) as opened:
        (pid,) = agents(sshd)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(FleetError, match="lost during facts"):
            opened.call("facts")


def test_a_call_without_an_answer_in_time(sshd: Sshd) -> None:
    wait_for(lambda: not agents(sshd))
    with open_agent(sshd.host()) as opened:
        with mute(sshd), pytest.raises(FleetError, match=r"no answer to facts within 0.2 s") as caught:
            opened.call("facts", timeout=0.2)
        assert caught.value.exit == Exit.UNREACHABLE
        assert opened.call("history") == [], "the next call is not confused by the late answer"


def test_errors_of_the_agent_keep_their_exit_code(agent: Agent) -> None:
    with pytest.raises(FleetError) as caught:
        agent.call("nonsense")
    assert caught.value.exit == Exit.INPUT
    assert "no call 'nonsense'" in caught.value.what
    with pytest.raises(FleetError) as caught:
        agent.call("facts", slots=7)
    assert caught.value.exit == Exit.BUG
    assert any("Traceback" in line for line in caught.value.evidence)


def test_calls_from_many_threads_get_their_own_answers(agent: Agent) -> None:
    wrong: list[object] = []

    def ask(number: int) -> None:
        for turn in range(20):
            path = f"/nowhere/{number}/{turn}"
            answer = agent.call("facts", paths=[path])["paths"]
            if list(answer) != [path]:
                wrong.append(answer)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_message_of_ten_megabytes_each_way(agent: Agent) -> None:
    paths = [f"/nowhere/{number:06}/{'x' * 84}" for number in range(100_000)]
    answer = agent.call("facts", paths=paths)
    assert set(answer["paths"]) == set(paths)
    assert len(json.dumps(answer)) > 10_000_000


def test_words_of_the_login_shell_before_hello_are_skipped(start_sshd: Start, tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shell.write_text(
        '#!/bin/sh\necho "Welcome to box"; echo; printf "no newline: "; echo\neval "$SSH_ORIGINAL_COMMAND"\n'
    )
    shell.chmod(0o755)
    server = start_sshd(f"ForceCommand {shell}\n")
    for _ in ("sent", "kept"):
        with open_agent(server.host()) as opened:
            assert opened.call("history") == []


def test_a_shell_that_ends_before_hello_is_shown(start_sshd: Start) -> None:
    server = start_sshd("ForceCommand echo This account is closed.; echo why >&2\n")
    with pytest.raises(FleetError) as caught, open_agent(server.host()):
        pass
    assert caught.value.exit == Exit.UNREACHABLE
    assert caught.value.evidence == ["This account is closed.", "why"]


def test_endless_noise_is_bounded(start_sshd: Start) -> None:
    server = start_sshd("ForceCommand yes noise\n")
    with pytest.raises(FleetError, match="printed too much") as caught, open_agent(server.host()):
        pass
    assert caught.value.evidence[0] == "noise"


def without_python(start_sshd: Start, folder: Path) -> Sshd:
    """A host whose /usr/bin/python3 is none, and whose PATH holds the few tools that the start needs."""
    folder.mkdir()
    for name in ("sh", "mkdir", "head", "sha256sum", "cut", "mv", "rm"):
        (folder / name).symlink_to(f"/bin/{name}")
    server = start_sshd(f'ForceCommand /usr/bin/env PATH={folder} sh -c "$SSH_ORIGINAL_COMMAND"\n')
    server.inside("mount --bind /dev/null /usr/bin/python3")
    return server


def test_a_host_without_python(start_sshd: Start, tmp_path: Path) -> None:
    server = without_python(start_sshd, tmp_path / "bin")
    with pytest.raises(FleetError) as caught, open_agent(server.host()):
        pass
    assert "no python3" in caught.value.what
    assert "apt-get install python3" in caught.value.fix
    assert caught.value.exit == Exit.UNREACHABLE


def test_a_python_elsewhere_on_the_path_will_do(start_sshd: Start, tmp_path: Path) -> None:
    server = without_python(start_sshd, tmp_path / "bin")
    (tmp_path / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    with open_agent(server.host()) as opened:
        assert opened.call("history") == []


OLD = """#!/bin/sh
exec {python} -c 'import runpy, sys
sys.version_info = (3, 7, 16, "final", 0)
sys.argv = [word for word in sys.argv[1:] if word not in ("-I", "-S")]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""


def test_a_python_that_is_too_old_and_a_newer_one_beside_it(start_sshd: Start, tmp_path: Path) -> None:
    server = without_python(start_sshd, tmp_path / "bin")
    real = Path(sys.executable).resolve()
    (tmp_path / "bin/python3").write_text(OLD.format(python=real))
    (tmp_path / "bin/python3").chmod(0o755)
    with (
        pytest.raises(FleetError, match="the host's python3 is too old") as caught,
        open_agent(server.host()),
    ):
        pass
    assert caught.value.exit == Exit.UNREACHABLE
    assert "3.9 or later" in caught.value.fix and "old-python" in caught.value.evidence[0]
    (tmp_path / "bin/python3.11").symlink_to(real)
    with open_agent(server.host()) as opened:
        assert opened.call("history") == []


def test_a_full_disk_and_a_read_only_one(start_sshd: Start) -> None:
    server = start_sshd()
    server.inside("head -c 9M /dev/zero >/var/lib/fleetctl/fill || true")
    with pytest.raises(FleetError, match="cannot write the agent") as caught, open_agent(server.host()):
        pass
    assert any("No space left" in line for line in caught.value.evidence)
    assert kept(server) == []
    server.inside("rm /var/lib/fleetctl/fill; mount -o remount,ro /var/lib/fleetctl")
    with pytest.raises(FleetError, match="cannot write the agent") as caught, open_agent(server.host()):
        pass
    assert any("Read-only file system" in line for line in caught.value.evidence)


def test_a_sending_that_was_cut_leaves_nothing_that_counts(start_sshd: Start) -> None:
    server = start_sshd()
    server.inside(
        "mkdir -p /var/lib/fleetctl/agent; echo half >/var/lib/fleetctl/agent/" + f"{payload().digest}.pyz.77"
    )
    with open_agent(server.host()) as opened:
        assert opened.call("history") == []


def has_same_python(opened: Agent) -> bool:
    """Whether the agent runs by the Python whose bytecode it was sent with."""
    return str(opened.hello["python"]).split(".")[:2] == [str(part) for part in sys.version_info[:2]]


def test_old_agents_go_and_the_recent_ones_stay(start_sshd: Start) -> None:
    server = start_sshd()
    folder = "/var/lib/fleetctl/agent"
    server.inside(
        f"mkdir -p {folder}; cd {folder}; touch 5.pyz 6.pyz 7.pyz; "
        'for n in 1 2 3 4; do touch -d "$n days ago" $n.pyz; done'
    )
    server.inside(f"mkdir {folder}/1 {folder}/7")
    with open_agent(server.host()) as opened:
        left = {f"{payload().digest}.pyz", "5.pyz", "6.pyz", "7.pyz", "7"}
        left |= set() if has_same_python(opened) else {payload().digest}
        wait_for(lambda: set(server.inside(f"ls {folder}").split()) == left)


def test_a_host_with_the_same_python_has_bytecode_from_the_first_start(start_sshd: Start) -> None:
    server = start_sshd()
    with open_agent(server.host()) as opened:
        opened.call("facts")
    assert has_same_python(opened) == (
        server.inside("ls /var/lib/fleetctl/agent") == f"{payload().digest}.pyz\n"
    )


def test_the_second_start_finds_bytecode(start_sshd: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    from fleetctl.transport import agent as transport
    from fleetctl.transport.payload import pack, sources

    monkeypatch.setattr("fleetctl.transport.payload._bytecode", lambda name, source: b"of another Python")
    plain = pack(sources())
    monkeypatch.setattr(transport, "payload", lambda: plain)
    server = start_sshd()
    unpacked = f"/var/lib/fleetctl/agent/{plain.digest}"
    with open_agent(server.host()) as opened:
        wait_for(lambda: server.inside(f"ls -d {unpacked} || true"))
    with open_agent(server.host()) as opened:
        opened.call("facts")
    assert "facts." in server.inside(f"ls {unpacked}/fleetctl/agent/host/__pycache__")


def test_a_host_whose_disk_fills_up_after_the_agent_came_still_serves(start_sshd: Start) -> None:
    server = start_sshd()
    server.inside("mkdir -p /var/lib/fleetctl/agent")
    server.inside(f"head -c {8 * 2**20 - len(payload().data) - 300_000} /dev/zero >/var/lib/fleetctl/fill")
    for _ in range(2):
        with open_agent(server.host()) as opened:
            server.inside("head -c 9M /dev/zero >/var/lib/fleetctl/fill2 || true")
            assert opened.call("history") == []


def test_an_agent_that_was_changed_on_the_host_is_sent_anew(start_sshd: Start) -> None:
    server = start_sshd()
    with open_agent(server.host()):
        pass
    file = f"/var/lib/fleetctl/agent/{payload().digest}.pyz"
    server.inside(f"printf x | dd of={file} bs=1 seek=2000 conv=notrunc 2>/dev/null")
    with open_agent(server.host()) as agent:
        assert agent.hello["agent"] == payload().digest
    assert server.inside(f"sha256sum <{file}").split()[0] == payload().sha256
