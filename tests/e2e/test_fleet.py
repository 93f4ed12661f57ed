"""Rollouts on many hosts with the real command line. The lab's two machines are six hosts here, by more addresses."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.conftest import Lab
from tests.e2e.conftest import STANDIN, TEMPLATE, VENV

MACHINES = ("ct200", "ct129")
FIRST_PORT = 27001
AWAY = "198.18.0.250"
GATE = "/run/held-fleet"
HOSTS = ("h1", "h2", "h3", "h4", "h5", "h6")


class Six:
    """Six hosts, each with one slot; ``behave`` says how a host's service does."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        (folder / "inventories").mkdir()
        (folder / "templates/systemd").mkdir(parents=True)
        (folder / "templates/systemd/standin.service.j2").write_text(TEMPLATE)
        keys = {
            line.split()[0].partition(",")[0]: line.split(maxsplit=1)[1]
            for line in lab.known_hosts.read_text().splitlines()
        }
        known = [f"{self.address(host)} {keys[self.machine(host)]}\n" for host in HOSTS]
        (folder / "known_hosts").write_text("".join(known))
        (folder / "inventories/groups.yaml").write_text("odd: [h1, h3, h5]\nlater: ['h*,!h1,!h2']\n")
        for host in HOSTS:
            self.behave(host)

    def machine(self, host: str) -> str:
        return MACHINES[int(host[1:]) % 2]

    def address(self, host: str) -> str:
        return f"198.18.0.{60 + int(host[1:])}"

    def port(self, host: str) -> int:
        return FIRST_PORT + int(host[1:])

    def behave(self, host: str, address: str = "", **knobs: Any) -> None:
        """Write the host's file, with a service that behaves so."""
        knobs = {"port": self.port(host), "model": "m", **knobs}
        service = {
            "slot": f"fleet-{host}",
            "engine": "standalone",
            "mode": "autoregressive",
            "environment": "standin",
            "model": "m",
            "template": "standin.service.j2",
            "probe": {"prompt": "one", "max_tokens": 8},
            "deadlines": {"drain": 30, "stop": 30, "free": 60, "ready": 600, "generate": 60},
        }
        quiet = {"port": self.port(host), "model": "m"}
        said = {
            "host": host,
            "ssh": {
                "hostname": address or self.address(host),
                "user": "root",
                "identity_file": str(self.lab.identity),
                "known_hosts": str(self.folder / "known_hosts"),
                "connect_timeout": 3 if address == AWAY else 30,
            },
            "gpus": {"count": int(host[1:])},
            "slots": {f"fleet-{host}": {"gpus": [], "port": self.port(host)}},
            "environments": {"standin": {"path": VENV}},
            "models": {"m": {"path": "/etc/hostname"}},
            "services": {
                "one": {**service, "unit": f"fleet-{host}-one.service", "env": {"KNOBS": json.dumps(knobs)}},
                "two": {**service, "unit": f"fleet-{host}-two.service", "env": {"KNOBS": json.dumps(quiet)}},
            },
        }
        (self.folder / f"inventories/{host}.yaml").write_text(yaml.safe_dump(said, sort_keys=False))

    def start(self, *words: str) -> warm.Command:
        return warm.start(words, self.env)

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "FLEETCTL_FLEET": str(self.folder), "FLEETCTL_INVENTORY": "inventories"}

    def start_by_itself(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "fleetctl", *words],
            env=self.env,
            text=True,
            **more,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        )

    def hold(self, host: str) -> None:
        """From now on the host's service is not healthy, where it has the knob ``shut=GATE``."""
        self.lab.run(self.machine(host), f"touch {GATE}")

    def release(self, host: str) -> None:
        self.lab.run(self.machine(host), f"rm -f {GATE}")

    def run(self, *words: str, expect: int = 0) -> str:
        process = self.start(*words)
        out, err = process.communicate(timeout=280)
        assert process.returncode == expect, f"{' '.join(words)}: exit {process.returncode}\n{out}\n{err}"
        assert "Traceback" not in err
        return out + err

    def fleet(self, *words: str, expect: int = 0) -> dict[str, Any]:
        """The last line of ``--json``: what became of the whole."""
        process = self.start(*words, "--json")
        out, err = process.communicate(timeout=280)
        assert process.returncode == expect, f"{' '.join(words)}: exit {process.returncode}\n{out}\n{err}"
        found: dict[str, Any] = json.loads(out.splitlines()[-1])["fleet"]
        return found

    def records(self) -> list[list[dict[str, Any]]]:
        """Every record's lines, the newest record last."""
        paths = sorted(
            (self.folder / ".fleetctl/rollouts").glob("*.jsonl"), key=lambda path: path.stat().st_mtime
        )
        return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]

    def until(self, what: Any, seconds: float = 200) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, "it does not come"
            time.sleep(0.1)

    def said(self, **wanted: Any) -> bool:
        """Whether the newest record has a line with all of this."""
        lines = self.records()[-1] if self.records() else []
        return any(all(line.get(key) == value for key, value in wanted.items()) for line in lines)

    def active(self, host: str, service: str = "one") -> bool:
        unit = f"fleet-{host}-{service}.service"
        said = self.lab.run(self.machine(host), f"systemctl is-active {unit}", check=False).stdout
        return said.strip() == "active"

    def logins(self, machine: str) -> int:
        """Logins that the machine's sshd has taken so far, this one too."""
        return int(
            self.lab.run(
                machine, "journalctl --sync; journalctl -q -t sshd -o cat | grep -c '^Accepted publickey'"
            ).stdout
        )

    def serving(self) -> list[str]:
        return [host for host in HOSTS if self.active(host)]


@pytest.fixture
def six(lab: Lab, tmp_path: Path) -> Iterator[Six]:
    for name in MACHINES:
        more = " ".join(f"198.18.0.{60 + number}" for number in range(1, 7) if MACHINES[number % 2] == name)
        lab.run(name, f"for a in {more}; do ip addr replace $a/24 dev eth0; done")
        lab.run(name, f"test -x {VENV}/bin/python || /usr/bin/python3 -m venv --without-pip {VENV}")
        (lab.state(name) / "standin.py").write_text(STANDIN.read_text())
    yield Six(lab, tmp_path)
    units = "/etc/systemd/system/{,multi-user.target.wants/}fleet-h*"
    state = f"{GATE} /var/lib/fleetctl/slots/fleet-h*"
    clean = f"systemctl stop 'fleetctl-rollout-fleet-*' 'fleet-h*'; rm -f {units} {state}; systemctl daemon-reload"
    for name in MACHINES:
        lab.run(name, clean, check=False)


def test_canary_first_then_the_rest_and_a_record_of_it(six: Six) -> None:
    said = six.run("deploy", "@all", "!h6", "--service", "one", "--canary", "1", "--max-parallel", "3")
    assert six.serving() == ["h1", "h2", "h3", "h4", "h5"]
    assert "5 hosts: 5 done; record " in said
    head, *lines = six.records()[-1]
    assert head["request"]["kind"] == "deploy" and head["pace"]["canary"] == 1
    assert list(head["hosts"]) == ["h1", "h2", "h3", "h4", "h5"]
    ends = {line["host"]: index for index, line in enumerate(lines) if "end" in line and "host" in line}
    begins = {
        line["host"]: index
        for index, line in enumerate(lines)
        if line.get("step") == "fleet" and line["state"] == "begin"
    }
    assert all(ends["h1"] < begins[host] for host in begins if host != "h1")
    at_work, most = 0, 0
    for line in lines:
        if line.get("step") == "fleet":
            at_work += {"begin": 1, "ok": -1}.get(line["state"], 0)
            most = max(most, at_work)
    assert most <= 3
    assert {line["step"] for line in lines if line.get("host") == "h2"} >= {"start", "generate", "commit"}
    assert lines[-1]["end"] == 0 and len(lines[-1]["done"]) == 5
    path = next((six.folder / ".fleetctl/rollouts").iterdir())
    assert path.stat().st_mode & 0o777 == 0o600
    before = six.logins("ct129")
    again = six.fleet("deploy", "@all,!h6", "--service", "one")
    assert six.logins("ct129") - before == 3 + 1, "one login a host (h1, h3, h5), and this look's own"
    assert again["unchanged"] == ["h1", "h2", "h3", "h4", "h5"] and again["exit"] == 0


def test_a_canary_that_fails_keeps_the_others_and_resume_does_what_is_left(six: Six) -> None:
    six.behave("h2", die=0.1)
    words = ("deploy", "h1", "h2", "h3", "h4", "--service", "one", "--canary", "2", "--max-failures", "9")
    came = six.fleet(*words, expect=8)
    assert (came["done"], came["failed"], came["not-begun"]) == (["h1"], ["h2"], ["h3", "h4"])
    assert six.serving() == ["h1"]
    assert six.said(host="h3", end="not-begun", text="1 of the canaries failed")
    six.behave("h2")
    came = six.fleet(*words, "--resume")
    assert (came["skipped"], came["done"]) == (["h1"], ["h2", "h3", "h4"])
    assert six.serving() == ["h1", "h2", "h3", "h4"]
    six.behave("h1", load=0.1)
    came = six.fleet(*words, "--resume")
    assert (came["skipped"], came["done"]) == (["h2", "h3", "h4"], ["h1"]), "what is wanted of h1 has changed"


def test_no_host_is_begun_after_too_many_failed(six: Six) -> None:
    six.behave("h1", address=AWAY)
    six.behave("h2", die=0.1)
    words = ("deploy", "h*", "--service", "one", "--max-parallel", "1")
    came = six.fleet(*words, expect=8)
    assert (came["failed"], len(came["not-begun"]), came["done"]) == (["h1"], 5, [])
    came = six.fleet(*words, "--max-failures", "1", expect=8)
    assert (came["failed"], came["done"], six.serving()) == (["h1", "h2"], [], [])
    said = six.run(*words, "--max-failures", "2", expect=8)
    assert "6 hosts: 4 done, 2 failed" in said and "--resume" in said
    assert AWAY in said and six.serving() == ["h3", "h4", "h5", "h6"]


def test_a_service_that_fails_during_the_pause_stops_the_rest(six: Six) -> None:
    words = ("deploy", "h1", "h2", "h3", "--service", "one", "--canary", "1", "--pause", "60", "--json")
    process = six.start(*words)
    six.until(lambda: six.said(step="wave", text="1 host is watched for 60 s"))
    six.lab.run(six.machine("h1"), "systemctl kill -s KILL fleet-h1-one.service")
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 8
    came = json.loads(out.splitlines()[-1])["fleet"]
    assert (came["failed"], came["not-begun"]) == (["h1"], ["h2", "h3"])
    error = next(line["error"] for line in six.records()[-1] if line.get("end") == "failed")
    assert "after it had been put into service" in error["what"] and "fleetctl rollback h1" in error["fix"]


def test_swap_and_rollback_of_many_and_a_pause_that_is_watched(six: Six) -> None:
    six.run("deploy", "@odd", "--service", "one")
    words = ("swap", "one", "two", "--host", "@odd", "--canary", "1", "--max-parallel", "1", "--pause", "1.5")
    assert six.run(*words, "--plan", expect=10).count("planned:") == 3
    began = time.monotonic()
    came = six.fleet(*words)
    assert came["done"] == ["h1", "h3", "h5"] and time.monotonic() - began > 3
    assert all(six.active(host, "two") for host in ("h1", "h3", "h5"))
    came = six.fleet("rollback", "@odd", "--max-parallel", "2")
    assert came["done"] == ["h1", "h3", "h5"] and six.serving() == ["h1", "h3", "h5"]
    six.behave("h5", address=AWAY)
    said = six.run("rollback", "@odd", expect=8)
    assert "not rolled back: h5; name only these, for a second rollback undoes the first" in said
    said = six.run("stop", "@odd", expect=8)
    assert "the same command again does those that are not done" in said and "--resume" not in said


def test_a_killed_controller_is_resumed(six: Six) -> None:
    six.behave("h3", shut=GATE)
    six.hold("h3")
    words = ("deploy", "h1", "h3", "h4", "--service", "one", "--max-parallel", "1")
    process = six.start(*words)
    six.until(lambda: six.said(host="h3", step="start", state="ok"))
    process.kill()
    process.communicate(timeout=60)
    assert six.serving()[:1] == ["h1"] and not six.active("h4")
    six.release("h3")
    six.until(lambda: six.active("h3") and "locked" not in six.run("status", "h3"))
    six.until(lambda: json.loads(six.run("history", "h3", "--json"))["rollouts"][0]["outcome"] == "done")
    came = six.fleet(*words, "--resume")
    assert (came["skipped"], came["unchanged"], came["done"]) == (["h1"], ["h3"], ["h4"])


def test_interrupted_it_undoes_what_runs_and_begins_no_more(six: Six) -> None:
    six.behave("h3", never=True)
    words = ("deploy", "h1", "h3", "h4", "--service", "one", "--max-parallel", "1")
    process = six.start(*words)
    six.until(lambda: six.said(host="h3", step="start", state="ok"))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130, out + err
    assert "h4: not begun, interrupted" in out and "1 done, 1 not begun, 1 failed" in out
    assert six.serving() == ["h1"]
    process = six.start("deploy", "h1", "h4", "--service", "one", "--canary", "1", "--pause", "60")
    six.until(lambda: six.said(step="wave", text="1 host is watched for 60 s"))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130 and "h4: not begun, interrupted" in out, out + err
    assert "Traceback" not in err
    said = six.run("deploy", "h5", "--service", "two", "--resume", expect=2)
    assert "no fleet rollout of this to resume" in said


def test_a_closed_terminal_ends_what_was_begun_and_begins_no_more(six: Six) -> None:
    six.behave("h1", shut=GATE)
    six.hold("h1")
    main, other = pty.openpty()
    words = ("deploy", "h1", "h4", "--service", "one", "--max-parallel", "1")
    process = six.start_by_itself(*words, stdout=other, stderr=other, stdin=other, start_new_session=True)
    os.close(other)
    six.until(lambda: six.said(host="h1", step="start", state="ok"))
    process.send_signal(signal.SIGHUP)
    os.close(main)
    six.release("h1")
    assert process.wait(200) == 8
    assert six.serving() == ["h1"]
    assert six.said(host="h4", end="not-begun", text="the terminal was closed")
    assert six.fleet(*words, "--resume")["done"] == ["h4"]


def test_two_operators_at_once(six: Six) -> None:
    six.behave("h1", never=True)
    first = six.start("deploy", "h1", "h2", "--service", "one")
    six.until(lambda: six.said(host="h1", step="start", state="ok"))
    six.until(lambda: six.said(host="h2", end="done"))
    came = six.fleet("deploy", "h1", "h2", "--service", "two", "--max-failures", "9", expect=8)
    assert came["failed"] == ["h1"]
    error = next(line["error"] for line in six.records()[-1] if line.get("end") == "failed")
    assert error["exit"] == 4
    assert f" of {os.environ.get('USER') or 'root'} from {os.uname().nodename} since " in error["what"]
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=200)


def test_one_machine_under_two_names(six: Six) -> None:
    six.behave("h3", address=six.address("h1"))
    assert "h1 and h3 are one machine, 198.18.0.61:22" in six.run(
        "deploy", "h1", "h3", "--service", "one", expect=2
    )


def test_a_record_that_cannot_be_written_keeps_everything_as_it_is(six: Six) -> None:
    (six.folder / ".fleetctl").write_text("in the way")
    assert "nothing was changed" in six.run("deploy", "h1", "h2", "--service", "one", expect=2)
    assert six.serving() == []
