"""The lab's hosts behave as hosts: their own systemd, journal, files, GPUs and network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.lab import gpus, hosts, keys
from tests.conftest import Lab

pytestmark = pytest.mark.lab


def _cli(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "fleetctl", "lab", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)


def test_systemd_journal_and_timers_are_the_hosts_own(lab: Lab) -> None:
    assert lab.run("ct200", "hostname; systemctl is-system-running --wait").stdout == "ct200\nrunning\n"
    ids = {lab.run(name, "cat /etc/machine-id").stdout for name in lab.hosts}
    assert len(ids) == 2
    assert lab.run("ct200", "systemd-run --wait --pipe --quiet echo from a unit").stdout == "from a unit\n"
    lab.run("ct200", "systemd-run --on-active=0.1 --timer-property=AccuracySec=10ms --unit=tick true")
    said = "until journalctl --unit=tick.service | grep 'Finished\\|Deactivated'; do sleep 0.1; done"
    assert "tick.service" in lab.run("ct200", said).stdout
    assert lab.run("ct129", "journalctl --unit=tick.service --quiet").stdout == ""


def test_only_the_ssh_unit_is_wanted_and_no_unit_of_the_machine_runs(lab: Lab) -> None:
    running = lab.run("ct200", "systemctl list-units --type=service --state=running --plain --no-legend")
    names = {line.split()[0] for line in running.stdout.splitlines()}
    assert names <= {"dbus.service", "ssh.service", "systemd-journald.service"}
    assert lab.run("ct200", "ls /etc/systemd/system/multi-user.target.wants").stdout == "ssh.service\n"


def test_each_host_has_tmp_home_and_keys_of_its_own(lab: Lab, tmp_path: Path) -> None:
    outside = Path("/tmp/fleetctl-lab-test-outside")
    outside.write_text("kept")
    try:
        lab.run("ct200", "touch /tmp/of-ct200")
        assert "of-ct200" in lab.run("ct200", "ls /tmp").stdout
        assert outside.name not in lab.run("ct200", "ls /tmp").stdout
        assert "of-ct200" not in lab.run("ct129", "ls /tmp").stdout
        assert not Path("/tmp/of-ct200").exists()
        assert outside.read_text() == "kept"
    finally:
        outside.unlink()
    assert lab.run("ct200", "ls -A /root /root/.ssh /home").stdout.split() == [
        "/home:",
        "/root:",
        ".ssh",
        "/root/.ssh:",
        "authorized_keys",
    ]
    assert lab.run("ct200", "wc -l < /root/.ssh/authorized_keys").stdout.strip() == "1"


def test_state_folder_takes_hard_links_and_commands_are_found(lab: Lab) -> None:
    link = "cd /var/lib/fleetctl && touch a && ln -f a b && stat -c %h a && rm a b"
    assert lab.run("ct200", link).stdout == "2\n"
    found = lab.run("ct200", "command -v python3 nvidia-smi").stdout.split()
    assert found == ["/usr/bin/python3", "/usr/local/bin/nvidia-smi"]


def test_hosts_reach_each_other_and_nothing_else(lab: Lab) -> None:
    probe = (
        "import socket; s = socket.socket(); s.settimeout(30)\n"
        "try: s.connect(('{}', 22)); print('reached')\n"
        "except OSError as error: print(error.strerror)"
    )
    neighbour = probe.format(lab.address("ct129"))
    assert lab.run("ct200", f'python3 -c "{neighbour}"').stdout == "reached\n"
    outside = probe.format("192.0.2.1")
    assert lab.run("ct200", f'python3 -c "{outside}"').stdout == "Network is unreachable\n"


def test_status_tells_state_address_and_units(lab: Lab) -> None:
    found = {state["host"]: state for state in json.loads(_cli("status", "--json").stdout)["hosts"]}
    assert set(found) == {"ct129", "ct200"}
    assert found["ct200"]["state"] == "up"
    assert found["ct200"]["address"] == lab.address("ct200")
    assert found["ct200"]["units_running"] >= 2
    assert found["ct200"]["uptime_s"] > 0
    plain = _cli("status").stdout.splitlines()
    assert plain[0].split()[:3] == ["HOST", "ADDRESS", "STATE"]
    assert plain[2].split()[:3] == ["ct200", lab.address("ct200"), "up"]


def test_ssh_gives_the_commands_output_and_status(lab: Lab) -> None:
    assert _cli("ssh", "ct200", "exit 7").returncode == 7
    assert _cli("ssh", "ct200", "sh", "-c", "echo 'two  words' | tr a-z A-Z").stdout == "TWO  WORDS\n"
    assert _cli("ssh", "ct200", "--", "uname", "-n").stdout == "ct200\n"
    unknown = _cli("ssh", "ct201", "true")
    assert unknown.returncode == 2
    assert "ct129, ct200" in unknown.stderr


def test_nothing_slows_a_login(lab: Lab) -> None:
    ssh = keys.ssh_command(
        lab.hosts["ct200"], "ip route; systemctl list-units --plain --no-legend 'session-*'"
    )
    ssh[ssh.index("LogLevel=ERROR")] = "LogLevel=DEBUG1"
    done = subprocess.run(ssh, capture_output=True, text=True, timeout=180, check=True)
    assert "kex: algorithm: curve25519-sha256" in done.stderr
    assert done.stdout.strip().endswith("quickack 1")


def test_gpus_say_what_a_test_makes_them_say(lab: Lab) -> None:
    query = "nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits"
    assert len(lab.run("ct200", query).stdout.splitlines()) == 8
    try:
        gpus.lose("ct200", 1)
        gpus.occupy("ct200", 2, 512, pid=77)
        gpus.occupy("ct200", 3, 1024)
        answer = lab.run("ct200", query, check=False)
        assert answer.returncode == 255
        assert "GPU0000:21:00.0: Unknown Error" in answer.stdout
        assert "2, 512\n3, 1024\n" in answer.stdout
        apps = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader -i 2,3"
        assert lab.run("ct200", apps).stdout == "77, 512 MiB\n"
        assert lab.run("ct129", query).returncode == 0
        gpus.release("ct200", 2)
        assert lab.run("ct200", apps).stdout == ""
    finally:
        gpus.reset("ct200")
    assert lab.run("ct200", query).returncode == 0


def test_a_host_whose_power_was_cut_boots_again_with_its_disk(lab: Lab) -> None:
    host = lab.hosts["ct129"]
    lab.run("ct129", "echo kept > /root/kept; sync; touch /tmp/gone")
    hosts.kill(host)
    (state,) = hosts.status([host])
    assert (state.state, state.reason) == ("broken", "its systemd is gone")
    hosts.boot(host)
    assert lab.run("ct129", "cat /root/kept; ls /tmp; rm /root/kept").stdout == "kept\n"
    assert lab.run("ct129", "journalctl --list-boots --quiet | wc -l").stdout.strip() != "1"


def test_a_pulled_cable_is_seen_and_plugged_in_again(lab: Lab) -> None:
    host = lab.hosts["ct129"]
    hosts.link_down(host)
    try:
        (state,) = hosts.status([host])
        assert state.state == "broken"
        assert "198.18.0.12" in state.reason or "no answer" in state.reason
    finally:
        hosts.link_up(host)
    assert hosts.status([host])[0].state == "up"
