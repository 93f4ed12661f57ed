"""``fleetctl stop`` by the command line: a slot is emptied, told to be empty, and filled again."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.e2e.conftest import TEMPLATE, Site

pytestmark = pytest.mark.lab


def status(site: Site) -> dict[str, Any]:
    (slot,) = json.loads(site.run("status", "ct200", "--json"))["hosts"][0]["slots"]
    return dict(slot)


def test_a_slot_is_emptied_stays_so_and_is_filled_again(site: Site) -> None:
    assert "nothing to do" in site.run("stop", "ct200")
    site.run("deploy", "ct200")
    said = site.run("stop", "ct200", "--plan", expect=10)
    assert f"stop {site.slot}-good.service (good)" in said
    assert f"no longer start {site.slot}-good.service at boot" in said
    assert site.generates()

    said = site.run("stop", "ct200")
    assert f"ct200 {site.slot} is empty: good is stopped" in said
    assert site.active("good") == "inactive"
    found = status(site)
    assert (found["service"], found["health"], found["managed"]) == (None, "empty", True)
    assert found["notes"] == [f"emptied; `fleetctl rollback ct200 --slot {site.slot}` brings good back"]
    assert "nothing to do" in site.run("stop", "ct200")
    last = json.loads(site.run("history", "ct200", "--slot", site.slot, "--json"))["rollouts"][0]
    assert (last["kind"], last["old"]["service"], last["outcome"]) == ("stop", "good", "done")

    site.run("rollback", "ct200", "--slot", site.slot)
    assert site.generates()
    assert "is empty: good is stopped" in site.run("rollback", "ct200", "--slot", site.slot)
    site.service("new")
    said = site.run("deploy", "ct200", "--service", "new")
    assert "vacant" not in said
    assert status(site)["service"] == "new"
    outcome = json.loads(site.run("stop", "ct200", "--json").splitlines()[-1])["outcome"]
    assert (outcome["service"], outcome["emptied"], outcome["verdict"]) == ("new", True, "done")


def test_only_the_service_that_is_named_is_stopped(site: Site) -> None:
    site.service("new")
    site.run("deploy", "ct200", "--service", "new")
    said = site.run("stop", "ct200", "--service", "good", expect=5)
    assert "good is not what fills the slot; new" in said
    assert site.active("new") == "active"
    site.run("stop", "ct200", "--service", "new")
    assert site.active("new") == "inactive"
    assert "nothing to do" in site.run("stop", "ct200", "--service", "good")
    said = site.run("swap", "new", "good", expect=5)
    assert "new is not what fills the slot; nothing is" in said


def test_what_somebody_started_by_hand_is_stopped_too_and_comes_back(site: Site) -> None:
    site.run("deploy", "ct200")
    site.run("stop", "ct200")
    site.lab.run("ct200", f"systemctl enable -q --now {site.slot}-good.service")
    site.until_on_host(f"curl -s -o /dev/null 127.0.0.1:{site.port}")
    assert "started since the slot was emptied" in str(status(site)["notes"])
    site.run("stop", "ct200")
    assert site.active("good") == "inactive"
    site.run("rollback", "ct200", "--slot", site.slot)
    assert site.generates()


def test_interrupted_it_serves_again(site: Site) -> None:
    template = site.folder / "templates/systemd/patient.service.j2"
    template.write_text(TEMPLATE.replace("TimeoutStopSec=4", "TimeoutStopSec=600"))
    site.service("good", "patient.service.j2", deaf=True)
    site.services["good"]["deadlines"]["stop"] = 600
    site.write()
    site.run("deploy", "ct200")
    process = site.start("stop", "ct200")
    site.until(process, "drain")
    process.send_signal(signal.SIGINT)
    site.until(process, "restore-start")
    site.lab.run("ct200", f"systemctl kill -s KILL {site.slot}-good.service")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130, out + err
    assert "stop of good interrupted" in err
    assert "serves again" in err, err
    assert site.generates()
