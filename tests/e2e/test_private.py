"""A service's secrets and its user, on a real systemd: who can read what, and what a rollback brings back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.bench.records import load, recordings
from tests.e2e.conftest import TEMPLATE, Site

SECRET = "p\"a$S\\w`o'r d#%h;{x} ü"
OTHER = "another-secret-0815"
USER = "fleet-model"
OWN = TEMPLATE.replace(
    "TimeoutStopSec=4\n",
    "TimeoutStopSec=4\n{% if user %}\nUser={{ user }}\n{% include 'parts/hardening.j2' %}\n{% endif %}\n"
    "{% if secrets_file %}\nEnvironmentFile={{ secrets_file | value }}\n{% endif %}\n",
)
HARDENING = Path(__file__).parents[2] / "templates/systemd/parts/hardening.j2"


@pytest.fixture
def private(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The service ``good`` runs as a user of its own and has a secret from this shell and one from a file."""
    monkeypatch.setenv("E2E_TOKEN", SECRET)
    templates = site.folder / "templates/systemd"
    (templates / "parts").mkdir()
    (templates / "parts/hardening.j2").write_text(HARDENING.read_text())
    (templates / "standin.service.j2").write_text(OWN)
    (site.folder / "key").write_text("from-a-file\n")
    site.services["good"] |= {
        "user": USER,
        "secrets": {"STANDIN_TOKEN": "env:E2E_TOKEN", "STANDIN_KEY": "file:key"},
    }
    site.write()
    site.lab.run("ct200", f"id {USER} || useradd --system --no-create-home {USER}")
    yield site
    site.lab.run("ct200", "rm -f /var/lib/fleetctl/secrets/good-*", check=False)


def host(site: Site, command: str) -> str:
    return site.lab.run("ct200", command).stdout


def process_environment(site: Site) -> dict[str, str]:
    pid = host(site, f"systemctl show -P MainPID {site.slot}-good.service").strip()
    pairs = host(site, f"tr '\\0' '\\n' < /proc/{pid}/environ").splitlines()
    return dict(pair.split("=", 1) for pair in pairs)


def secret_files(site: Site) -> list[str]:
    return host(site, "ls /var/lib/fleetctl/secrets | grep ^good-").split()


def test_a_secret_reaches_the_process_and_nothing_else(private: Site) -> None:
    planned = private.run("deploy", "ct200", "--plan", expect=10)
    assert "send the secrets STANDIN_KEY, STANDIN_TOKEN" in planned
    assert not Path(private.lab.state("ct200") / "secrets").exists() or not list(
        (private.lab.state("ct200") / "secrets").glob("good-*")
    )
    said = private.run("deploy", "ct200", "--json")
    found = process_environment(private)
    assert (found["STANDIN_TOKEN"], found["STANDIN_KEY"]) == (SECRET, "from-a-file")
    pid = host(private, f"systemctl show -P MainPID {private.slot}-good.service").strip()
    assert host(private, f"stat -c %U /proc/{pid}").strip() == USER
    assert host(private, f"grep NoNewPrivs /proc/{pid}/status").split()[1] == "1"
    assert found["HOME"] == "/var/lib/fleetctl-good"
    assert host(private, "stat -c %U:%a /var/lib/fleetctl-good").strip() == f"{USER}:755"
    listed = host(private, "stat -c '%U %a' /var/lib/fleetctl/secrets /var/lib/fleetctl/secrets/good-*")
    assert listed.splitlines() == ["root 700", "root 600"]
    assert host(private, f"stat -c %a /var/lib/fleetctl/slots/{private.slot}.json").strip() == "600"

    for words in (("status", "ct200", "--json"), ("history", "ct200", "--json"), ("logs", "ct200", "good")):
        said += private.run(*words)
    said += host(
        private, f"systemctl cat {private.slot}-good.service; systemctl show {private.slot}-good.service"
    )
    said += host(private, "journalctl --no-pager -q -n 20000")
    said += host(
        private,
        f"cd /var/lib/fleetctl; cat slots/{private.slot}.json;"
        f" find rollouts/*-{private.slot}-* -type f -exec cat {{}} +",
    )
    for secret in (SECRET, json.dumps(SECRET), json.dumps(SECRET)[1:-1], "from-a-file"):
        assert secret not in said


def test_another_value_is_another_file_and_rollback_brings_the_old_one(
    private: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    private.run("deploy", "ct200")
    (first,) = secret_files(private)
    assert "nothing to do" in private.run("deploy", "ct200")
    monkeypatch.setenv("E2E_TOKEN", OTHER)
    assert f"change {private.slot}-good.service" in private.run("deploy", "ct200", "--plan", expect=10)
    private.run("deploy", "ct200")
    assert process_environment(private)["STANDIN_TOKEN"] == OTHER
    assert len(secret_files(private)) == 2
    private.run("rollback", "ct200", "--slot", private.slot)
    assert process_environment(private)["STANDIN_TOKEN"] == SECRET
    monkeypatch.setenv("E2E_TOKEN", "a-third-one")
    private.run("deploy", "ct200")
    assert first in secret_files(private), "what a rollback would need stays"
    monkeypatch.setenv("E2E_TOKEN", "a-fourth-one")
    private.run("deploy", "ct200")
    assert len(secret_files(private)) == 3, "the new one, the one that served and the one before it"
    monkeypatch.setenv("E2E_TOKEN", "a-fifth-one")
    private.run("deploy", "ct200")
    assert len(secret_files(private)) == 3
    assert first not in secret_files(private), "what no unit and no slot names is removed"


def test_what_is_lacking_is_said_and_nothing_is_changed(
    private: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("E2E_TOKEN")
    said = private.run("deploy", "ct200", expect=2)
    assert "E2E_TOKEN is not set" in said
    assert "inventories/ct200.yaml:" in said
    monkeypatch.setenv("E2E_TOKEN", "two\nlines")
    assert "more than one line" in private.run("deploy", "ct200", expect=2)
    monkeypatch.setenv("E2E_TOKEN", SECRET)
    private.services["good"]["user"] = "nobody-of-that-name"
    private.write()
    said = private.run("deploy", "ct200", expect=5)
    assert "the host has no such user" in said
    assert SECRET not in said
    assert private.active("good") == "inactive"


def test_probes_and_benchmarks_send_the_key_that_a_server_asks_for(private: Site) -> None:
    private.service("good", key="STANDIN_KEY", address="0.0.0.0", itl=0.005)
    private.services["good"]["secrets"] = {"STANDIN_KEY": "file:key"}
    limits = private.services["good"]["deadlines"]
    private.services["good"]["deadlines"] = {**limits, "ready": 10}
    private.write()
    assert "401" in private.run("deploy", "ct200", expect=6)
    private.services["good"] |= {"deadlines": limits, "api_key": "STANDIN_KEY"}
    private.write()
    private.run("deploy", "ct200")
    assert "nothing to do" in private.run("deploy", "ct200")
    (slot,) = json.loads(private.run("status", "ct200", "--json"))["hosts"][0]["slots"]
    assert slot["health"] == "ready"
    suites = private.folder / "playbooks/bench"
    suites.mkdir(parents=True)
    (suites / "own.txt").write_text("Say one.\n")
    (suites / "quick.yaml").write_text("prompts: own.txt\nmax_tokens: 8\nrepeats: 1\n")
    private.run("bench", "ct200", "good", "--suite", "quick")
    recording = load(recordings(private.folder)[0])
    assert [one.tokens for one in recording.requests if one.counts] == [8]
    assert "from-a-file" not in recording.path.read_text()
    (private.folder / "key").write_text("schlüssel\n")
    assert "no HTTP header can" in private.run("deploy", "ct200", expect=2)


def test_an_api_key_must_be_one_of_the_secrets(private: Site) -> None:
    private.services["good"]["api_key"] = "OTHER_KEY"
    private.write()
    said = private.run("deploy", "ct200", expect=2)
    assert "the service good has the api_key OTHER_KEY, which is none of its secrets" in said
    assert "inventories/ct200.yaml:" in said


def test_a_secret_written_into_the_inventory_is_refused(private: Site) -> None:
    private.services["good"]["env"]["HF_TOKEN"] = "hf_abcdefghijklmnopqrst"
    private.write()
    said = private.run("deploy", "ct200", expect=2)
    assert "the service good has a secret in env: HF_TOKEN would stand in the unit" in said
    assert "secrets: {VARIABLE: env:HF_TOKEN}" in said
    assert os.environ["E2E_TOKEN"] not in said


def test_a_template_that_leaves_them_out_is_refused(private: Site) -> None:
    (private.folder / "templates/systemd/standin.service.j2").write_text(TEMPLATE)
    said = private.run("deploy", "ct200", expect=2)
    assert "leaves out the secrets of the service good" in said
    assert "EnvironmentFile={{ secrets_file | value }}" in said
