"""Playbooks on a lab host: run, stopped, resumed, planned, interrupted."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import yaml

from tests.e2e.conftest import STANDIN, VENV, Site

PLAYBOOK = """
playbook: change
description: One service, then the other.
parameters:
  first: {type: service}
  second: {type: service}
steps:
  - name: the first
    deploy: {hosts: ct200, service: "${first}"}
  - name: the second
    swap: {old: "${first}", new: "${second}"}
  - name: what serves
    status: {hosts: ct200}
"""


def write(site: Site) -> None:
    (site.folder / "playbooks").mkdir()
    (site.folder / "playbooks/change.yaml").write_text(PLAYBOOK)


def change(site: Site, *words: str, expect: int = 0) -> str:
    return site.run("playbook", "run", "change", "first=good", "second=new", *words, expect=expect)


def test_a_step_that_fails_ends_it_and_resume_goes_on_there(site: Site) -> None:
    write(site)
    site.service("new", die=0.1)
    said = change(site, expect=6)
    assert "stopped with 2 steps left" in said
    assert "fleetctl playbook run --resume change first=good second=new" in said
    assert site.active("good") == "active"
    site.service("new")
    said = change(site, "--resume")
    assert "== 1/3 the first (an earlier run did it)" in said
    assert site.active("new") == "active"
    assert site.active("good") == "inactive"
    lines = (site.folder / ".fleetctl/playbooks/change.jsonl").read_text().splitlines()
    states = [(line["step"], line["state"]) for line in map(json.loads, lines)]
    assert states[:4] == [(0, "begin"), (0, "done"), (1, "begin"), (1, "failed")]
    assert states[4:] == [(0, "skipped"), (1, "begin"), (1, "done"), (2, "begin"), (2, "done")]


def test_a_plan_changes_nothing_and_names_every_command(site: Site) -> None:
    write(site)
    site.service("new")
    said = change(site, "--plan", expect=10)
    assert "fleetctl deploy --service=good ct200" in said
    assert "fleetctl swap good new" in said
    assert "looks only" in said
    assert site.active("good") == "inactive"
    assert not (site.folder / ".fleetctl/playbooks").exists()


def test_nothing_is_begun_where_a_later_step_cannot_be(site: Site) -> None:
    write(site)
    said = site.run("playbook", "run", "change", "first=good", "second=good", expect=2)
    assert "step 2 of 3, the second: good cannot be swapped for itself; nothing was changed" in said
    assert "--resume" not in said
    assert site.active("good") == "inactive"
    assert not (site.folder / ".fleetctl/playbooks").exists()


def test_json_has_each_step_with_what_its_command_said(site: Site) -> None:
    write(site)
    site.service("new")
    out = change(site, "--json")
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    ends = [event for event in events if event["state"] == "done"]
    assert [event["exit"] for event in ends] == [0, 0, 0]
    assert ends[1]["output"][-1]["outcome"]["verdict"] == "done"
    (host,) = ends[2]["output"]["hosts"]
    assert host["host"] == "ct200"


def test_a_service_moves_and_the_old_host_is_emptied(site: Site) -> None:
    (site.folder / "playbooks").mkdir()
    shipped = Path(__file__).parents[2] / "playbooks/move.yaml"
    (site.folder / "playbooks/move.yaml").write_text(shipped.read_text())
    there = yaml.safe_load((site.folder / "inventories/ct200.yaml").read_text())
    there |= {"host": "ct129", "ssh": {**site.ssh, "hostname": site.lab.address("ct129")}}
    (site.folder / "inventories/ct129.yaml").write_text(yaml.safe_dump(there))
    site.lab.run("ct129", f"test -x {VENV}/bin/python || /usr/bin/python3 -m venv --without-pip {VENV}")
    (site.lab.state("ct129") / "standin.py").write_text(STANDIN.read_text())
    site.run("deploy", "ct200", "--service", "good")
    move = ("playbook", "run", "move", "from=ct200", "to=ct129", "service=good")
    assert "fleetctl stop --service=good ct200" in site.run(*move, "--plan", expect=10)
    assert "is empty: good is stopped" in site.run(*move)
    unit = f"{site.slot}-good.service"
    states = [
        site.lab.run(host, f"systemctl is-active {unit}", check=False).stdout for host in ("ct200", "ct129")
    ]
    assert states == ["inactive\n", "active\n"]
    site.run("stop", "ct129")


def test_an_interrupt_reaches_the_step_once_and_it_undoes_itself(site: Site, tmp_path: Path) -> None:
    write(site)
    site.run("deploy", "ct200", "--service", "good")
    site.service("new", never=True)
    process = site.start("playbook", "run", "change", "first=good", "second=new")
    site.until(process, "port: process")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130, out + err
    assert "the host is asked to undo it" in err
    assert "it is left to the host" not in err
    assert site.active("good") == "active"
    assert site.generates()
