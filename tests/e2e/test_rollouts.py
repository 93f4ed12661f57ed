"""Rollouts under way are listed, followed and undone by whoever comes, from another terminal too."""

from __future__ import annotations

import json
import signal
import time

import pytest

from tests.e2e.conftest import Site
from tests.warm import Command

pytestmark = pytest.mark.lab


def started(site: Site) -> Command:
    """A swap whose controller is killed while the new service loads."""
    site.run("deploy", "--service", "good")
    site.service("slow", never=True)
    process = site.start("swap", "good", "slow")
    site.until(process, "port: process")
    process.kill()
    process.communicate(timeout=60)
    while dict(entries(site)[0]["last"])["step"] != "health":  # type: ignore[call-overload]
        time.sleep(0.1)
    return process


def entries(site: Site) -> list[dict[str, object]]:
    """What ``rollouts`` says of the slot."""
    found = json.loads(site.run("rollouts", "--json"))["rollouts"]
    return [entry for entry in found if entry["slot"] == site.slot]


def test_a_rollout_is_listed_followed_and_aborted_by_another(site: Site) -> None:
    started(site)
    (entry,) = entries(site)
    assert entry["outcome"] == "running"
    assert dict(entry["last"])["step"] == "health"  # type: ignore[call-overload]
    assert "running" in site.run("rollouts", "ct200")
    following = site.start("attach", "ct200", "--slot", site.slot)
    site.until(following, "port: process")
    following.send_signal(signal.SIGINT)
    _, said = following.communicate(timeout=200)
    assert following.returncode == 130, said
    assert f"rollout {entry['id']} goes on" in said
    assert entries(site)[0]["outcome"] == "running"
    said = site.run("deploy", "--service", "good", expect=4)
    assert f"fleetctl abort ct200 --slot {site.slot}" in said
    assert "good.service serves again" in site.run("abort", "ct200", "--slot", site.slot)
    assert site.generates()
    said = site.run("attach", str(entry["id"]), expect=6)
    assert "aborted" in said
    assert "health" in said
    assert "has ended already" in site.run("abort", str(entry["id"]), expect=5)


def test_nothing_to_attach_to(site: Site) -> None:
    site.run("deploy", "--service", "good")
    said = site.run("attach", "ct200", "--slot", site.slot, expect=2)
    assert "no rollout is under way" in said
    assert "fleetctl attach ID shows one of them" in said
    assert "fleetctl attach ID shows one of them" in site.run("abort", expect=2)
    (entry,) = entries(site)
    assert "is there no rollout" not in said
    assert "serves" in site.run("attach", "ct200", str(entry["id"])[-4:])
    assert "there is no rollout 20009" in site.run("attach", "ct200", "20009", expect=2)
    assert "ct200" in site.run("abort", "ct2OO", "x1", expect=2)


def test_a_rollout_that_was_cut_short_is_told_and_settled(site: Site) -> None:
    unit = f"fleetctl-rollout-{site.slot}.service"
    dropin = f"/run/systemd/system/{unit}.d"
    nothing_after = f"mkdir -p {dropin}; printf '[Service]\\nExecStopPost=\\n' > {dropin}/test.conf"
    site.lab.run("ct200", f"{nothing_after}; systemctl daemon-reload")
    started(site)
    site.lab.run("ct200", f"systemctl kill -s KILL {unit}")
    site.until_on_host(f"test $(systemctl show -P ActiveState {unit}) = inactive")
    site.lab.run("ct200", f"rm -r {dropin}; systemctl daemon-reload")
    (entry,) = entries(site)
    assert entry["outcome"] == "crashed"
    (slot,) = json.loads(site.run("status", "--json"))["hosts"][0]["slots"]
    assert f"rollout {entry['id']} was cut short: the next deploy settles it" in slot["notes"]
    assert "the next deploy" in site.run("abort", "ct200", str(entry["id"]), expect=5)
    planned = site.run("deploy", "--service", "good", "--plan", expect=10)
    assert f"settle rollout {entry['id']} first" in planned
    assert "settle: rollout" in site.run("deploy", "--service", "good")
    assert [one["outcome"] for one in entries(site)] == ["rolled-back"]
    assert "nothing to do" in site.run("deploy", "--service", "good")
    assert site.generates()
