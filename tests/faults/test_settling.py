"""What a crash leaves, and what may have become of it by the time somebody settles it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Lab
from tests.faults import agent, inject
from tests.faults.points import REDEPLOY, SWAP, Cell, Point
from tests.faults.site import Site, Slot

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

HOST = "ct129"
SYSTEM = "/etc/systemd/system"


def shown(site: Site, unit: str, *properties: str) -> list[str]:
    """systemd's properties of a unit."""
    asked = " ".join(f"-P {name}" for name in properties)
    return site.run(f"systemctl show {asked} {unit}").splitlines()


def text(site: Site, unit: str) -> str:
    """The unit's file in /etc/systemd/system."""
    return (site.inside / SYSTEM.lstrip("/") / unit).read_text()


def test_a_text_on_trial_is_not_what_boots(lab: Lab, tmp_path: Path) -> None:
    agent.use()
    site = Site(lab, HOST, tmp_path, [Cell(REDEPLOY, Point("health")), Cell(SWAP, Point("health"))])
    try:
        site.set_up()
        redeploy, swap = site.slots
        before = text(site, redeploy.unit("good"))
        for slot in site.slots:
            site.order(slot)
        site.start()
        assert text(site, redeploy.unit("good")) == before
        assert not (site.inside / SYSTEM.lstrip("/") / swap.unit("new")).exists()
        for slot, folder in ((redeploy, "system.control"), (swap, "system")):
            (fragment,) = shown(site, slot.unit("new"), "FragmentPath")
            assert fragment == f"/run/systemd/{folder}/{slot.unit('new')}"
        site.release()
        site.wait_results()
        assert text(site, redeploy.unit("good")) == site.target(redeploy, "new").unit_text
        assert text(site, swap.unit("new")) == site.target(swap, "new").unit_text
        for slot in site.slots:
            fragment, stale = shown(site, slot.unit("new"), "FragmentPath", "NeedDaemonReload")
            assert (fragment, stale) == (f"{SYSTEM}/{slot.unit('new')}", "no")
        assert [slot.problems for slot in site.slots] == [[], []]
    finally:
        site.clean()


def test_what_was_put_in_order_since_is_left(lab: Lab, tmp_path: Path) -> None:
    agent.use()
    at = Point("health")
    site = Site(lab, HOST, tmp_path, [*(Cell(SWAP, at) for _ in range(4)), Cell(REDEPLOY, at)])
    restarted, replaced, retired, filled, rewritten = site.slots
    try:
        site.set_up()
        for slot in site.slots:
            site.order(slot)
        site.start()
        inject.kill_rollouts_and_recovery(site)
        pids = {
            restarted.name: by_hand(site, restarted, "good"),
            replaced.name: by_hand(site, replaced, "after"),
            filled.name: by_hand(site, filled, "after"),
            rewritten.name: rewrite(site, rewritten),
        }
        site.run(f"systemctl stop {retired.unit('new')}; systemctl disable -q {retired.unit('good')}")
        state = site.inside / f"var/lib/fleetctl/slots/{filled.name}.json"
        state.write_text(state.read_text().replace(f"-{filled.name}-", f"-{filled.name}-x"))
        for slot in site.slots:
            settle(site, slot)
        outcomes = {slot.name: (site.result(slot) or {}).get("outcome") for slot in site.slots}
        assert outcomes == {
            restarted.name: "rolled-back",
            replaced.name: "superseded",
            retired.name: "superseded",
            filled.name: "superseded",
            rewritten.name: "superseded",
        }, [site.events(slot) for slot in site.slots]
        for slot, service in (
            (restarted, "good"),
            (replaced, "after"),
            (filled, "after"),
            (rewritten, "good"),
        ):
            assert shown(site, slot.unit(service), "MainPID") == [pids[slot.name]], "it was started again"
        assert shown(site, retired.unit("good"), "ActiveState") == ["inactive"]
        assert "# by hand" in text(site, rewritten.unit("good"))
    finally:
        site.clean()


def by_hand(site: Site, slot: Slot, service: str) -> str:
    """Stop the new service and start another one, as a person would; the pid of that one."""
    path = site.inside / SYSTEM.lstrip("/") / slot.unit(service)
    path.write_text(str(site.target(slot, service).unit_text))
    site.run(
        f"systemctl stop {slot.unit('new')}; systemctl daemon-reload; systemctl start {slot.unit(service)}"
    )
    site.until_serves(slot)
    return shown(site, slot.unit(service), "MainPID")[0]


def rewrite(site: Site, slot: Slot) -> str:
    """Put the unit's text right and start it anew."""
    unit = slot.unit("good")
    path = site.inside / SYSTEM.lstrip("/") / unit
    path.write_text(f"# by hand\n{site.target(slot, 'good').unit_text}")
    site.run(f"rm /run/systemd/system.control/{unit}; systemctl daemon-reload; systemctl restart {unit}")
    site.until_serves(slot)
    return shown(site, unit, "MainPID")[0]


def settle(site: Site, slot: Slot) -> None:
    """As a boot does."""
    folder = f"/var/lib/fleetctl/rollouts/{slot.rollout}"
    site.run(f"python3 -I -S {folder}/agent.pyz recover {folder}", check=False)
